import logging

import pytest

from nanomem_core.errors import BudgetError, GeneratorError, ReplyError
from nanomem_core.interfaces import Groups, Segmenter
from nanomem_core.pipeline.segmenting import ONE_GROUP, segment_with_fallback
from nanomem_core.records import Record
from nanomem_core.testing import ScriptedGenerator
from nanomem_plugins.batch.segmenter import BatchSegmenter

MESSAGES = [Record(f"m{number}", f"text {number}", kind="message", valid_from=60.0 * number) for number in range(4)]


class Pairs(Segmenter):
    name = "pairs"

    def split(self, messages, generator=None):
        return [[i, i + 1] for i in range(0, len(messages), 2)]


class Broken(Segmenter):
    name = "broken"

    def __init__(self, error):
        self.error = error

    def split(self, messages, generator=None):
        raise self.error


def test_the_first_segmenter_that_succeeds_counts():
    reply = '{"episodes": [{"indices": [1, "2", 3], "topic": "tea"}, {"indices": [4], "topic": "work"}]}'
    found = segment_with_fallback([BatchSegmenter(), Pairs()], MESSAGES, ScriptedGenerator([reply]))
    assert found.groups == [[0, 1, 2], [3]]
    assert found.topics == ["tea", "work"]
    assert found.repairs == {"coerced": 1}
    assert found.segmenter == "batch"
    assert found.failures == {}


@pytest.mark.parametrize(
    ("generator", "why"),
    [
        (None, "expected a generator"),
        (ScriptedGenerator([GeneratorError("the model is down")]), "GeneratorError: the model is down"),
        (ScriptedGenerator(["no", "no"]), "ReplyError: answer of the model: expected a JSON object with 'episodes'"),
        (ScriptedGenerator([BudgetError(5, 6)]), "BudgetError"),
    ],
)
def test_a_segmenter_that_fails_makes_room_for_the_next(generator, why):
    found = segment_with_fallback([BatchSegmenter(), Pairs()], MESSAGES, generator)
    assert found.groups == [[0, 1], [2, 3]]
    assert found.segmenter == "pairs"
    assert why in found.failures["batch"]
    assert found.topics == [None, None]


def test_a_plugin_s_own_error_makes_room_for_the_next_and_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "nanomem"):
        found = segment_with_fallback([Broken(KeyError("x")), Pairs()], MESSAGES)
    assert found.segmenter == "pairs"
    assert found.failures == {"broken": "KeyError: 'x'"}
    assert "segmenter 'broken' failed" in caplog.text


def test_an_interrupt_is_no_failure():
    with pytest.raises(KeyboardInterrupt):
        segment_with_fallback([Broken(KeyboardInterrupt()), Pairs()], MESSAGES)


def test_one_group_is_the_last_resort():
    found = segment_with_fallback([Broken(ReplyError("a", "b"))], MESSAGES)
    assert found.groups == Groups([[0, 1, 2, 3]])
    assert found.topics == [None]
    assert found.segmenter == ONE_GROUP
    assert list(found.failures) == ["broken"]


def test_no_message_asks_nobody():
    found = segment_with_fallback([Broken(ReplyError("a", "b"))], [])
    assert found.groups == []
    assert found.failures == {}
