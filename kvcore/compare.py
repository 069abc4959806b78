"""How two runs of the same tokens are compared: at every position, against a stated tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def difference_by_position(rows: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Largest absolute difference at each position: (…, positions, d_model) twice → (…, positions).

    A value that is not finite, on either side or on both, counts as infinitely different.
    """
    if rows.shape != reference.shape:
        raise ValueError(f"cannot compare {rows.shape} with {reference.shape}; both need the same positions")
    with np.errstate(invalid="ignore"):
        gap = np.abs(np.asarray(rows, dtype=np.float64) - np.asarray(reference, dtype=np.float64))
    gap = np.where(np.isnan(gap), np.inf, gap)
    return gap.max(axis=-1)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Differences (positions,) at the absolute positions `position` (positions,), against `tolerance`."""

    position: np.ndarray
    difference: np.ndarray
    tolerance: float

    @property
    def largest(self) -> float:
        return float(self.difference.max())

    @property
    def worst_position(self) -> int:
        return int(self.position[self.difference.argmax()])

    @property
    def beyond(self) -> np.ndarray:
        """Absolute positions that differ by more than the tolerance."""
        return self.position[~(self.difference <= self.tolerance)]

    @property
    def first_beyond(self) -> int | None:
        return int(self.beyond[0]) if self.beyond.size else None

    @property
    def equal(self) -> bool:
        return self.beyond.size == 0

    def in_words(self) -> str:
        """One clause: how far apart, where, and whether that is within the tolerance."""
        if self.largest == 0:
            return f"exactly equal at all {len(self.position)} positions"
        size = f"largest difference {self.largest:.2g} at position {self.worst_position}"
        if self.equal:
            return f"{size}: equal within {self.tolerance:g} at all {len(self.position)} positions"
        return (
            f"{size}: {len(self.beyond)} of {len(self.position)} positions are beyond {self.tolerance:g},"
            f" the first is position {self.first_beyond}"
        )


def compare(rows: np.ndarray, reference: np.ndarray, position: np.ndarray, tolerance: float) -> Comparison:
    """Rows (positions, d_model) of one path against the same rows of its reference."""
    return Comparison(position, difference_by_position(rows, reference), tolerance)
