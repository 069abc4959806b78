"""A ring buffer: C slots, and the entry of position p lies in slot p mod C once C entries are there.

Slots are then not in the order of time, which attention does not mind: the mask reads positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kvcore.cache import LayerCache


def into_ring(entries: LayerCache, capacity: int) -> LayerCache:
    """The entries of the last `capacity` positions, slot by slot."""
    newest = np.argsort(entries.position)[-capacity:]
    return entries.take(newest[np.argsort(entries.position[newest] % capacity)])


@dataclass(frozen=True)
class KeepRing:
    """What stays of the attended entries: attend first, write into the ring afterwards; takes any chunk."""

    capacity: int

    def __call__(self, entries: LayerCache) -> LayerCache:
        return into_ring(entries, self.capacity)


@dataclass(frozen=True)
class WriteRing:
    """Write into the ring first and attend over what it then holds.

    A chunk's first row still needs the W − 1 positions before it, so a call takes at most C − W + 1 tokens;
    more is a ValueError.
    """

    capacity: int
    window: int

    def __call__(self, entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        most = self.capacity - self.window + 1
        if len(position) > most:
            raise ValueError(
                f"a call of {len(position)} tokens would overwrite keys that its first rows need; a ring of"
                f" {self.capacity} slots, written before it is read, takes at most {most} with window {self.window}"
            )
        return into_ring(entries.append(key, value, position), self.capacity)
