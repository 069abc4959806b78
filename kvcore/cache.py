"""What a layer keeps: keys, values and the absolute position of every entry.

A call never changes what an older cache reads. New entries are written behind the old ones into
shared room, and an older cache does not look that far; where that room is taken (by another
continuation of the same prefix) or full, the entries are copied to a larger room once.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

_CLAIMING = Lock()
"""Held for the moment in which a call takes slots, so that two threads may continue one prefix."""


@dataclass(eq=False, slots=True)
class _Room:
    """Slots for keys and values (batch, n_kv_heads, head_dim, slots) and positions (slots,).

    Slots come last because both products of a decode step run along them: with 8 heads of 64
    numbers they then take about 0.6 of the time. Slots below `filled` are never written again.
    """

    key: Tensor
    value: Tensor
    position: np.ndarray
    filled: int

    @property
    def slots(self) -> int:
        return len(self.position)

    def claim(self, stop: int, n_new: int) -> bool:
        """Take n_new slots behind `stop`, unless another continuation has taken them or there are too few."""
        with _CLAIMING:
            if self.filled != stop or stop + n_new > self.slots:
                return False
            self.filled += n_new
            return True

    def write(self, start: int, key: Tensor, value: Tensor, position: np.ndarray) -> None:
        new = slice(start, start + len(position))
        self.key[..., new] = key.mT
        self.value[..., new] = value.mT
        self.position[new] = position


def _room_like(key: Tensor, slots: int, filled: int) -> _Room:
    """A room whose first `filled` slots the caller writes at once."""
    batch, n_kv_heads, _, head_dim = key.shape
    shape = (batch, n_kv_heads, head_dim, slots)
    with torch.inference_mode(False):  # so that it can be written inside and outside of inference mode
        keys, values = (torch.empty(shape, dtype=key.dtype, device=key.device) for _ in range(2))
    return _Room(keys, values, np.empty(slots, dtype=np.int64), filled)


def _in_words(batch: int, n_kv_heads: int, head_dim: int, dtype: torch.dtype) -> str:
    return f"{batch} sequence(s) with {n_kv_heads} KV head(s) of {head_dim} numbers as {dtype}"


@dataclass(frozen=True, eq=False, slots=True)
class LayerCache:
    """The entries of one layer, slot by slot; grows as needed, or has a fixed `capacity`.

    `len()` is the number of entries. Appending n entries copies n of them, and all of them only
    when the room doubles, so T appended tokens copy fewer than 3·T entries in all.
    """

    capacity: int | None = None
    _room: _Room | None = None
    _start: int = 0
    _stop: int = 0

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def key(self) -> Tensor:
        """(batch, n_kv_heads, entries, head_dim); an empty cache has none yet, not even a shape."""
        return self._room.key[..., self._start : self._stop].mT

    @property
    def value(self) -> Tensor:
        """(batch, n_kv_heads, entries, head_dim)."""
        return self._room.value[..., self._start : self._stop].mT

    @property
    def position(self) -> np.ndarray:
        """Absolute position of the entry in each slot, (entries,)."""
        if self._room is None:
            return np.empty(0, dtype=np.int64)
        return self._room.position[self._start : self._stop]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the kept keys and values; unused room, positions and objects are not in it."""
        if not len(self):
            return 0
        batch, n_kv_heads, head_dim, _ = self._room.key.shape
        return 2 * batch * n_kv_heads * head_dim * len(self) * self._room.key.itemsize

    @property
    def allocated_entries(self) -> int:
        """Entries that there is room for, used or not."""
        return 0 if self._room is None else self._room.slots

    def append(self, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        """This cache with new entries behind the old: keys and values (batch, n_kv_heads, n, head_dim).

        Raises ValueError beyond `capacity` and for entries of another shape or dtype; this cache is then
        as usable as before.
        """
        n_old, n_new = len(self), len(position)
        if self.capacity is not None and n_old + n_new > self.capacity:
            raise ValueError(
                f"{n_old} cached and {n_new} new positions exceed the capacity of {self.capacity};"
                f" at most {self.capacity - n_old} more fit, and what is cached stays"
            )
        room, start, stop = self._room, self._start, self._stop
        batch, n_kv_heads, n_given, head_dim = key.shape
        if n_given != n_new:
            raise ValueError(f"{n_given} keys for {n_new} positions; give one a position")
        if room is not None and ((batch, n_kv_heads, head_dim) != room.key.shape[:3] or key.dtype != room.key.dtype):
            raise ValueError(
                f"the cache holds {_in_words(*room.key.shape[:3], room.key.dtype)}; new entries of"
                f" {_in_words(batch, n_kv_heads, head_dim, key.dtype)} do not fit"
            )
        if room is None or not room.claim(stop, n_new):
            room, start, stop = self._larger_room(key, n_old + n_new), 0, n_old
        room.write(stop, key, value, position)
        return LayerCache(self.capacity, room, start, stop + n_new)

    def _larger_room(self, key: Tensor, n_entries: int) -> _Room:
        """A room of its own that already holds this cache's entries; the first fits exactly, later ones double."""
        slots = self.capacity or (n_entries if self._room is None else 2 * n_entries)
        room = _room_like(key, slots, filled=n_entries)
        if len(self):
            room.write(0, self.key, self.value, self.position)
        return room

    def keep_last(self, n_last: int, n_first: int = 0) -> LayerCache:
        """The first n_first and the last n_last entries; evicted ones are soon let go.

        Without n_first this is a view until the evicted outnumber the kept, then one copy: what is
        allocated stays within a constant factor of what is kept. With n_first it copies what it keeps.
        """
        if len(self) <= n_first + n_last:
            return self
        recent = LayerCache(self.capacity, self._room, self._stop - n_last, self._stop)
        if n_first == 0 and recent._start <= n_last:
            return recent
        n_kept = n_first + n_last
        room = _room_like(self.key, self.capacity or 2 * n_kept, filled=n_kept)
        if n_first:
            room.write(0, self.key[:, :, :n_first], self.value[:, :, :n_first], self.position[:n_first])
        room.write(n_first, recent.key, recent.value, recent.position)
        return LayerCache(self.capacity, room, 0, n_kept)

    def take(self, slots: np.ndarray) -> LayerCache:
        """The entries in these slots, in this order, copied to room of their own."""
        if not len(slots):
            return LayerCache(self.capacity)
        room = _room_like(self.key, self.capacity or len(slots), filled=len(slots))
        room.write(0, self.key[:, :, slots], self.value[:, :, slots], self.position[slots])
        return LayerCache(self.capacity, room, 0, len(slots))

    def before(self, n_tokens: int) -> LayerCache:
        """The entries of positions 0..n_tokens − 1: a view where they lie in front, else copied."""
        early = self.position < n_tokens
        n_early = int(early.sum())
        if early[:n_early].all():
            return LayerCache(self.capacity, self._room, self._start, self._start + n_early)
        return self.take(np.flatnonzero(early))


@dataclass(frozen=True, eq=False, slots=True)
class KVCache:
    """One LayerCache a layer and the number of tokens processed so far, which eviction never lowers."""

    layers: tuple[LayerCache, ...]
    n_processed: int = 0

    @classmethod
    def empty(cls, n_layers: int, capacity: int | None = None) -> KVCache:
        return cls((LayerCache(capacity),) * n_layers)

    @property
    def payload_bytes(self) -> int:
        return sum(layer.payload_bytes for layer in self.layers)
