"""The right step and the wrong one of one call and layer beside each other: what the fault changes in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore.masks import Visible
from kvcore.studies.fault_sight import Seen, Sight

MASK, ENTERED, CONTENTS, HEADS, DISTANCE, KEPT = ASPECTS = (
    "the mask",
    "the positions that tokens enter with",
    "the keys and values that are read",
    "the KV head that each head reads",
    "the distances that ALiBi multiplies",
    "the entries kept afterwards",
)
"""All that a step decides; a fault changes some of them."""


@dataclass(frozen=True, eq=False)
class Pair:
    """One call in one layer, right and wrong; K columns stand for absolute positions 0..K − 1.

    place (n,): the tokens' places in the sequence that both sides computed. right_reads, wrong_reads
    (n, K + 1): how many entries of each position a row reads; the last column counts entries that
    are of no position of this sequence. key_gap, value_gap (K,): how far what is read differs, NaN
    where one side has none. kept_right, kept_wrong (K + 1,): entries kept; needed (K,): those that the next
    token reads; kept_gap (K,): how far what is kept of them differs.
    """

    right: Sight
    wrong: Sight
    place: np.ndarray
    right_reads: np.ndarray
    wrong_reads: np.ndarray
    right_entered: np.ndarray
    wrong_entered: np.ndarray
    key_gap: np.ndarray
    value_gap: np.ndarray
    right_distance: np.ndarray
    wrong_distance: np.ndarray
    kept_right: np.ndarray
    kept_wrong: np.ndarray
    needed: np.ndarray
    kept_gap: np.ndarray
    tolerance: float

    @property
    def missing(self) -> np.ndarray:
        """Positions (K,) that the next token reads and the wrong step did not keep."""
        return self.needed & (self.kept_wrong[:-1] == 0)

    @property
    def surplus(self) -> np.ndarray:
        """Positions (K + 1,) that the wrong step keeps more often than the right one."""
        return self.kept_wrong > self.kept_right

    def _beyond(self, gap: np.ndarray) -> np.ndarray:
        return ~np.isnan(gap) & ~(gap <= self.tolerance)

    @property
    def kept_otherwise(self) -> np.ndarray:
        """Positions (K,) kept by both whose keys or values differ."""
        return self._beyond(self.kept_gap)

    @property
    def read_otherwise(self) -> np.ndarray:
        """Positions (K,) read by both whose keys or values differ."""
        return self._beyond(self.key_gap) | self._beyond(self.value_gap)

    @property
    def changed(self) -> tuple[str, ...]:
        """Those of ASPECTS in which the two steps differ."""
        both = ~np.isnan(self.right_distance) & ~np.isnan(self.wrong_distance)
        differs = {
            MASK: (self.right_reads != self.wrong_reads).any(),
            ENTERED: (self.right_entered != self.wrong_entered).any(),
            CONTENTS: self.read_otherwise.any(),
            HEADS: (self.right.heads != self.wrong.heads).any(),
            DISTANCE: (self.right_distance != self.wrong_distance)[both].any(),
            KEPT: self.missing.any() or self.surplus.any() or self.kept_otherwise.any(),
        }
        return tuple(aspect for aspect in ASPECTS if differs[aspect])


def pair(right: Seen, wrong: Seen, layer: int, next_visible: Visible, tolerance: float) -> Pair:
    """Both sides of one call in one layer, on the tokens that both computed."""
    one, other = right.layers[layer], wrong.layers[layer]
    place, in_right, in_wrong = np.intersect1d(right.place, wrong.place, return_indices=True)
    every = (one.key_position, other.key_position, one.kept_position, other.kept_position)
    n_columns = 1 + max(int(positions.max()) for positions in every if len(positions))
    stop = int(right.place[-1]) + 1
    needed = np.zeros(n_columns, dtype=bool)
    needed[:stop] = next_visible(np.array([stop]), np.arange(stop))[0]
    read_by = other.visible[in_wrong].any(axis=0)
    gaps = [
        _gap(one.key_position, of_right, other.key_position[read_by], of_wrong[read_by], n_columns)
        for of_right, of_wrong in ((one.key, other.key), (one.value, other.value))
    ]
    kept = [
        _gap(one.kept_position, of_right, other.kept_position, of_wrong, n_columns)
        for of_right, of_wrong in ((one.kept_key, other.kept_key), (one.kept_value, other.kept_value))
    ]
    return Pair(
        one,
        other,
        place,
        _reads(one, in_right, n_columns),
        _reads(other, in_wrong, n_columns),
        one.entered[in_right],
        other.entered[in_wrong],
        *gaps,
        _distances(one, in_right, n_columns),
        _distances(other, in_wrong, n_columns),
        _count(one.kept_position, n_columns),
        _count(other.kept_position, n_columns),
        needed,
        np.where(needed, np.maximum(*kept), np.nan),
        tolerance,
    )


def _column(position: np.ndarray, n_columns: int) -> np.ndarray:
    """The column of each entry: its position, or the last for what is no position of this sequence."""
    return np.where((position >= 0) & (position < n_columns), position, n_columns)


def _count(position: np.ndarray, n_columns: int) -> np.ndarray:
    return np.bincount(_column(position, n_columns), minlength=n_columns + 1)


def _reads(sight: Sight, rows: np.ndarray, n_columns: int) -> np.ndarray:
    counts = np.zeros((len(rows), n_columns + 1), dtype=np.int64)
    for entry, column in enumerate(_column(sight.key_position, n_columns)):
        counts[:, column] += sight.visible[rows, entry]
    return counts


def _gap(
    position: np.ndarray, rows: np.ndarray, wrong_position: np.ndarray, wrong_rows: np.ndarray, n_columns: int
) -> np.ndarray:
    """How far the rows of each position differ, the largest where one side holds several, (n_columns,)."""
    found = np.full(n_columns, np.nan)
    for column in range(n_columns):
        mine, others = rows[position == column], wrong_rows[wrong_position == column]
        if len(mine) and len(others):
            gap = np.abs(others[:, None] - mine[None]).max()
            found[column] = np.inf if np.isnan(gap) else gap
    return found


def _distances(sight: Sight, rows: np.ndarray, n_columns: int) -> np.ndarray:
    """ALiBi's distance in each cell that is read, (rows, n_columns), NaN elsewhere."""
    found = np.full((len(rows), n_columns), np.nan)
    if sight.distance is not None:
        for entry, column in enumerate(sight.key_position):
            if 0 <= column < n_columns:
                read = sight.visible[rows, entry]
                found[read, column] = sight.distance[rows, entry][read]
    return found
