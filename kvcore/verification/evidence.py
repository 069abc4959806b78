"""What the battery found, as patterns: at which positions which run differs, and what an edit did not move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification.plan import BASE, RESPONSE_CHUNK, RESPONSE_ONES, SHORT, Sizes

Signature = dict[tuple[str, str, str], np.ndarray]
"""(kind, split, sequence) -> booleans by position.

"differs" marks rows beyond the tolerance; of an edit, "misses" marks rows that should move and do not,
"leaks" later rows that move and should not, "ahead" earlier ones. Further kinds are "repeat", "branch",
"crop", "reuse", "prefix", "noncausal", "layer" and, with booleans of its own, "contents".
"""


Responses = dict[tuple[str, int], np.ndarray]
"""(split, row) -> how much more each edit moves the row than it does in full, as a logarithm."""

Runs = Sequence[tuple[str, tuple[str, ...]]]
"""Splits, each with the sequences that go through it."""

RESPONSES = (RESPONSE_ONES, RESPONSE_CHUNK)
"""Splits of which only responses are kept as evidence."""


@dataclass(frozen=True)
class Battery:
    """What is run: sequences by name, each split with the sequences that go through it, and the edits.

    `edited` maps the name of an edited sequence to the position that was edited.
    """

    sequences: Mapping[str, tuple[int, ...]]
    splits: Mapping[str, Sizes]
    runs: Runs
    edited: Mapping[str, int]

    @property
    def key(self) -> tuple:
        """Equal for batteries that run the same."""
        return tuple(self.sequences.items()), tuple(self.splits.items()), tuple(self.runs), tuple(self.edited.items())


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
            if split in RESPONSES and sequence != SHORT:
                continue
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
            before = np.arange(len(does)) < battery.edited[sequence]
            found["ahead", split, sequence] = does & before
            found["leaks", split, sequence] = does & ~should & ~before
        return found

    def responses(self, battery: Battery, beyond: float) -> Responses:
        """How much more an edit moves the new rows than it does in full, as a logarithm to base e, within ±4.

        (split, row) -> one number an edit that should move the row, with the edits of the prompt first and
        the row's own token last.
        """
        found: Responses = {}
        for split in RESPONSES:
            names = [name for name in battery.edited if (split, name) in self.rows]
            if not names or (split, SHORT) not in self.rows:
                continue
            start = battery.splits[split][0]
            base, full_base = self.rows[split, SHORT], self.reference[SHORT]
            does = np.array([difference_by_position(self.rows[split, name], base) for name in names])
            should = np.array([difference_by_position(self.reference[name], full_base) for name in names])
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.log((does + beyond) / (should + beyond))
            ratio = np.clip(np.nan_to_num(ratio, posinf=4.0), -4, 4)
            for row in range(start, base.shape[0]):
                in_play = [k for k, name in enumerate(names) if battery.edited[name] <= row and should[k, row] > beyond]
                found[split, row] = ratio[in_play, row]
        return found
