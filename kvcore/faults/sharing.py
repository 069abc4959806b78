"""What calls, branches and sequences share and should not, and an update that is lost."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, cached, remembering, stored


def _never_grows(memory: list) -> dict[str, object]:
    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        memory[:] = [entries] if cached(position) else []
        return entries.append(key, value, position)

    def keep(entries: LayerCache) -> LayerCache:
        return memory[0] if memory else entries

    return {"append": append, "keep": keep}


def _one_buffer(memory: list) -> dict[str, object]:
    """Every sequence and branch writes to the same slots."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        if cached(position) and memory and len(memory[0].key) == len(key):
            entries = memory[0].take(np.arange(min(len(entries), len(memory[0]))))
        memory[:] = [entries.append(key, value, position)]
        return memory[0]

    return {"append": append}


def _not_reset(memory: list) -> dict[str, object]:
    """A new sequence finds the entries of the one before it."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        if not cached(position) and memory:
            (left,) = memory  # of a batch only the first sequence, for the next batch may be of another size
            key_left, value_left = (old[:1].expand(len(key), -1, -1, -1) for old in (left.key, left.value))
            entries = stored(key_left, value_left, left.position - left.position[-1] - 1)
        memory[:] = [entries.append(key, value, position)]
        return memory[0]

    return {"append": append}


def _views_of_one_scratch(memory: list) -> dict[str, object]:
    """Stored chunks are views of an array that the next call of as many tokens fills anew."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        if not cached(position):
            memory.clear()
        memory.append(position)
        found = entries
        for old in memory[:-1]:
            if len(old) == len(position):
                at = np.searchsorted(found.position, old)
                keys, values = found.key.clone(), found.value.clone()
                keys[:, :, at], values[:, :, at] = key, value
                found = stored(keys, values, found.position)
        return found.append(key, value, position)

    return {"append": append}


FAULTS = (
    Fault(
        "cache_never_grows",
        "C17",
        "The update of a cached call is lost: the next call finds the cache as it was after the first.",
        wrong="return the old cache",
        right="return the cache with the new entries",
        reported=("huggingface/transformers PR 30108",),
        hidden_by="one call, or two",
        deviate=lambda setting: remembering(_never_grows, setting),
        also=("C11",),
    ),
    Fault(
        "chunks_share_a_scratch",
        "C17",
        "Stored entries are views of a working array, which the next call of as many tokens overwrites.",
        wrong="store a view",
        right="store a copy",
        reported=("mlx-lm issue 1384", "MemOS issue 2301"),
        hidden_by="calls of all different lengths",
        deviate=lambda setting: remembering(_views_of_one_scratch, setting),
    ),
    Fault(
        "branches_share_a_buffer",
        "C17",
        "Two continuations of one prefix write to the same slots.",
        wrong="one buffer for all",
        right="copy, or copy on write",
        reported=("huggingface/transformers issue 37078", "mlx-lm issue 1776"),
        hidden_by="one sequence at a time",
        deviate=lambda setting: remembering(_one_buffer, setting),
        across_sequences=True,
        shown_by="copy",
    ),
    Fault(
        "cache_not_reset",
        "C17",
        "A new sequence starts with the entries that the one before it left.",
        wrong="keep what is there",
        right="start empty",
        reported=("huggingface/candle PR 2937", "awslabs/keys_values issue 45"),
        hidden_by="the first sequence",
        deviate=lambda setting: remembering(_not_reset, setting),
        across_sequences=True,
    ),
)
