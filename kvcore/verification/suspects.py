"""One entry of the ranking, and the words in which it gives its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvcore.verification.plan import BASE, CONSTANT, ONE_CALL, ONES, PREFILL, UNEQUAL

if TYPE_CHECKING:
    from kvcore.verification.trial import Trial


UNLIKE = 0.2
"""A likeliest suspect that is further from the evidence than this explains it badly."""


@dataclass(frozen=True)
class Suspect:
    """`rank` 1 is the likeliest; `fault` is the engine's name for it, `fault_class` the catalogue's code.

    `evidence` says what was seen, `advice` what is expected and what this fault does instead; `distance`
    how unlike what was seen is to what this fault leaves: 0 where nothing is.
    """

    rank: int
    fault_class: str
    fault: str
    evidence: str
    advice: str
    distance: float


def with_care(suspects: Sequence[Suspect]) -> list[str]:
    """A note where even the likeliest suspect explains what was seen badly."""
    if suspects and suspects[0].distance > UNLIKE:
        return ["none of the engine's faults leaves quite this evidence: take the ranking with care"]
    return []


def observed(trial: Trial) -> str:
    """What was seen, in one sentence: which splits agree, which differ and from where on, and what edits did."""
    bad = {
        split: marks
        for (kind, split, sequence), marks in trial.signature.items()
        if kind == "differs" and sequence == BASE
    }
    clean = [split for split, marks in bad.items() if not marks.any()]
    wrong = [
        f"{split} differs from position {int(np.flatnonzero(marks)[0])} on ({int(marks.sum())} of {len(marks)})"
        for split, marks in bad.items()
        if marks.any()
    ]
    said = wrong[:3]
    if clean:
        said.append(f"{', '.join(clean[:3])} {'agrees' if len(clean) == 1 else 'agree'}")
    said += _edits(trial)
    constant = [
        marks for (kind, _, sequence), marks in trial.signature.items() if kind == "differs" and sequence == CONSTANT
    ]
    if wrong and constant and not any(marks.any() for marks in constant):
        said.append("one token repeated hides it")
    if any(marks.any() for (kind, _, _), marks in trial.signature.items() if kind == "repeat"):
        said.append("a second run from None differs from the first")
    if any(marks.any() for (kind, _, _), marks in trial.signature.items() if kind == "branch"):
        said.append("two continuations of one prefix disturb each other")
    return "; ".join(said)


def _edits(trial: Trial) -> list[str]:
    said = []
    for kind, words in (
        ("ahead", "moves {n} earlier rows"),
        ("misses", "leaves {n} later rows as they were"),
        ("leaks", "moves {n} rows that it should not"),
    ):
        for split in (ONES, PREFILL, UNEQUAL, ONE_CALL):
            found = [
                (sequence, int(marks.sum()))
                for (what, where, sequence), marks in trial.signature.items()
                if what == kind and where == split and marks.any()
            ]
            if found:
                sequence, n_rows = found[0]
                position = sequence.split()[1]
                said.append(f"under {split}, editing token {position} {words.format(n=n_rows)}")
                break
    return said
