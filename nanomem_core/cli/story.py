"""What a person told an assistant in the course of ten months: the data of ``nanomem demo``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STORY", "TODAY", "Statement"]

TODAY = "2025-11-24"
"""The day the demo asks its questions on."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that was said.

    Attributes:
        told: when.
        entity: the attribute it is declared to give a value of.
        since: when it became true, if not when it was told.
        ends: True if it says that the current value of `entity` ended.
    """

    told: str
    text: str
    entity: str | None = None
    since: str | None = None
    source: str = "chat"
    ends: bool = False


STORY = (
    Statement("2025-01-14", "Nice to meet you! I work at Fernway Maps as a cartographer.", "employer"),
    Statement("2025-01-14", "My flat is in Utrecht, by the canal.", "city"),
    Statement("2025-01-20", "If the mail bounces, my phone number is 06-5550142.", "phone"),
    Statement("2025-02-03", "At work I sit with the tiles team, next to the plotter.", "team"),
    Statement("2025-02-11", "I take my coffee black, no sugar."),
    Statement("2025-03-02", "Tuesday evenings are out: I go to the climbing hall now.", "sport"),
    Statement("2025-03-19", "How do I undo a merge? Routing moved me to their corner, so new repository.", "team"),
    Statement(
        "2025-04-22",
        "The tiles team meets at work every Monday. Who sits with the tiles team books a desk by Friday.",
        source="handbook.md",
    ),
    Statement("2025-05-06", "Sorry for the silence, boxes everywhere. Rotterdam has been fun so far.", "city"),
    Statement("2025-06-17", "The old one drowned with my kayak; call 06-5550198 from today.", "phone"),
    Statement("2025-08-04", "First day at Harbour Data! The badge photo is terrible.", "employer"),
    Statement("2025-08-05", "They put me with the ingestion group. Can you recommend a book on queues?", "team"),
    Statement("2025-09-01", "The shoulder is done for; I cancelled climbing.", "sport", since="2025-08-30", ends=True),
    Statement("2025-09-15", "For the tax form: in mid April I had already moved to Delft.", "city", since="2025-04-15"),
    Statement("2025-10-07", "Peanuts are off the menu, I turned out to be allergic."),
)
