"""What is left that families do in their own way: depth, heads, window, and layers that share or differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcore.published.heads import Heads, Latent
from kvcore.published.layer import GROWING, Layer
from kvcore.published.patterns import NEMOTRON_DEFAULT, WINDOW_UNLESS_OFF
from kvcore.published.reader import MISSING, MOST, Reader, short, whole_number

WITHOUT_ATTENTION = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm")


def has_no_attention(reader: Reader) -> bool:
    return reader.model_type in WITHOUT_ATTENTION


def depth(reader: Reader) -> int:
    """The number of layers; a pattern with a letter a layer decides where there is one."""
    family = DEPTHS.get(reader.model_type)
    found = family(reader) if family else None
    return reader.needed("num_hidden_layers", "layers", "how many layers there are") if found is None else found


def _entries(reader: Reader, key: str) -> int | None:
    """The length of a list with one entry a layer; None where the file does not have it."""
    if reader.raw.get(key) is None:
        return None
    found = len(reader.listed(key))
    if not found:
        raise ValueError(f"{key} is empty; it must have one entry a layer")
    reader.told("n_layers", found, "read", f"one entry a layer in {key}")
    return found


def _nemotron_h_depth(reader: Reader) -> int | None:
    listed = _entries(reader, "layers_block_type")
    pattern = reader.raw.get("hybrid_override_pattern")
    if listed is not None or pattern is None:
        return listed or reader.whole("num_hidden_layers", "layers", fallback=len(NEMOTRON_DEFAULT))
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MOST["layers"]:
        raise ValueError(
            f"hybrid_override_pattern is {short(pattern)}; it must be a text with one letter a layer, at most"
            f" {MOST['layers']:,}"
        )
    reader.told("n_layers", len(pattern), "read", "one letter a layer in hybrid_override_pattern")
    return len(pattern)


def _longcat_depth(reader: Reader) -> int | None:
    """Twice num_layers, since each has two attentions; num_hidden_layers, as transformers writes it, counts both."""
    if "num_layers" not in reader.raw and "num_hidden_layers" in reader.raw:
        return None
    found = 2 * reader.needed("num_layers", "layers", "how many layers there are")
    reader.told("n_layers", found, "derived", "2 · num_layers: each layer of longcat_flash has two attentions")
    return found


def _hrm_depth(reader: Reader) -> int | None:
    """Every pass through a stack keeps its own entries; num_layers_per_stack says that they are counted already."""
    if reader.raw.get("num_layers_per_stack") is not None:
        return None
    stack = reader.needed("num_hidden_layers", "layers", "how many layers there are")
    high, low = (reader.whole(key, "layers", fallback) for key, fallback in (("H_cycles", 2), ("L_cycles", 3)))
    found = whole_number("num_hidden_layers · H_cycles · (L_cycles + 1)", stack * high * (low + 1), "layers")
    reader.told("n_layers", found, "derived", f"{stack} layers · H_cycles {high} · (L_cycles {low} + 1), each kept")
    return found


DEPTHS = {
    "hrm_text": _hrm_depth,
    "nemotron_h": _nemotron_h_depth,
    "nemotron-nas": lambda reader: _entries(reader, "block_configs"),
    "longcat_flash": _longcat_depth,
}
"""Families in which something else decides the depth before num_hidden_layers."""


def query_heads(reader: Reader) -> int:
    return reader.needed("num_attention_heads", "heads", "how many heads there are")


def window(reader: Reader) -> int | None:
    """W in tokens, or None: absent takes the family's default, null means none."""
    if reader.model_type == "modernbert-decoder":
        both_sides = reader.whole(
            "local_attention", "tokens", fallback=None if "local_attention" in reader.raw else 128
        )
        return both_sides and max(1, both_sides // 2)
    if reader.model_type == "gpt_neo":
        return reader.whole("window_size", "tokens", fallback=256)
    if reader.model_type in (*WINDOW_UNLESS_OFF, "smollm3"):
        if not reader.flag("use_sliding_window"):
            return None
        fallback = None if reader.name_in_file("sliding_window") else 4096
        found = reader.whole("sliding_window", "tokens", fallback=fallback)
        if fallback and found == fallback:
            reader.told(
                "window",
                4096,
                "absent",
                f"use_sliding_window is true without sliding_window; {reader.model_type} takes 4096",
            )
        return found
    if reader.model_type == "mimo_v2_flash" and reader.raw.get("sliding_window_size") is not None:
        return reader.whole("sliding_window_size", "tokens")
    if reader.name_in_file("use_sliding_window") and not reader.flag("use_sliding_window", otherwise=True):
        reader.told("window", None, "read", "use_sliding_window is false")
        return None
    return reader.whole("sliding_window", "tokens")


def number_format(config: Mapping[str, Any], reader: Reader) -> str | None:
    """The dtype that the file names; quantised weights do not change that of the cache."""
    for raw in (reader.raw, config):
        for key in ("dtype", "torch_dtype"):
            if isinstance(raw.get(key), str):
                reader.told("dtype", short(raw[key]).strip('"'), "read", f"{key} in the file")
                return short(raw[key]).strip('"')
    return None


def latent_query_width(reader: Reader, compressed: Latent) -> int:
    """Width of a query head under latent attention: the part without positions and the rotary part."""
    return (reader.whole("qk_nope_head_dim", "width", fallback=0, least=0) or 0) + compressed.rotary


def adjusted(reader: Reader, layers: list[Layer], own: Heads | None) -> list[Layer]:
    """The layers with what only this family does."""
    family = ADJUSTED.get(reader.model_type)
    layers = _per_layer(reader, family(reader, layers, own) if family else layers)
    shared = reader.raw.get("num_kv_shared_layers", reader.defaults.get("num_kv_shared_layers", MISSING))
    if shared is MISSING or shared is None:
        return layers
    n_shared = reader.whole("num_kv_shared_layers", "layers", least=0)
    if n_shared > len(layers):
        raise ValueError(f"num_kv_shared_layers is {n_shared:,}; the model has {len(layers):,} layers")
    if n_shared:
        reader.told("shared layers", n_shared, "derived", "the last layers read earlier layers' entries and keep none")
    return layers[: len(layers) - n_shared] + [Layer("shared")] * n_shared


def _gpt_neo(reader: Reader, layers: list[Layer], own: Heads | None) -> list[Layer]:
    reader.told("transformers' cache", "all tokens", "derived", "its cache keeps every token in gpt_neo's local layers")
    return [replace(layer, dynamic_tokens=0) if layer.kind == "sliding" else layer for layer in layers]


def _gemma4(reader: Reader, layers: list[Layer], own: Heads | None) -> list[Layer]:
    """Full layers have wider heads, and their own number of them where keys serve as values."""
    if reader.raw.get("per_layer_config") is not None:
        return layers
    wide = reader.whole("global_head_dim", "width", fallback=512)
    count = own.n_kv_heads
    if reader.model_type == "diffusion_gemma_text" or reader.flag("attention_k_eq_v"):
        count = reader.whole("num_global_key_value_heads", "heads", fallback=count)
    reader.told("full layers", f"{count} KV heads of {wide}", "derived", "full layers have widths of their own")
    full = {"n_kv_heads": count, "key_width": wide, "value_width": wide}
    return [replace(layer, **full) if layer.kind == "full" else layer for layer in layers]


def _mimo(reader: Reader, layers: list[Layer], own: Heads | None) -> list[Layer]:
    """Sliding layers have KV heads and widths of their own; sliding_window_size leaves out the query's own token."""
    count = reader.whole("swa_num_key_value_heads", "heads")
    if count is None:
        count = 2 * own.n_kv_heads
        why = "swa_num_key_value_heads is not in the file; sliding layers have twice the KV heads"
        reader.told("KV heads of sliding layers", count, "absent", why)
    key = reader.whole("swa_head_dim", "width", fallback=own.key_width)
    value = reader.whole("swa_v_head_dim", "width", fallback=own.value_width)
    sliding: dict[str, Any] = {"n_kv_heads": count, "key_width": key, "value_width": value}
    if reader.raw.get("sliding_window_size") is not None:
        why = "sliding_window_size counts the tokens before the query, which transformers' cache keeps all"
        reader.told("transformers' cache", "W tokens", "derived", why)
        sliding["dynamic_tokens"] = whole_number("sliding_window_size", reader.raw["sliding_window_size"], "tokens")
    return [replace(layer, **sliding) if layer.kind == "sliding" else layer for layer in layers]


def _per_layer(reader: Reader, layers: list[Layer]) -> list[Layer]:
    """per_layer_config, as transformers saves it: layer number -> head_dim, v_head_dim, num_key_value_heads."""
    given = reader.raw.get("per_layer_config")
    if given is None:
        return layers
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise ValueError(f"per_layer_config is {short(given)}; it must map layer numbers to objects")
    reader.told("layers of their own", len(given), "read", "per_layer_config in the file")
    found = list(layers)
    for number, own in given.items():
        if not number.isdecimal() or len(number) > 4 or int(number) >= len(layers):
            raise ValueError(f"per_layer_config names layer {short(number)}; layers are 0 to {len(layers) - 1}")
        if found[int(number)].kind in GROWING:
            found[int(number)] = replace(found[int(number)], **_own_shape(own, f"per_layer_config.{number}"))
    return found


def _own_shape(own: Mapping[str, Any], where: str) -> dict[str, int]:
    shape = {}
    if own.get("head_dim") is not None:
        width = whole_number(f"{where}.head_dim", own["head_dim"], "width")
        shape = {"key_width": width, "value_width": width}
    if own.get("v_head_dim") is not None:
        shape["value_width"] = whole_number(f"{where}.v_head_dim", own["v_head_dim"], "width")
    if own.get("num_key_value_heads") is not None:
        shape["n_kv_heads"] = whole_number(f"{where}.num_key_value_heads", own["num_key_value_heads"], "heads")
    return shape


def _nemotron_nas(reader: Reader, layers: list[Layer], own: Heads | None) -> list[Layer]:
    """block_configs: attention that is left out, replaced by a linear map, or has its own group size."""
    listed = reader.listed("block_configs")
    if not listed:
        raise ValueError("block_configs is not in the file; nemotron-nas needs it, one entry a layer")
    found = []
    for index, (layer, block) in enumerate(zip(layers, listed, strict=True)):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ValueError(f"block_configs[{index}] is {short(block)}; each entry holds an object named attention")
        for key in ("no_op", "replace_with_linear"):
            if attention.get(key) not in (None, True, False):
                raise ValueError(
                    f"block_configs[{index}].attention.{key} is {short(attention[key])}; it must be true or false"
                )
        if attention.get("no_op") or attention.get("replace_with_linear"):
            found.append(Layer("none"))
            continue
        group = whole_number(
            f"block_configs[{index}].attention.n_heads_in_group", attention.get("n_heads_in_group"), "heads"
        )
        if own.n_heads % group:
            raise ValueError(f"groups of {group} do not divide {own.n_heads} heads; see block_configs[{index}]")
        found.append(replace(layer, n_kv_heads=own.n_heads // group))
    n_none = sum(layer.kind == "none" for layer in found)
    reader.told("layer kinds", f"{n_none} without attention", "read", "no_op or replace_with_linear in block_configs")
    return found


ADJUSTED = {
    "gpt_neo": _gpt_neo,
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4,
    "diffusion_gemma_text": _gemma4,
    "mimo_v2_flash": _mimo,
    "nemotron-nas": _nemotron_nas,
}
