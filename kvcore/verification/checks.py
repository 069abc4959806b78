"""One line of the report a check, and the checks that compare rows at every position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification.tolerance import Tolerance

FAULTY = ("differs", "failed")
"""Verdicts that make a report not ok; "equal", "rounding", "note" and "not tested" do not."""


@dataclass(frozen=True)
class Check:
    """What one check found. Differences are absolute; positions are those of the sequence that was run."""

    name: str
    tokens: str
    verdict: str
    largest: float | None = None
    first_bad: int | None = None
    n_bad: int = 0
    n_positions: int = 0
    note: str = ""

    @property
    def faulty(self) -> bool:
        return self.verdict in FAULTY


def compared(
    name: str,
    tokens: str,
    rows: np.ndarray,
    reference: np.ndarray,
    tolerance: Tolerance,
    first: int = 0,
    note: str = "",
) -> Check:
    """Rows of one run against the reference rows, position by position; `first` is the position of the first row."""
    return judged(name, tokens, difference_by_position(rows, reference), tolerance, first, note)


def judged(
    name: str, tokens: str, difference: np.ndarray, tolerance: Tolerance, first: int = 0, note: str = ""
) -> Check:
    """Differences by position against the tolerance."""
    bad = np.flatnonzero(~(difference <= tolerance.rounding))
    largest = float(difference.max()) if difference.size else 0.0
    first_bad = first + int(bad[0]) if bad.size else None
    return Check(name, tokens, tolerance.verdict(largest), largest, first_bad, len(bad), len(difference), note)


def not_tested(name: str, why: str) -> Check:
    return Check(name, "", "not tested", note=why)
