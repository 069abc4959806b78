"""The choices a right decoding step makes, each in one place, so that a mistake is one changed choice.

A right step lets every token enter at its absolute position, uses the same position for its mask
row, and evicts after it has attended. Deliberately wrong steps replace one of these and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kvcore.cache import LayerCache
from kvcore.masks import Mask, Visible


def absolute(cache_position: np.ndarray) -> np.ndarray:
    """Right: a call's tokens stand where they stand in the whole sequence."""
    return cache_position


def from_zero(cache_position: np.ndarray) -> np.ndarray:
    """Wrong after the first call: every call counts its own tokens from 0."""
    return cache_position - cache_position[0]


def keep_all(entries: LayerCache) -> LayerCache:
    return entries


@dataclass(frozen=True)
class KeepWindow:
    """Keep the last `window` entries and the first `n_sinks`, which are the sinks."""

    window: int
    n_sinks: int = 0

    def __call__(self, entries: LayerCache) -> LayerCache:
        return entries.keep_last(self.window, self.n_sinks)


@dataclass(frozen=True)
class Rules:
    """How one call decides what its tokens are, see and leave behind."""

    visible: Visible = Mask()
    keep: Callable[[LayerCache], LayerCache] = keep_all
    input_position: Callable[[np.ndarray], np.ndarray] = absolute
    mask_position: Callable[[np.ndarray], np.ndarray] = absolute


RIGHT = Rules()


def windowed(window: int, n_sinks: int = 0) -> Rules:
    """The window mask in every layer; everything is kept."""
    return Rules(visible=Mask(window, n_sinks))


def sliding(window: int, n_sinks: int = 0) -> Rules:
    """The window mask in every layer; only what a later query may still see is kept."""
    return Rules(visible=Mask(window, n_sinks), keep=KeepWindow(window, n_sinks))


UNMASKED = Rules(visible=Mask(causal=False))
"""Deliberately wrong: every query also sees the future."""


def wrong_chunk_mask(rules: Rules = RIGHT) -> Rules:
    """Deliberately wrong: a chunk's query rows are numbered from 0 in the mask; its tokens enter rightly."""
    return replace(rules, mask_position=from_zero)


def reset_position(rules: Rules) -> Rules:
    """Deliberately wrong: a call's tokens enter with positions counted from 0; the mask stays absolute."""
    return replace(rules, input_position=from_zero)
