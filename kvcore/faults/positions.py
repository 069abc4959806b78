"""The position that a new token gets: counted from the wrong place, or read from the wrong length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, cached, place, turn_keys
from kvcore.faults.needs import a_window, all_of, entering, rotary, two_layers
from kvcore.rules import Entries, from_zero
from kvcore.setting import Setting


def _from_zero_alone(position: np.ndarray) -> np.ndarray:
    return from_zero(position) if len(position) == 1 else position


def _one_ahead(position: np.ndarray) -> np.ndarray:
    return position + 1 if cached(position) else position


def _prompt_counted_twice() -> Callable[[np.ndarray], np.ndarray]:
    prompt = [0]

    def count(position: np.ndarray) -> np.ndarray:
        if not cached(position):
            prompt[0] = len(position)
            return position
        return position + prompt[0]

    return count


def _remembered_by_length() -> Callable[[np.ndarray], np.ndarray]:
    """Positions that a call of this length had the first time in this sequence."""
    first: dict[int, np.ndarray] = {}

    def look_up(position: np.ndarray) -> np.ndarray:
        if not cached(position):
            first.clear()
        return first.setdefault(len(position), position)

    return look_up


def _calls_counted() -> Callable[[np.ndarray], np.ndarray]:
    """The prompt's length plus one for every call since."""
    count = [0]

    def next_position(position: np.ndarray) -> np.ndarray:
        if not cached(position):
            count[0] = len(position)
            return position
        count[0] += 1
        return from_zero(position) + count[0]

    return next_position


def _counted_by_every_layer(setting: Setting) -> Pattern:
    """One counter, which every layer advances by the call's tokens."""
    count = [0]

    def in_layer(layer: int) -> dict[str, object]:
        def position_here(position: np.ndarray) -> np.ndarray:
            if layer == 0 and not cached(position):
                count[0] = 0
            count[0] += len(position)
            return from_zero(position) + count[0] - len(position)

        return {"rotary_position": position_here}

    if setting.decoder.positions != "rotary":
        n_layers = setting.decoder.n_layers
        return place(setting, lambda position: position + int(position[0]) * (n_layers - 1))
    return tuple(replace(rules, **in_layer(layer)) for layer, rules in enumerate(setting.rules))


def _from_kept_count(setting: Setting) -> Pattern:
    """The next position is the number of entries that the first layer with a window keeps."""
    kept = setting.n_sinks + next(window for window in setting.windows if window is not None)
    return place(setting, lambda position: position - max(0, int(position[0]) - kept))


def _after_the_first_layer(setting: Setting) -> Pattern:
    """Later layers count a call's tokens as cached before they number them."""

    def late(position: np.ndarray) -> np.ndarray:
        return position + len(position)

    choice = "rotary_position" if setting.decoder.positions == "rotary" else "mask_position"
    first, *later = setting.rules
    return (first, *(replace(rules, **{choice: late}) for rules in later))


def _query_only(setting: Setting) -> Pattern:
    """To the queries of later layers all keys lie further back by the length of the call."""

    def shifted() -> dict[str, object]:
        n_new = [0]

        def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
            n_new[0] = len(position)
            return entries.append(key, value, position)

        def read(entries: LayerCache) -> Entries:
            return turn_keys(entries, np.full(len(entries), -n_new[0]))

        return {"append": append, "read": read}

    first, *later = setting.rules
    return (first, *(replace(rules, **shifted()) for rules in later))


def _written_after_the_first_layer(setting: Setting) -> Pattern:
    """Layers after the first write as many slots too far as the call has tokens, and read the slots between."""

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        empty = torch.zeros_like(key)
        before = np.minimum(position, position[0])  # seen by every row of this call and of later ones
        return entries.append(empty, empty, before).append(key, value, position)

    first, *later = setting.rules
    return (first, *(replace(rules, append=append) for rules in later))


FAULTS = (
    Fault(
        "positions_restart",
        "C4",
        "Every call counts its tokens from 0.",
        wrong="0 … q − 1",
        right="s … s + q − 1",
        reported=("Blaizzy/mlx-vlm issue 1983", "pytorch/executorch PR 2010"),
        hidden_by="one call; the first call of any split",
        deviate=lambda setting: place(setting, from_zero),
        needs=entering,
    ),
    Fault(
        "positions_restart_for_single_tokens",
        "C4",
        "A single token always enters at position 0.",
        wrong="0 for a call of one token",
        right="s",
        reported=("ml-explore/mlx-lm PR 93", "Blaizzy/mlx-vlm issue 1983"),
        hidden_by="calls of two tokens or more",
        deviate=lambda setting: place(setting, _from_zero_alone),
        needs=entering,
    ),
    Fault(
        "positions_one_ahead",
        "C4",
        "Cached calls enter one position too far: the length already counts the token about to run.",
        wrong="s + 1 … s + q",
        right="s … s + q − 1",
        reported=("microsoft/onnxruntime-genai PR 2354",),
        hidden_by="one call",
        deviate=lambda setting: place(setting, _one_ahead),
        needs=entering,
    ),
    Fault(
        "prompt_length_added_twice",
        "C4",
        "The length of the first call is added again to the positions of every later one.",
        wrong="s + prompt …",
        right="s …",
        reported=("skyzh/tiny-llm PR 46",),
        hidden_by="one call",
        deviate=lambda setting: place(setting, _prompt_counted_twice()),
        needs=entering,
    ),
    Fault(
        "positions_remembered_by_length",
        "C4",
        "Position terms are remembered by the length of the call only, without its offset.",
        wrong="memo[q]",
        right="memo[q, s]",
        reported=("lucidrains/rotary-embedding-torch issue 11",),
        hidden_by="calls of all different lengths",
        deviate=lambda setting: place(setting, _remembered_by_length()),
        needs=entering,
    ),
    Fault(
        "calls_counted_as_positions",
        "C4",
        "The position goes up by one a call, however many tokens the call had.",
        wrong="prompt + calls",
        right="tokens processed",
        reported=("lucidrains/dreamer4 PR 24", "VeloxQuant-MLX PR 195"),
        hidden_by="single tokens behind a prefill",
        deviate=lambda setting: place(setting, _calls_counted()),
        needs=entering,
    ),
    Fault(
        "counter_moved_by_every_layer",
        "C13",
        "All layers move one shared counter of positions.",
        wrong="s + layer · q, and s · n_layers at the next call",
        right="s, read once before the layers",
        reported=("fla-org/flash-linear-attention issue 477",),
        hidden_by="one layer",
        deviate=_counted_by_every_layer,
        needs=all_of(two_layers, entering),
        also=("C4",),
    ),
    Fault(
        "position_from_kept_count",
        "C10",
        "After eviction the next position is the number of entries kept, not of tokens processed.",
        wrong="len(cache)",
        right="tokens processed",
        reported=("VeloxQuant-MLX issue 137", "huggingface/transformers PR 38156"),
        hidden_by="nothing evicted yet",
        deviate=_from_kept_count,
        needs=all_of(a_window, entering),
        also=("C13", "C4"),
    ),
    Fault(
        "length_read_after_the_first_layer",
        "C13",
        "Layers after the first ask how long the cache is when the first has already appended.",
        wrong="s + q from layer 1 on",
        right="s, read once before the layers",
        reported=("fla-org/flash-linear-attention issue 747", "ml-explore/mlx-lm PR 1396"),
        hidden_by="one layer; calls of equal length, under rotary positions",
        deviate=_after_the_first_layer,
        needs=two_layers,
    ),
    Fault(
        "written_behind_the_first_layers_length",
        "C13",
        "The first layer moves a shared length; later layers write behind it, and the slots between are read as zeros.",
        wrong="write at s + q from layer 1 on",
        right="write at s",
        reported=("fla-org/flash-linear-attention issue 477",),
        hidden_by="one layer",
        deviate=_written_after_the_first_layer,
        needs=two_layers,
        also=("C11",),
    ),
    Fault(
        "query_length_read_after_the_first_layer",
        "C13",
        "Layers after the first turn their queries by a length that already counts this call; keys are right.",
        wrong="queries at s + q … from layer 1 on",
        right="queries at s …",
        reported=("ml-explore/mlx-lm issue 1384",),
        hidden_by="one layer",
        deviate=_query_only,
        needs=all_of(two_layers, rotary),
    ),
)
