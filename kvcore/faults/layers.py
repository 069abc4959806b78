"""The right numbers under the wrong index: layer, KV head, tensor, layer pattern."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, cached, change, when
from kvcore.faults.needs import a_window, shared_heads, two_layers, two_windows
from kvcore.masks import Mask
from kvcore.setting import Setting


def _one_store(setting: Setting) -> Pattern:
    """Every layer appends to and reads from the same list."""
    last: list[LayerCache] = []

    def append_in(layer: int):
        def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
            if last and (layer or cached(position)):
                (entries,) = last
            last[:] = [entries.append(key, value, position)]
            return last[0]

        return append

    return tuple(replace(rules, append=append_in(layer)) for layer, rules in enumerate(setting.rules))


def _first_layers_history(setting: Setting) -> Pattern:
    """Every layer reads the past entries of layer 0 behind its own new ones."""
    first: list[LayerCache] = []

    def append_in(layer: int):
        def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
            if layer == 0:
                first[:] = [entries]
            return first[0].append(key, value, position)

        return append

    return tuple(replace(rules, append=append_in(layer)) for layer, rules in enumerate(setting.rules))


def _tiled(position: np.ndarray, n_heads: int, n_kv_heads: int) -> np.ndarray:
    """The order of the heads in which those that read one KV head as h mod n_kv_heads lie together."""
    heads = np.arange(n_heads)
    return np.lexsort((heads, heads % n_kv_heads))


def _tiled_when_cached(position: np.ndarray, n_heads: int, n_kv_heads: int) -> np.ndarray | None:
    return _tiled(position, n_heads, n_kv_heads) if cached(position) else None


def _key_as_value(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    return entries.append(key, key if cached(position) else value, position)


def _shifted(setting: Setting, only_cached: bool) -> Pattern:
    """Each layer uses the mask of the next one in the pattern."""
    masks = [rules.visible for rules in setting.rules]
    other = masks[1:] + masks[:1]
    return tuple(
        replace(rules, visible=when(cached, wrong, rules.visible) if only_cached else wrong)
        for rules, wrong in zip(setting.rules, other, strict=True)
    )


def _windows_everywhere(setting: Setting) -> Pattern:
    narrow = next(window for window in setting.windows if window is not None)
    return change(setting, visible=Mask(narrow, setting.n_sinks))


FAULTS = (
    Fault(
        "one_store_for_all_layers",
        "C3",
        "All layers append to one list, so a layer attends over the entries of the others too.",
        wrong="cache[0]",
        right="cache[layer]",
        reported=("mistral.rs PR 300", "vllm-ascend PR 15507"),
        hidden_by="one layer",
        deviate=_one_store,
        needs=two_layers,
    ),
    Fault(
        "history_of_the_first_layer",
        "C3",
        "Every layer reads the past of the first layer and its own new entries.",
        wrong="past[0]",
        right="past[layer]",
        reported=("mistral.rs PR 300", "vllm-ascend PR 10202"),
        hidden_by="one layer; one call",
        deviate=_first_layers_history,
        needs=two_layers,
    ),
    Fault(
        "kv_heads_tiled_with_cache",
        "C3",
        "In cached calls the KV heads are tiled and not repeated: query head h reads KV head h mod n_kv_heads.",
        wrong="h mod n_kv_heads",
        right="h // (n_heads / n_kv_heads)",
        reported=("candle-vllm PR 52", "apple/axlearn PR 842"),
        hidden_by="one KV head, or as many as heads; one call",
        deviate=lambda setting: change(setting, head_order=_tiled_when_cached),
        needs=shared_heads,
    ),
    Fault(
        "kv_heads_tiled",
        "C3",
        "The path with a cache tiles the KV heads in every call, prefill included.",
        wrong="h mod n_kv_heads",
        right="h // (n_heads / n_kv_heads)",
        reported=("onnx/onnx PR 7274", "ekzhang/jax-js PR 180"),
        hidden_by="one KV head, or as many as heads; comparing two cached splits with each other",
        deviate=lambda setting: change(setting, head_order=_tiled),
        needs=shared_heads,
    ),
    Fault(
        "values_from_keys",
        "C3",
        "Cached calls store the key where the value belongs.",
        wrong="value ← key",
        right="value ← x W_V",
        reported=("huggingface/transformers issue 34232", "vllm-ascend PR 11021"),
        hidden_by="one call",
        deviate=lambda setting: change(setting, append=_key_as_value),
    ),
    Fault(
        "layer_pattern_shifted",
        "C3",
        "The pattern of windows over the layers is off by one layer wherever a cache is used.",
        wrong="windows[layer + 1]",
        right="windows[layer]",
        reported=("huggingface/transformers PR 31775", "Megatron-Bridge PR 4875"),
        hidden_by="no more than W tokens; comparing two cached splits with each other",
        deviate=lambda setting: _shifted(setting, only_cached=False),
        needs=two_windows,
    ),
    Fault(
        "layer_pattern_shifted_with_cache",
        "C3",
        "Prefill has the right pattern of windows, cached calls are off by one layer.",
        wrong="windows[layer + 1] in cached calls",
        right="windows[layer]",
        reported=("huggingface/transformers PR 31775",),
        hidden_by="no more than W tokens; one call",
        deviate=lambda setting: _shifted(setting, only_cached=True),
        needs=two_windows,
    ),
    Fault(
        "window_in_every_layer",
        "C3",
        "The pattern is lost: layers that should see everything get the window too.",
        wrong="the window W in all layers",
        right="windows[layer]",
        reported=("vllm-project/vllm PR 21863", "vllm-project/vllm PR 21927"),
        hidden_by="no more than W tokens",
        deviate=_windows_everywhere,
        needs=lambda setting: a_window(setting) or two_windows(setting),
    ),
)
