"""Which layers of a published model a small one keeps: one period of their pattern, every kind at least once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvcore.integrations.shrink import whole

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

MIN_LAYERS = 3
MAX_LAYERS = 6

_LISTS = ("layer_types", "layers_block_type", "no_rope_layers", "mlp_layer_types", "attention_layers")
_INDEX_LISTS = ("mlp_only_layers", "full_attn_idxs", "attn_layer_indices")
_OTHERS = {"moe_layers": None, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0}
"""Where a file has these. Without a list of its own Llama 4 places experts by their step."""


def chosen_layers(raw: dict, text: PreTrainedConfig) -> dict:
    """The number of layers and every value that speaks of single layers, for the layers that are kept."""
    count_name = text.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    n_layers = whole({count_name: getattr(text, "num_hidden_layers", None)}, count_name)
    lists = {name: getattr(text, name) for name in _LISTS if _speaks_of_layers(text, name, n_layers)}
    periods = _short_periods(raw)
    if periods or raw.get("block_types"):
        period = periods.get("attn_layer_period") or len(raw["block_types"])
        kept, lists = list(range(min(n_layers, max(MIN_LAYERS, period)))), {}
    else:
        kept = kept_layers(list(zip(*lists.values(), strict=True)) or [()] * n_layers)
    new = {count_name: len(kept)} | periods
    new |= {name: [values[index] for index in kept] for name, values in lists.items() if name in raw}
    new |= {name: [i for i, old in enumerate(kept) if old in raw[name]] for name in _INDEX_LISTS if raw.get(name)}
    if raw.get("attention_types"):
        new["attention_types"] = [[[lists["attention_layers"][index] for index in kept], 1]]
    return new | {name: value for name, value in _OTHERS.items() if raw.get(name)}


def kept_layers(kinds: Sequence) -> list[int]:
    """Indices of the layers to keep, in order: one period, or the first few with at most two of a kind in a row.

    `kept_layers("LLGLLG")` is [0, 1, 2]; `kept_layers("LLLLLLLGLLLLLLLG")` is [0, 1, 7, 8, 9, 15].
    """
    n_layers = len(kinds)
    for period in range(1, min(MAX_LAYERS, n_layers - 1) + 1):
        if all(kinds[i] == kinds[i + period] for i in range(n_layers - period)):
            return list(range(min(n_layers, period * -(-MIN_LAYERS // period))))
    first_seen = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    short_runs = [i for i in range(n_layers) if i < 2 or not kinds[i] == kinds[i - 1] == kinds[i - 2]]
    return sorted({*short_runs[:MAX_LAYERS], *first_seen})


def _speaks_of_layers(text: PreTrainedConfig, name: str, n_layers: int) -> bool:
    values = getattr(text, name, None)
    return isinstance(values, (list, tuple)) and len(values) == n_layers


def _short_periods(raw: dict) -> dict:
    """Interleaving given as a period and an offset, cut to a period of at most four layers."""
    if not raw.get("attn_layer_period") or raw.get("layers_block_type"):
        return {}
    period = min(whole(raw, "attn_layer_period"), 4)
    return {"attn_layer_period": period, "attn_layer_offset": min(raw.get("attn_layer_offset") or 0, period // 2)}
