"""What the sliding-window study found: differences, slots, reach and the crop sweep, in arrays and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kvcore.cells import in_ranges
from kvcore.compare import Comparison
from kvcore.reach import Slots
from kvcore.studies import sliding_words as words

if TYPE_CHECKING:
    from kvcore.studies.sliding_window import Config


@dataclass(frozen=True, eq=False)
class Result:
    """Differences from the windowed full path, at every position; p is the chosen step.

    sliding, reset (T,); sweep (crops, T), crop C in row C − 1. slots: what p's step attends over.
    feeds (n_layers + 1, T): hidden states that reach p's output, raw tokens in row 0. moved_by_cache,
    moved_by_crop (p + 1,): how far editing each raw token moves p's output through the sliding cache,
    and where the last `crop` raw tokens are recomputed.
    """

    config: Config
    sliding: np.ndarray
    reset: np.ndarray
    sweep: np.ndarray
    slots: Slots
    feeds: np.ndarray
    moved_by_cache: np.ndarray
    moved_by_crop: np.ndarray

    @property
    def tolerance(self) -> float:
        return self.config.decoder.tolerance

    @property
    def crops(self) -> np.ndarray:
        """Numbers of raw tokens recomputed in the sweep, (crops,)."""
        return np.arange(1, len(self.sweep) + 1)

    @property
    def cropped(self) -> np.ndarray:
        """Difference of recomputing the chosen number of raw tokens, (T,)."""
        return self.sweep[self.config.recomputed - 1]

    @property
    def cropping_is_right(self) -> bool:
        """The crop holds all that any position depends on: C ≥ L(W − 1) + 1, or all tokens."""
        return self.config.recomputed >= self.config.enough

    @property
    def needed(self) -> int:
        """L(W − 1) + 1: the raw tokens one position depends on, where the past is long enough."""
        return self.config.n_layers * (self.config.window - 1) + 1

    @property
    def crop_name(self) -> str:
        return f"last {self.config.recomputed} recomputed"

    def compared(self, difference: np.ndarray) -> Comparison:
        return Comparison(np.arange(self.config.length), difference, self.tolerance)

    @property
    def answer(self) -> str:
        """The three ways beside the reference, and why."""
        return words.answer(self)

    @property
    def slots_reading(self) -> str:
        return words.slots(self)

    @property
    def reach_reading(self) -> str:
        return words.reach(self)

    @property
    def sweep_reading(self) -> str:
        return words.sweep(self)

    @property
    def reading(self) -> str:
        return " ".join([self.answer, self.slots_reading, self.reach_reading, self.sweep_reading])

    def tables(self) -> dict[str, pd.DataFrame]:
        """One frame a figure."""
        position = np.arange(self.config.length)
        token = np.arange(self.config.step + 1)
        return {
            "differences": pd.DataFrame(
                {
                    "position": position,
                    "sliding cache": self.sliding,
                    "positions reset": self.reset,
                    self.crop_name: self.cropped,
                }
            ),
            "slots": self._slot_table(),
            "cone": self._cone_table(),
            "reach": pd.DataFrame(
                {
                    "raw token": token,
                    "in reach by the law": np.where(token >= self.config.earliest, "yes", "no"),
                    "sliding cache": self.moved_by_cache,
                    self.crop_name: self.moved_by_crop,
                }
            ),
            "crops": pd.DataFrame(
                {
                    "raw tokens recomputed": self.crops,
                    "enough by the law": np.where(self.crops >= self.config.enough, "yes", "no"),
                    "largest difference": self.sweep.max(axis=1),
                    "at position": self.sweep.argmax(axis=1),
                    f"difference at position {self.config.step}": self.sweep[:, self.config.step],
                }
            ),
        }

    def _slot_table(self) -> pd.DataFrame:
        """One row an entry, oldest first: its slots, and which raw tokens it has seen in each layer."""
        slots = self.slots
        table = {
            "position": slots.position,
            "token id": self.config.tokens[slots.position],
            "slot before": ["new" if slot < 0 else str(slot) for slot in slots.before.tolist()],
            "slot after": ["evicted" if slot < 0 else str(slot) for slot in slots.after.tolist()],
        }
        for layer, seen in enumerate(slots.seen, start=1):
            table[f"layer {layer} saw"] = [in_ranges(np.flatnonzero(row)) for row in seen]
        return pd.DataFrame(table)

    def _cone_table(self) -> pd.DataFrame:
        names = ["raw tokens", *(f"after layer {layer}" for layer in range(1, len(self.feeds)))]
        counted = [in_ranges(np.flatnonzero(row)) for row in self.feeds]
        return pd.DataFrame({"hidden states": names, f"positions that reach {self.config.step}'s output": counted})

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "token_ids": self.config.tokens,
            "sliding_cache": self.sliding,
            "positions_reset": self.reset,
            "cropped_recomputation": self.cropped,
            "crops": self.crops,
            "crop_sweep": self.sweep,
            "slot_position": self.slots.position,
            "slot_before": self.slots.before,
            "slot_after": self.slots.after,
            "slot_seen": self.slots.seen,
            "cone": self.feeds,
            "moved_by_sliding_cache": self.moved_by_cache,
            "moved_by_cropped_recomputation": self.moved_by_crop,
        }
