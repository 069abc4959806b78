"""Input rules for a batch whose rows enter at different absolute positions: one call for what would be many.

Each gives input positions (batch, n). The mask keeps the call's own positions, so it must be one that
depends on their differences only, or on positions that all rows share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class BeginsAt:
    """Row b's first token, at the call's position 0, enters at absolute position first[b]; first (batch,)."""

    first: np.ndarray

    def __call__(self, cache_position: np.ndarray) -> np.ndarray:
        return self.first[:, None] + cache_position


@dataclass(frozen=True)
class EachItsOwn:
    """Row b's tokens enter where rule b puts them."""

    input_positions: tuple[Callable[[np.ndarray], np.ndarray], ...]

    def __call__(self, cache_position: np.ndarray) -> np.ndarray:
        return np.stack([rule(cache_position) for rule in self.input_positions])
