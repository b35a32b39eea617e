"""What was said next to a good hit is likelier to belong to the answer than its own words show.

"Sure, last June." answers a question that stands in the turn before it. So each hit gains a share of the scores of the
two records before it and the two after it on the timeline, where no longer pause lies between: an application of
smoothing a document's score by its neighbours', as for passages in Callan, "Passage-Level Evidence in Document
Retrieval", SIGIR 1994. Values of declared chains neither give nor gain: their place in time is not a conversation.

The weights were chosen on LoCoMo's first five conversations; see docs/explanation/retrieval-quality.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..columns import Columns, Rows

__all__ = ["considered", "lift"]

_WEIGHTS = (0.3, 0.15)
"""What the next record, and the next but one, give of their score, in each direction."""

_PAUSE = 3600.0
"""Seconds between two records from which on they are no neighbours."""

_CONSIDERED = 200
_CONSIDERED_PER_HIT = 10


def considered(top_k: int) -> int:
    """How many of the best rows `lift` should be given to find the first `top_k`."""
    return max(_CONSIDERED, _CONSIDERED_PER_HIT * top_k)


def lift(
    columns: Columns, allowed: npt.NDArray[np.bool_], rows: Rows, scores: npt.NDArray[np.floating]
) -> tuple[Rows, npt.NDArray[np.float64]]:
    """`rows`, best first, in the order of their scores with what their neighbours give, and those scores.

    A score counts by how far it is above the least of `scores`, and a row that is not among `rows` as that least one.

    Args:
        rows: at least one, best first, with their `scores`.
        allowed: mask of the rows that are on the timeline.
    """
    timeline = np.flatnonzero(allowed & ~(columns.declared & (columns.chain >= 0)))
    timeline = timeline[np.argsort(columns.valid_from[timeline], kind="stable")]
    session = np.cumsum(np.diff(columns.valid_from[timeline], prepend=-np.inf) > _PAUSE)
    least = float(scores[-1])
    gains = np.zeros(len(columns))
    gains[rows] = scores - least
    own = gains[timeline]
    lifted = own.copy()
    for distance, weight in enumerate(_WEIGHTS, 1):
        near = weight * (session[distance:] == session[:-distance])
        lifted[distance:] += near * own[:-distance]
        lifted[:-distance] += near * own[distance:]
    gains[timeline] = lifted
    order = np.argsort(-gains[rows], kind="stable")
    return rows[order], least + gains[rows[order]]
