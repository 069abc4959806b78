"""Keys that are turned again, not at all, by their slot, or with another base: and ALiBi over the wrong rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, change, single, stored, turn_keys
from kvcore.faults.needs import a_window, alibi, all_of, rotary, sinks
from kvcore.rotary import ROTARY_BASE, rotate
from kvcore.rules import Entries, distance
from kvcore.setting import Setting

NTK_THRESHOLD = 8
"""Tokens from which the length-dependent rotary base grows."""


def _turned_again(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    if len(entries):
        again = turn_keys(entries, entries.position)
        entries = stored(*again)
    return entries.append(key, value, position)


def _value_turned(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    return entries.append(key, rotate(value, position), position)


def _stored_unturned(setting: Setting) -> Pattern:
    """Keys are turned in the call that makes them, but stored as they were before."""

    def forgetful() -> dict[str, object]:
        start = [0]

        def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
            start[0] = int(position[0])
            return entries.append(key, value, position)

        def keep(entries: LayerCache) -> LayerCache:
            back = turn_keys(entries, np.where(entries.position >= start[0], -entries.position, 0))
            return stored(*back)

        return {"append": append, "keep": keep}

    return tuple(replace(rules, **forgetful()) for rules in setting.rules)


def _by_slot(entries: LayerCache) -> Entries:
    """Keys turned as if they stood at their slots; the newest stays where it is, so queries need no change."""
    slot = np.arange(len(entries))
    return turn_keys(entries, entries.position[-1] - slot[-1] + slot - entries.position)


def _sinks_at_slots(setting: Setting) -> Pattern:
    return tuple(replace(rules, read=_by_slot) for rules in replace(setting, storage="sliding", capacity=None).rules)


def _base_by_length(rows: Tensor, position: np.ndarray) -> Tensor:
    """The base grows with the length so far, as in dynamic NTK scaling."""
    head_dim, length = rows.shape[-1], int(position[-1]) + 1
    stretch = max(1.0, length / NTK_THRESHOLD) ** (head_dim / max(1, head_dim - 2))
    return rotate(rows, position, ROTARY_BASE * stretch)


def _first_rows(position: np.ndarray, key_position: np.ndarray) -> np.ndarray:
    """The bias of rows 0 to q − 1, in which keys ahead of the row have none."""
    return np.maximum(distance(position - position[0], key_position), 0)


def _none_for_one(position: np.ndarray, key_position: np.ndarray) -> np.ndarray:
    right = distance(position, key_position)
    return np.zeros_like(right) if single(position) else right


FAULTS = (
    Fault(
        "cached_keys_turned_again",
        "C10",
        "Every call turns all cached keys by their positions once more.",
        wrong="K ← R(p) K at every call",
        right="K ← R(p) K once",
        reported=("google-deepmind/gemma issue 368", "NeuraLegion/shainet PR 110"),
        hidden_by="one call; the second token",
        deviate=lambda setting: change(setting, append=_turned_again),
        needs=rotary,
    ),
    Fault(
        "keys_stored_before_turning",
        "C10",
        "Keys are turned for the call that makes them and stored unturned, so later calls find them at position 0.",
        wrong="store K",
        right="store R(p) K, or turn at every use",
        reported=("text-generation-inference PR 1105", "streaming-llm issue 73"),
        hidden_by="one call",
        deviate=_stored_unturned,
        needs=rotary,
    ),
    Fault(
        "values_turned_too",
        "C10",
        "Values are turned by their positions like keys.",
        wrong="V ← R(p) V",
        right="V as it is",
        reported=("llama.cpp PR 3272", "NeuraLegion/shainet PR 110"),
        hidden_by="position 0 alone",
        deviate=lambda setting: change(setting, append=_value_turned),
        needs=rotary,
    ),
    Fault(
        "sinks_at_slots",
        "C10",
        "Sinks and window are re-indexed to cache slots at every step, which no split of the tokens leaves alone.",
        wrong="keys at 0 … n − 1 of the cache",
        right="keys at their absolute positions",
        reported=("huggingface/transformers issue 35350", "pytorch/executorch PR 18821"),
        hidden_by="nothing evicted yet; no sinks",
        deviate=_sinks_at_slots,
        needs=all_of(rotary, sinks, a_window),
    ),
    Fault(
        "rotary_base_by_length",
        "C18",
        f"The rotary base grows once more than {NTK_THRESHOLD} tokens are there; cached keys keep their older base.",
        wrong="base(s + q)",
        right="one base a sequence",
        reported=("huggingface/transformers issue 25104", "huggingface/transformers PR 33129"),
        hidden_by=f"no more than {NTK_THRESHOLD} tokens; one call",
        deviate=lambda setting: change(setting, rotate=_base_by_length),
        needs=rotary,
        wrong_reference=True,
    ),
    Fault(
        "rotary_base_by_length_with_cache",
        "C18",
        f"Only the path with a cache lets the rotary base grow beyond {NTK_THRESHOLD} tokens.",
        wrong="base(s + q) with a cache",
        right="one base a sequence",
        reported=("microsoft/onnxruntime-genai PR 1161",),
        hidden_by=f"no more than {NTK_THRESHOLD} tokens",
        deviate=lambda setting: change(setting, rotate=_base_by_length),
        needs=rotary,
    ),
    Fault(
        "alibi_of_the_first_rows",
        "C18",
        "Cached calls take the first q rows of the bias instead of the last.",
        wrong="slope · max(i − j, 0) with i from 0",
        right="slope · (s + i − j)",
        reported=("TransformerLensOrg/TransformerLens issue 776",),
        hidden_by="one call",
        deviate=lambda setting: change(setting, distance=_first_rows),
        needs=alibi,
    ),
    Fault(
        "alibi_zero_for_single_tokens",
        "C18",
        "A bias built over one query is zero and is silently broadcast.",
        wrong="0 for a call of one token",
        right="slope · (s − j)",
        reported=("keras-team/keras-hub issue 2861",),
        hidden_by="calls of two tokens or more",
        deviate=lambda setting: change(setting, distance=_none_for_one),
        needs=alibi,
    ),
)
