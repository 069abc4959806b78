"""What kind of model it is, as far as its full forward tells: how positions enter, and how far back rows reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification.subject import Subject
from kvcore.verification.tolerance import Tolerance

RELATIVE_PART = 1e-2
"""Rows of a repeated token that differ by a smaller part of the scale are taken for equal in narrow formats."""


DROP = 0.8
"""Part of the influence at smaller distances below which all influence at larger ones counts as a drop."""


@dataclass(frozen=True)
class Character:
    """`scheme` is the engine's scheme that behaves alike: sinusoidal stands for all that add positions.

    `reach` is how far behind an edited token rows still move, None where that has no end within the
    sequence; `n_sinks` how many first tokens move every later row all the same. `drop` is the distance at
    which an edit's influence falls off, or None: the window of some layers, where others see everything.
    """

    scheme: str
    reach: int | None
    n_sinks: int
    drop: int | None = None


def character(
    subject: Subject,
    token_ids: Sequence[int],
    moved: Sequence[tuple[int, np.ndarray]],
    alternatives: Sequence[int],
    tolerance: Tolerance,
) -> Character:
    """`moved` holds for each edited position how far each row moved, in a sequence of any length."""
    length = len(moved[0][1]) if moved else len(token_ids)
    reach, n_sinks = _reach(moved, length, tolerance.equal)
    scheme, influence = _scheme(subject, token_ids, alternatives, tolerance)
    return Character(scheme, reach, n_sinks, None if influence is None else _drop(influence))


def _drop(influence: np.ndarray) -> int | None:
    """The distance d from which on influence (distances 1, 2, …) stays below DROP of what it was before d."""
    before = np.minimum.accumulate(influence)[:-1]
    after = np.maximum.accumulate(influence[::-1])[::-1][1:]
    fall = after / before
    at = int(np.argmin(fall)) if fall.size else 0
    return at + 2 if fall.size and fall[at] < DROP else None


def _reach(moved: Sequence[tuple[int, np.ndarray]], length: int, beyond: float) -> tuple[int | None, int]:
    last = {position: np.flatnonzero(gap > beyond) for position, gap in moved}
    ends = {position: int(rows[-1]) for position, rows in last.items() if rows.size}
    finite = [end - position for position, end in ends.items() if end < length - 1]
    if not finite:
        return None, 0
    reach = max(finite)
    beyond_reach = [p for p, end in ends.items() if end == length - 1 and length - 1 - p > reach]
    return reach, max(beyond_reach, default=-1) + 1


def _scheme(
    subject: Subject, token_ids: Sequence[int], alternatives: Sequence[int], tolerance: Tolerance
) -> tuple[str, np.ndarray | None]:
    """Added positions give a repeated token other rows; ALiBi loses influence with distance, steadily."""
    length, token = min(len(token_ids), 16), token_ids[0]
    same = subject.try_full((token,) * length)
    if same is None:
        return "sinusoidal", None
    gap = difference_by_position(same, np.broadcast_to(same[:1], same.shape))
    slack = max(
        tolerance.rounding, (1e-6 if tolerance.dtype in ("float64", "float32") else RELATIVE_PART) * tolerance.scale
    )
    if gap.max() > slack:
        return "sinusoidal", None
    others = [other for other in dict.fromkeys(alternatives) if other != token][:3]
    influence = np.zeros(length - 1)
    for position in range(length - 1):
        for other in others:
            rows = subject.try_full((*(token,) * position, other, *(token,) * (length - position - 1)))
            if rows is not None:
                influence[length - 2 - position] += float(np.abs(rows[-1] - same[-1]).max())
    if len(influence) < 5 or not (influence > 0).all():
        return "rotary", None
    if influence.max() <= 1.001 * influence.min():
        return "none", None
    near = influence[: max(4, 2 * len(influence) // 3)]  # the very first tokens, farthest away, are a case of their own
    steady = (np.diff(near) < 0).mean() >= 0.75 and np.diff(np.log(near)).min() > -0.5
    return ("alibi" if steady else "rotary"), influence
