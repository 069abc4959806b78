"""What the battery found, as patterns: at which positions which run differs, and what an edit did not move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification.plan import BASE, Sizes

Signature = dict[tuple[str, str, str], np.ndarray]
"""(kind, split, sequence) -> booleans by position: "differs", or which rows an edit should move and "misses" or
moves and "leaks"; further kinds are "repeat", "branch", "crop", "reuse" and "prefix"."""


@dataclass(frozen=True)
class Battery:
    """What is run: sequences by name, each split with the sequences that go through it, and the edits.

    `edited` maps the name of an edited sequence to the position that was edited.
    """

    sequences: Mapping[str, tuple[int, ...]]
    splits: Mapping[str, Sizes]
    runs: tuple[tuple[str, tuple[str, ...]], ...]
    edited: Mapping[str, int]
    longer: tuple[tuple[int, ...], Mapping[str, Sizes]] | None = None


@dataclass(eq=False)
class Found:
    """Rows by (split, sequence), and the reference rows by sequence."""

    reference: dict[str, np.ndarray] = field(default_factory=dict)
    rows: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def difference(self, split: str, sequence: str) -> np.ndarray:
        """Largest difference from the full forward at each position."""
        return difference_by_position(self.rows[split, sequence], self.reference[sequence])

    def signature(self, battery: Battery, beyond: float) -> Signature:
        """Where runs differ by more than `beyond`, and where edits move other rows than they do in full."""
        found: Signature = {}
        for (split, sequence), rows in self.rows.items():
            bad = self.difference(split, sequence) > beyond
            if sequence not in battery.edited:
                found["differs", split, sequence] = bad
                continue
            if (split, BASE) not in self.rows:
                continue
            base, full_base = self.rows[split, BASE], self.reference[BASE]
            should = difference_by_position(self.reference[sequence], full_base) > beyond
            does = difference_by_position(rows, base) > beyond
            found["misses", split, sequence] = should & ~does
            found["leaks", split, sequence] = does & ~should
        return found
