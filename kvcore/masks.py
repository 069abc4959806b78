"""Which keys a query may read: predicates on absolute positions, never on cache slots.

A mask is called with query positions (n,) and key positions (n_keys,) and gives a boolean
array (n, n_keys), True where the key is visible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvcore.config import check_int

Visible = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Mask:
    """Key j is visible to query i when 0 ≤ i − j (causal) and (j < n_sinks or i − j < window).

    `window` counts the query's own position: window = 1 sees itself only, None sees the whole
    past. Sinks do not count in it. Without `causal` only the second condition is left.
    """

    window: int | None = None
    n_sinks: int = 0
    causal: bool = True

    def __post_init__(self) -> None:
        if self.window is not None:
            check_int("window", self.window, 1)
        check_int("n_sinks", self.n_sinks, 0)

    def __call__(self, query_position: np.ndarray, key_position: np.ndarray) -> np.ndarray:
        query = query_position[:, None]
        visible = key_position <= query if self.causal else np.ones((query.size, key_position.size), dtype=bool)
        if self.window is not None:
            near = query - key_position < self.window
            visible &= near | (key_position < self.n_sinks) if self.n_sinks else near
        return visible


@dataclass(frozen=True)
class EditedMask:
    """`base` with single cells flipped by hand, each named by (query position, key position)."""

    base: Visible
    flipped: frozenset[tuple[int, int]]

    def __call__(self, query_position: np.ndarray, key_position: np.ndarray) -> np.ndarray:
        visible = self.base(query_position, key_position)
        for query, key in self.flipped:
            visible[np.ix_(query_position == query, key_position == key)] ^= True
        return visible


def rows_without_keys(visible: np.ndarray) -> np.ndarray:
    """Indices of rows that see no key at all: attention is not defined there."""
    return np.flatnonzero(~visible.any(axis=-1))
