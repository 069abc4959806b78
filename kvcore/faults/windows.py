"""The sliding window: its width, and the calls and rows in which it is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kvcore.faults.fault import Fault, Pattern, cached, or_everything, single, when
from kvcore.faults.needs import a_window
from kvcore.masks import Mask, Visible
from kvcore.rules import KeepWindow
from kvcore.setting import Setting


def _in_windows(setting: Setting, wrong: Callable[[Mask], Visible]) -> Pattern:
    """The mask of every layer that has a window replaced."""
    return tuple(
        replace(rules, visible=wrong(rules.visible)) if rules.visible.window is not None else rules
        for rules in setting.rules
    )


def _wider(mask: Mask, by: int) -> Mask:
    return replace(mask, window=max(1, mask.window + by))


def _last_rows_window(mask: Mask) -> Visible:
    def visible(query: np.ndarray, key: np.ndarray) -> np.ndarray:
        return or_everything(Mask()(query, key) & mask(query[-1:], key))

    return visible


def _of_chunk_length(mask: Mask) -> Visible:
    return lambda query, key: replace(mask, window=min(mask.window, len(query)))(query, key)


def _only_stored(setting: Setting, n_past: Callable[[int], int], unmasked: bool) -> Pattern:
    """Layers with a window keep n_past(W) entries; with `unmasked` their mask is causal only."""
    changed = []
    for rules in setting.rules:
        mask = rules.visible
        if mask.window is not None:
            keep = KeepWindow(max(0, n_past(mask.window)), mask.n_sinks)
            rules = replace(rules, keep=keep, visible=Mask() if unmasked else mask)
        changed.append(rules)
    return tuple(changed)


FAULTS = (
    Fault(
        "window_one_too_wide",
        "C5",
        "Every cached call sees one key more than the window has.",
        wrong="i − j ≤ W",
        right="i − j < W",
        reported=("huggingface/transformers PR 26792", "huggingface/transformers issue 39408"),
        hidden_by="no more than W tokens; comparing two cached splits with each other",
        deviate=lambda setting: _in_windows(setting, lambda mask: _wider(mask, 1)),
        needs=a_window,
    ),
    Fault(
        "window_one_too_narrow",
        "C5",
        "Every cached call sees one key fewer than the window has.",
        wrong="i − j < W − 1",
        right="i − j < W",
        reported=("NVIDIA-NeMo/Megatron-Bridge PR 2656", "ml-explore/mlx-examples PR 1093"),
        hidden_by="fewer than W tokens; comparing two cached splits with each other",
        deviate=lambda setting: _in_windows(setting, lambda mask: _wider(mask, -1)),
        needs=a_window,
    ),
    Fault(
        "window_one_too_wide_in_decode",
        "C5",
        "Prefill uses the window W, single cached tokens W + 1.",
        wrong="i − j ≤ W for a single token",
        right="i − j < W",
        reported=("ml-explore/mlx-lm PR 390",),
        hidden_by="chunks of two tokens or more; no more than W tokens",
        deviate=lambda setting: _in_windows(setting, lambda mask: when(single, _wider(mask, 1), mask)),
        needs=a_window,
    ),
    Fault(
        "window_stored_too_short",
        "C5",
        "After a call only the last W − 2 entries are kept, one fewer than the next token's window reaches back.",
        wrong="keep W − 2 past entries",
        right="keep W − 1 past entries or more",
        reported=("ml-explore/mlx-examples PR 1093", "pytorch/executorch PR 2689"),
        hidden_by="one call",
        deviate=lambda setting: _only_stored(setting, lambda window: window - 2, unmasked=False),
        needs=a_window,
        also=("C12",),
    ),
    Fault(
        "window_as_long_as_the_call",
        "C5",
        "The window is taken from the call's own length: a single token sees only itself.",
        wrong="i − j < min(W, q)",
        right="i − j < W",
        reported=("keras-team/keras-hub PR 1738",),
        hidden_by="calls of W tokens or more",
        deviate=lambda setting: _in_windows(setting, _of_chunk_length),
        needs=a_window,
    ),
    Fault(
        "window_missing_in_decode",
        "C6",
        "A single cached token gets no mask at all, so it sees everything that is stored.",
        wrong="no mask for a single token",
        right="i − j < W in every call",
        reported=("karpathy/nanochat issue 452", "vllm-project/vllm issue 23969"),
        hidden_by="no more than W tokens; calls of several tokens",
        deviate=lambda setting: _in_windows(setting, lambda mask: when(single, Mask(), mask)),
        needs=a_window,
    ),
    Fault(
        "window_missing_with_cache",
        "C6",
        "Prefill has the window, every cached call is plainly causal.",
        wrong="j ≤ s + i in cached calls",
        right="s + i − W < j ≤ s + i",
        reported=("vllm-project/vllm PR 4405", "sgl-project/sglang PR 30050"),
        hidden_by="no more than W tokens; one call",
        deviate=lambda setting: _in_windows(setting, lambda mask: when(cached, Mask(), mask)),
        needs=a_window,
    ),
    Fault(
        "window_only_in_storage",
        "C6",
        "The cache keeps W − 1 past entries and the mask is only causal: right for single tokens, too wide in chunks.",
        wrong="j ≤ s + i over what is stored",
        right="s + i − W < j ≤ s + i",
        reported=("pytorch/executorch PR 22285",),
        hidden_by="single tokens",
        deviate=lambda setting: _only_stored(setting, lambda window: window - 1, unmasked=True),
        needs=a_window,
    ),
    Fault(
        "window_of_the_last_row",
        "C6",
        "All rows of a call share the window of its last row, so early rows lose keys.",
        wrong="e − W < j ≤ s + i, where e is the call's last position",
        right="s + i − W < j ≤ s + i",
        reported=("pytorch/executorch PR 22285",),
        hidden_by="single tokens; no more than W tokens",
        deviate=lambda setting: _in_windows(setting, _last_rows_window),
        needs=a_window,
        also=("C9",),
    ),
)
