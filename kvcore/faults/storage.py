"""What is stored and read: slots that were never written, entries missing, twice, evicted too early, shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, cached, change, or_everything
from kvcore.faults.needs import a_window
from kvcore.masks import Visible
from kvcore.ring import KeepRing, into_ring
from kvcore.rules import Entries, Rules
from kvcore.setting import Setting

BLOCK = 32
"""Slots are allocated in blocks of so many."""

UNWRITTEN = -1
"""The position under which a never written slot is shown to the mask."""

Append = Callable[[LayerCache, Tensor, Tensor, np.ndarray], LayerCache]


def _stored(key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    return LayerCache().append(key, value, position)


def _padded(entries: LayerCache) -> Entries:
    """The whole allocation, with zeros where nothing was written."""
    n_empty = -len(entries) % BLOCK
    wide = [torch.nn.functional.pad(tensor, (0, 0, 0, n_empty)) for tensor in (entries.key, entries.value)]
    return Entries(*wide, np.append(entries.position, np.full(n_empty, UNWRITTEN)))


def _whole_allocation(setting: Setting, only_decode: bool) -> Pattern:
    def with_unwritten(right: Visible) -> Visible:
        def visible(query: np.ndarray, key: np.ndarray) -> np.ndarray:
            unwritten = key == UNWRITTEN
            if only_decode and not (cached(query) and len(query) == 1):
                return right(query, key) & ~unwritten
            return right(query, key) | unwritten

        return visible

    return tuple(replace(rules, read=_padded, visible=with_unwritten(rules.visible)) for rules in setting.rules)


def _remembering(make: Callable[[list], dict[str, object]], setting: Setting) -> Pattern:
    """The right rules with choices that share a memory, one a layer."""
    return tuple(replace(rules, **make([])) for rules in setting.rules)


def _committed_only(memory: list) -> dict[str, object]:
    """Cached calls read what was there before them."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        memory[:] = [entries] if cached(position) else []
        return entries.append(key, value, position)

    def read(entries: LayerCache) -> LayerCache:
        return memory[0] if memory else entries

    return {"append": append, "read": read, "visible": _causal_or_everything}


def _causal_or_everything(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    return or_everything(key <= query[:, None])


def _twice(memory: list) -> dict[str, object]:
    """A call attends over its entries once, and leaves them twice."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        memory[:] = [(key, value, position)]
        return entries.append(key, value, position)

    def keep(entries: LayerCache) -> LayerCache:
        return entries.append(*memory[0])

    return {"append": append, "keep": keep}


def _first_slot_empty(entries: LayerCache) -> LayerCache:
    written = torch.from_numpy(entries.position > 0).to(entries.key.dtype)[:, None]
    return _stored(entries.key * written, entries.value * written, entries.position)


def _hole(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    """The first cached call writes one slot late; the slot left out is read as zeros from then on."""
    if cached(position) and len(np.unique(entries.position)) == len(entries):
        empty = torch.zeros_like(key[:, :, :1])
        entries = entries.append(empty, empty, position[:1] - 1)
    return entries.append(key, value, position)


def _over_the_last(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    if len(entries):
        entries = entries.take(np.arange(len(entries) - 1))
    return entries.append(key, value, position)


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
            entries = _stored(key_left, value_left, left.position - left.position[-1] - 1)
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
                found = _stored(keys, values, found.position)
        return found.append(key, value, position)

    return {"append": append}


def _in_windows(setting: Setting, choices: Callable[[Rules], dict[str, object]]) -> Pattern:
    return tuple(
        replace(rules, **choices(rules)) if rules.visible.window is not None else rules for rules in setting.rules
    )


def _all_if_none(right: Visible) -> Visible:
    return lambda query, key: or_everything(right(query, key))


def _evict_first(rules: Rules) -> dict[str, object]:
    mask = rules.visible

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        return entries.append(key, value, position).keep_last(mask.window, mask.n_sinks)

    return {"append": append, "visible": _all_if_none(mask)}


def _ring_without_room(n_slots: Callable[[int], int]) -> Callable[[Rules], dict[str, object]]:
    """A ring of n_slots(window) slots that is written before it is read, whatever the call's length."""

    def choices(rules: Rules) -> dict[str, object]:
        def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
            return into_ring(entries.append(key, value, position), n_slots(rules.visible.window))

        return {"append": append, "visible": _all_if_none(rules.visible)}

    return choices


def _in_time_order(entries: LayerCache) -> Entries:
    """Slots taken for positions: the last slot for the newest."""
    newest = int(entries.position.max())
    return Entries(entries.key, entries.value, np.arange(newest - len(entries) + 1, newest + 1))


def _slots_as_time(rules: Rules) -> dict[str, object]:
    return {
        "keep": KeepRing(max(1, rules.visible.window - 1)),
        "read": _in_time_order,
        "visible": _all_if_none(rules.visible),
    }


def _wide_ring_as_time(rules: Rules) -> dict[str, object]:
    """As above for a ring of 2 W slots that is written before it is read."""
    written = _ring_without_room(lambda window: 2 * window)(rules)
    return written | {"read": _in_time_order}


def _rolls_early(rules: Rules) -> dict[str, object]:
    window = rules.visible.window

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        if len(position) == 1 and len(entries) >= window - 1:
            entries = entries.take(np.arange(max(0, len(entries) - window + 2), len(entries)))
        return entries.append(key, value, position)

    return {"append": append}


def _trimmed_by_slot(rules: Rules) -> dict[str, object]:
    """Single tokens are written round the ring; after a chunk the first slots go, which are not the oldest then."""
    window, n_new = rules.visible.window, [0]

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        n_new[0] = len(position)
        return entries.append(key, value, position)

    def keep(entries: LayerCache) -> LayerCache:
        return into_ring(entries, window) if n_new[0] == 1 else entries.keep_last(window)

    return {"append": append, "keep": keep, "visible": _all_if_none(rules.visible)}


FAULTS = (
    Fault(
        "evict_before_attend",
        "C9",
        "A call appends its tokens, trims to the window, and only then attends: early rows have lost their keys.",
        wrong="append, evict, attend",
        right="append, attend, evict",
        reported=("mlxcel PR 412", "foundation-model-stack PR 459"),
        hidden_by="single tokens",
        deviate=lambda setting: _in_windows(setting, _evict_first),
        needs=a_window,
    ),
    Fault(
        "ring_overwritten_by_a_chunk",
        "C9",
        "A ring of W + 1 slots is written before it is read: calls of three tokens or more overwrite what they need.",
        wrong="C = W + 1",
        right="C ≥ W − 1 + q",
        reported=("pytorch/executorch PR 22358",),
        hidden_by="calls of one or two tokens",
        deviate=lambda setting: _in_windows(setting, _ring_without_room(lambda window: window + 1)),
        needs=a_window,
    ),
    Fault(
        "ring_of_two_windows_overwritten",
        "C9",
        "A ring of 2 W slots is written before it is read: calls of more than W + 1 tokens overwrite what they need.",
        wrong="C = 2 W",
        right="C ≥ W − 1 + q",
        reported=("pytorch/executorch PR 22358",),
        hidden_by="calls of no more than W + 1 tokens",
        deviate=lambda setting: _in_windows(setting, _ring_without_room(lambda window: 2 * window)),
        needs=a_window,
    ),
    Fault(
        "unwritten_slots_attended",
        "C11",
        f"The mask covers the whole allocation of {BLOCK} slots: unwritten zeros take part of the attention.",
        wrong="every allocated slot",
        right="j ≤ p",
        reported=("huggingface/transformers issue 30400",),
        hidden_by="a full buffer",
        deviate=lambda setting: _whole_allocation(setting, only_decode=False),
    ),
    Fault(
        "unwritten_slots_attended_in_decode",
        "C11",
        "Prefill is masked rightly, a single token attends over the whole allocation.",
        wrong="every allocated slot for a single token",
        right="j ≤ p",
        reported=("huggingface/transformers PR 30414", "ml-explore/mlx-lm PR 1673"),
        hidden_by="calls of two tokens or more",
        deviate=lambda setting: _whole_allocation(setting, only_decode=True),
    ),
    Fault(
        "own_tokens_missing",
        "C11",
        "A cached call reads only what was stored before it: its tokens do not see themselves.",
        wrong="keys 0 … s − 1",
        right="keys 0 … s + i",
        reported=("harvard-edge/cs249r_book PR 1953",),
        hidden_by="one call",
        deviate=lambda setting: _remembering(_committed_only, setting),
    ),
    Fault(
        "appended_twice",
        "C11",
        "Every call stores its entries twice.",
        wrong="append, append",
        right="append",
        reported=("mlx-swift-lm PR 457",),
        hidden_by="one call",
        deviate=lambda setting: _remembering(_twice, setting),
    ),
    Fault(
        "first_slot_never_written",
        "C11",
        "The first token's key and value stay zero.",
        wrong="slot 0 empty",
        right="slot 0 holds position 0",
        reported=("TrenTorch PR 192",),
        hidden_by="one call",
        deviate=lambda setting: change(setting, keep=_first_slot_empty),
    ),
    Fault(
        "hole_behind_the_prompt",
        "C11",
        "The first cached call writes one slot too far: a slot of zeros is attended from then on.",
        wrong="write at s + 1",
        right="write at s",
        reported=("microsoft/onnxruntime-genai PR 2354",),
        hidden_by="one call",
        deviate=lambda setting: change(setting, append=_hole),
    ),
    Fault(
        "last_slot_overwritten",
        "C11",
        "A cached call writes over the last stored entry.",
        wrong="write at s − 1",
        right="write at s",
        reported=("pytorch/executorch PR 2689", "microsoft/onnxruntime-genai PR 2354"),
        hidden_by="one call",
        deviate=lambda setting: change(setting, append=_over_the_last),
    ),
    Fault(
        "slots_taken_for_time",
        "C12",
        "The mask numbers the slots of a ring as if they lay in the order of time.",
        wrong="position = slot + offset",
        right="the stored position",
        reported=("ml-explore/mlx-examples issue 1000", "ollama PR 14912"),
        hidden_by="single tokens; no more than W tokens",
        deviate=lambda setting: _in_windows(setting, _slots_as_time),
        needs=a_window,
    ),
    Fault(
        "slots_of_a_wide_ring_taken_for_time",
        "C12",
        "The mask numbers the 2 W slots of a ring as if they lay in the order of time.",
        wrong="position = slot + offset",
        right="the stored position",
        reported=("ollama PR 14912", "mlx-swift-lm PR 210"),
        hidden_by="no more than 2 W tokens",
        deviate=lambda setting: _in_windows(setting, _wide_ring_as_time),
        needs=a_window,
    ),
    Fault(
        "ring_rolls_one_early",
        "C12",
        "Single tokens drop an entry when the ring is one short of full.",
        wrong="roll when p ≥ W − 1",
        right="roll when p ≥ W",
        reported=("mistral.rs issue 246", "ml-explore/mlx-examples PR 1093"),
        hidden_by="calls of two tokens or more; fewer than W tokens",
        deviate=lambda setting: _in_windows(setting, _rolls_early),
        needs=a_window,
        also=("C5",),
    ),
    Fault(
        "ring_trimmed_by_slot",
        "C12",
        "After a chunk the first slots of a ring are dropped, which are not the oldest once it has wrapped.",
        wrong="drop slots 0, 1, …",
        right="drop the oldest positions",
        reported=("ml-explore/mlx-examples PR 1015",),
        hidden_by="single tokens; chunks alone",
        deviate=lambda setting: _in_windows(setting, _trimmed_by_slot),
        needs=a_window,
    ),
    Fault(
        "cache_never_grows",
        "C17",
        "The update of a cached call is lost: the next call finds the cache as it was after the first.",
        wrong="return the old cache",
        right="return the cache with the new entries",
        reported=("huggingface/transformers PR 30108",),
        hidden_by="one call, or two",
        deviate=lambda setting: _remembering(_never_grows, setting),
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
        deviate=lambda setting: _remembering(_views_of_one_scratch, setting),
    ),
    Fault(
        "branches_share_a_buffer",
        "C17",
        "Two continuations of one prefix write to the same slots.",
        wrong="one buffer for all",
        right="copy, or copy on write",
        reported=("huggingface/transformers issue 37078", "mlx-lm issue 1776"),
        hidden_by="one sequence at a time",
        deviate=lambda setting: _remembering(_one_buffer, setting),
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
        deviate=lambda setting: _remembering(_not_reset, setting),
        across_sequences=True,
    ),
)
