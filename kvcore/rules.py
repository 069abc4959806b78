"""The choices a right decoding step makes, each in one place, so that a mistake is one changed choice.

A right step lets every token enter at its absolute position, uses the same position wherever one is
asked for, stores what it computed, attends over old and new entries, and evicts after it has attended.
Deliberately wrong steps replace one of these choices and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.masks import Mask, Visible
from kvcore.rotary import rotate


class Entries(NamedTuple):
    """What is attended over, where that is not simply what is stored."""

    key: Tensor  # (batch, n_kv_heads, entries, head_dim)
    value: Tensor  # (batch, n_kv_heads, entries, head_dim)
    position: np.ndarray  # (entries,)


def absolute(cache_position: np.ndarray) -> np.ndarray:
    """Right: a call's tokens stand where they stand in the whole sequence."""
    return cache_position


def from_zero(cache_position: np.ndarray) -> np.ndarray:
    """Wrong after the first call: every call counts its own tokens from 0."""
    return cache_position - cache_position[0]


def keep_all(entries: LayerCache) -> LayerCache:
    return entries


def append(entries: LayerCache, key: Tensor, value: Tensor, cache_position: np.ndarray) -> LayerCache:
    """Right: what was computed is stored once, under its absolute positions."""
    return entries.append(key, value, cache_position)


def read_all(entries: LayerCache) -> LayerCache:
    """Right: attend over the old entries and the new ones."""
    return entries


def grouped(cache_position: np.ndarray, n_heads: int, n_kv_heads: int) -> None:
    """Right: query head h reads KV head h // (n_heads / n_kv_heads), the order that attention takes as given."""


def distance(cache_position: np.ndarray, key_position: np.ndarray) -> np.ndarray:
    """Right: how far key j lies behind query i, i − j, (n, n_keys); for ALiBi, times a negative slope a head."""
    return cache_position[:, None] - key_position


@dataclass(frozen=True)
class KeepWindow:
    """Keep the last `window` entries and the first `n_sinks`, which are the sinks."""

    window: int
    n_sinks: int = 0

    def __call__(self, entries: LayerCache) -> LayerCache:
        return entries.keep_last(self.window, self.n_sinks)


@dataclass(frozen=True)
class Rules:
    """How one call decides what its tokens are, see and leave behind, in one layer or in every layer.

    `input_position` says where tokens enter (the first layer's rules decide), `rotary_position` by which
    positions queries and keys turn, `rotate` how, `mask_position` which rows of the mask they are. `append` gives the
    old entries with the new ones behind; `read` what of them is attended over; `keep` what stays.
    `head_order` may name another order of the query heads, `distance` is what ALiBi multiplies.
    """

    visible: Visible = Mask()
    keep: Callable[[LayerCache], LayerCache] = keep_all
    input_position: Callable[[np.ndarray], np.ndarray] = absolute
    mask_position: Callable[[np.ndarray], np.ndarray] = absolute
    rotary_position: Callable[[np.ndarray], np.ndarray] = absolute
    rotate: Callable[[Tensor, np.ndarray], Tensor] = rotate
    distance: Callable[[np.ndarray, np.ndarray], np.ndarray] = distance
    head_order: Callable[[np.ndarray, int, int], np.ndarray | None] = grouped
    append: Callable[[LayerCache, Tensor, Tensor, np.ndarray], LayerCache] = append
    read: Callable[[LayerCache], LayerCache | Entries] = read_all


RIGHT = Rules()

ByLayer = Rules | tuple[Rules, ...]
"""The same rules in every layer, or a pattern that repeats over the layers."""


def windowed(window: int | None, n_sinks: int = 0) -> Rules:
    """The window mask; everything is kept."""
    return Rules(visible=Mask(window, n_sinks))


def sliding(window: int, n_sinks: int = 0) -> Rules:
    """The window mask; only what a later query may still see is kept."""
    return Rules(visible=Mask(window, n_sinks), keep=KeepWindow(window, n_sinks))


UNMASKED = Rules(visible=Mask(causal=False))
"""Deliberately wrong: every query also sees the future."""


def wrong_chunk_mask(rules: Rules = RIGHT) -> Rules:
    """Deliberately wrong: a chunk's query rows are numbered from 0 in the mask; its tokens enter rightly."""
    return replace(rules, mask_position=from_zero)


def reset_position(rules: Rules) -> Rules:
    """Deliberately wrong: a call's tokens enter with positions counted from 0; the mask stays absolute."""
    return replace(rules, input_position=from_zero)
