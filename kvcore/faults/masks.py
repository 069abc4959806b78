"""Which keys a row of a cached call sees: the causal mask in the wrong corner, or not there."""

from __future__ import annotations

import numpy as np

from kvcore.faults.fault import Fault, Pattern, cached, change_masks, or_everything
from kvcore.faults.needs import two_layers
from kvcore.masks import Visible
from kvcore.setting import Setting


def _top_left(right: Visible, least_rows: int) -> Visible:
    def visible(query: np.ndarray, key: np.ndarray) -> np.ndarray:
        if not cached(query) or len(query) < least_rows:
            return right(query, key)
        return or_everything(right(query - query[0], np.arange(len(key))))

    return visible


def _own_chunk_only(right: Visible) -> Visible:
    return lambda query, key: right(query, key) & (key >= query[0])


def _dropped(right: Visible, from_position: int) -> Visible:
    def visible(query: np.ndarray, key: np.ndarray) -> np.ndarray:
        if query[0] < from_position or len(query) == 1:
            return right(query, key)
        return np.ones((len(query), len(key)), dtype=bool)

    return visible


def _in_the_last_layer(setting: Setting) -> Pattern:
    wrong = change_masks(setting, lambda mask: _top_left(mask, 1))
    return (*setting.rules[:-1], wrong[-1])


FAULTS = (
    Fault(
        "causal_mask_top_left",
        "C1",
        "A cached call's mask is a triangle in the top left corner: row i sees keys 0 to i, and the history is lost.",
        wrong="j ≤ i",
        right="j ≤ i + cached",
        reported=("pytorch/pytorch issue 103082", "pytorch/pytorch issue 144858", "flash-attention issue 282"),
        hidden_by="a single call with all tokens; the first call of any split",
        deviate=lambda setting: change_masks(setting, lambda mask: _top_left(mask, 1)),
        also=("C6",),
    ),
    Fault(
        "causal_mask_top_left_in_chunks",
        "C1",
        "Single tokens see everything cached, but a call of several tokens gets a triangle in the top left corner.",
        wrong="j ≤ i where the call has more than one token",
        right="j ≤ i + cached",
        reported=("lucidrains/x-transformers issue 187", "pytorch/executorch PR 21749"),
        hidden_by="prefill and then single tokens; one call",
        deviate=lambda setting: change_masks(setting, lambda mask: _top_left(mask, 2)),
        also=("C6",),
    ),
    Fault(
        "causal_mask_top_left_in_the_last_layer",
        "C1",
        "Only the last layer aligns the mask of a cached call to the top left corner.",
        wrong="j ≤ i in one layer",
        right="j ≤ i + cached in every layer",
        reported=("hyprstream PR 1521",),
        hidden_by="one call; edits whose influence comes through the other layers",
        deviate=_in_the_last_layer,
        needs=two_layers,
    ),
    Fault(
        "history_masked",
        "C1",
        "A cached call sees its own tokens only: the columns of the cached prefix are missing in its mask.",
        wrong="s ≤ j ≤ s + i",
        right="j ≤ s + i",
        reported=("huggingface/candle PR 3743", "hyprstream PR 1521"),
        hidden_by="a single call with all tokens",
        deviate=lambda setting: change_masks(setting, _own_chunk_only),
    ),
    Fault(
        "causal_mask_dropped_with_cache",
        "C15",
        "A call of several tokens behind a cache gets no mask, so its rows see later rows of the same call.",
        wrong="every key, when something is cached",
        right="j ≤ s + i",
        reported=("mlx-node PR 24", "tt-metal issue 48899"),
        hidden_by="single tokens, also behind a prefill",
        deviate=lambda setting: change_masks(setting, lambda mask: _dropped(mask, 1)),
    ),
    Fault(
        "causal_mask_dropped_in_every_call",
        "C15",
        "Whenever a cache object is there, even an empty one, a call of several tokens gets no mask.",
        wrong="every key, in prefill too",
        right="j ≤ s + i",
        reported=("Mikyx-1/TinyLLM issue 17",),
        hidden_by="single tokens",
        deviate=lambda setting: change_masks(setting, lambda mask: _dropped(mask, 0)),
    ),
)
