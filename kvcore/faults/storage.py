"""What is stored and read: slots that were never written, entries that are missing, there twice, or overwritten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, all_if_none, cached, change, remembering, single, stored
from kvcore.masks import Visible
from kvcore.rules import Entries
from kvcore.setting import Setting

BLOCK = 32
"""Slots are allocated in blocks of so many."""

UNWRITTEN = -1
"""The position under which a never written slot is shown to the mask."""


def _padded(entries: LayerCache) -> Entries:
    """The whole allocation, with zeros where nothing was written."""
    n_empty = -len(entries) % BLOCK
    wide = [torch.nn.functional.pad(tensor, (0, 0, 0, n_empty)) for tensor in (entries.key, entries.value)]
    return Entries(*wide, np.append(entries.position, np.full(n_empty, UNWRITTEN)))


def _whole_allocation(setting: Setting, only_decode: bool) -> Pattern:
    def with_unwritten(right: Visible) -> Visible:
        def visible(query: np.ndarray, key: np.ndarray) -> np.ndarray:
            unwritten = key == UNWRITTEN
            if only_decode and not single(query):
                return right(query, key) & ~unwritten
            return right(query, key) | unwritten

        return visible

    return tuple(replace(rules, read=_padded, visible=with_unwritten(rules.visible)) for rules in setting.rules)


def _committed_only(memory: list) -> dict[str, object]:
    """Cached calls read what was there before them."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        memory[:] = [entries] if cached(position) else []
        return entries.append(key, value, position)

    def read(entries: LayerCache) -> LayerCache:
        return memory[0] if memory else entries

    return {"append": append, "read": read}


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
    return stored(entries.key * written, entries.value * written, entries.position)


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


def _own_tokens_missing(setting: Setting) -> Pattern:
    return tuple(replace(rules, visible=all_if_none(rules.visible)) for rules in remembering(_committed_only, setting))


FAULTS = (
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
        deviate=_own_tokens_missing,
    ),
    Fault(
        "appended_twice",
        "C11",
        "Every call stores its entries twice.",
        wrong="append, append",
        right="append",
        reported=("mlx-swift-lm PR 457",),
        hidden_by="one call",
        deviate=lambda setting: remembering(_twice, setting),
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
)
