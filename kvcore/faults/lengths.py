"""How long the cache is: read at the wrong time, from the wrong layer, or after eviction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, cached, place, turn_keys
from kvcore.faults.needs import a_window, all_of, entering, rotary, two_layers
from kvcore.rules import Entries, from_zero
from kvcore.setting import Setting


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
