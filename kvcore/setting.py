"""A decoder together with what its layers see and how they store it: the right rules, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

from kvcore.cache import KVCache
from kvcore.config import DecoderConfig, check_choice, check_int
from kvcore.masks import Mask
from kvcore.ring import KeepRing, WriteRing
from kvcore.rules import Rules, sliding, windowed

STORAGE = ("growing", "preallocated", "sliding", "ring", "ring, attended first")
"""How a layer stores its entries; the last three evict, in layers with a window."""


@dataclass(frozen=True)
class Setting:
    """`windows` is a pattern that repeats over the layers, None for a layer that sees everything.

    `capacity` is the number of slots a layer: of a preallocated cache, for as many tokens as are to come;
    of a ring, at least the widest window.
    """

    decoder: DecoderConfig = DecoderConfig()
    windows: tuple[int | None, ...] = (None,)
    n_sinks: int = 0
    storage: str = "growing"
    capacity: int | None = None

    def __post_init__(self) -> None:
        check_choice("storage", self.storage, STORAGE)
        if not self.windows:
            raise ValueError("no window given; give one a layer, or a pattern, with None for a layer that sees all")
        for window in self.windows:
            Mask(window, self.n_sinks)  # refuses what is no window
        if self.fixed_room:
            least = 1 if self.storage == "preallocated" else max([w for w in self.windows if w is not None], default=1)
            check_int(f"the capacity of a {self.storage} cache", self.capacity, least)
        elif self.capacity is not None:
            raise ValueError(f"a {self.storage} cache has no capacity; only {STORAGE[1]} and {STORAGE[3]} ones have")
        if self.ring and self.n_sinks:
            raise ValueError(f"{self.n_sinks} sinks in a ring would be overwritten; a ring takes n_sinks 0")

    @property
    def ring(self) -> bool:
        return self.storage.startswith("ring")

    @property
    def fixed_room(self) -> bool:
        return self.ring or self.storage == "preallocated"

    def window(self, layer: int) -> int | None:
        return self.windows[layer % len(self.windows)]

    @property
    def rules(self) -> tuple[Rules, ...]:
        """The right rules, one a layer."""
        return tuple(self._layer(self.window(layer)) for layer in range(self.decoder.n_layers))

    def _layer(self, window: int | None) -> Rules:
        if window is None or self.storage in ("growing", "preallocated"):
            return windowed(window, self.n_sinks)
        if self.storage == "sliding":
            return sliding(window, self.n_sinks)
        if self.storage == "ring":
            return Rules(visible=Mask(window), append=WriteRing(self.capacity, window))
        return Rules(visible=Mask(window), keep=KeepRing(self.capacity))

    def empty_cache(self) -> KVCache:
        capacity = self.capacity if self.storage == "preallocated" else None
        return KVCache.empty(self.decoder.n_layers, capacity)
