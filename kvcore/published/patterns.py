"""Families whose kinds of layers follow from keys of their own: one rule each."""

from __future__ import annotations

from collections.abc import Callable

from kvcore.published.kind_names import indices, kind_of, switches, where
from kvcore.published.reader import MOST, Reader, short, whole_number

NEMOTRON = {"M": "recurrent", "*": "full", "-": "none", "E": "none"}
NEMOTRON_DEFAULT = "ME*-"

ZAMBA2_LAYERS, ZAMBA2_HYBRID = 54, (6, 12, 18, 24, 30, 36, 42, 47, 51)
"""Depth of the published Zamba 2, and which of its layers have attention."""

WINDOW_UNLESS_OFF = (
    "qwen2",
    "qwen3",
    "qwen2_moe",
    "qwen3_moe",
    "qwen2_vl_text",
    "qwen2_5_vl_text",
    "qwen2_5_omni_text",
)
"""Families whose window counts only with use_sliding_window, and then from layer max_window_layers on."""


def _qwen(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    """With use_sliding_window, layers from max_window_layers on slide; qwen3_moe slides everywhere."""
    if window is None:
        reader.told(
            "layer kinds", "full", "derived", "use_sliding_window is not true, so sliding_window counts for nothing"
        )
        return ["full"] * n_layers
    if reader.model_type == "qwen3_moe":
        reader.told("layer kinds", "sliding", "derived", "use_sliding_window is true; every layer slides")
        return ["sliding"] * n_layers
    if reader.model_type == "qwen2_moe":
        last = reader.whole("max_window_layers", "layers", fallback=28, least=0)
        reader.told("layer kinds", f"every second below {last} slides", "derived", "qwen2_moe, use_sliding_window true")
        return where(n_layers, lambda index: index % 2 == 0 and index < last, "sliding", "full")
    first = reader.whole("max_window_layers", "layers", fallback=28, least=0)
    reader.told("layer kinds", f"sliding from layer {first}", "derived", "layers i ≥ max_window_layers slide")
    return where(n_layers, lambda index: index >= first, "sliding", "full")


def _gemma4(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    why = "layer_types is not in the file; five sliding, then one full, and the last is full"
    reader.told("layer kinds", "5 sliding : 1 full", "absent", why)
    return where(n_layers, lambda index: (index + 1) % 6 == 0 or index == n_layers - 1, "full", "sliding")


def _llama4(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    """Layers with rotary positions are chunked, every fourth has none and keeps everything."""
    if reader.raw.get("attention_chunk_size", 0) is None:
        reader.told("layer kinds", "full", "null", "attention_chunk_size is null: no chunks")
        return ["full"] * n_layers
    rotary = switches(reader, "no_rope_layers", n_layers)
    if rotary is not None:
        return ["chunked" if each else "full" for each in rotary]
    every = reader.whole("no_rope_layer_interval", "layers", fallback=4)
    reader.told("layer kinds", f"every {every}th full", "derived", "layers with rotary positions are chunked")
    return where(n_layers, lambda index: (index + 1) % every == 0, "full", "chunked")


def _jamba(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    period = reader.whole("attn_layer_period", "layers", fallback=8)
    offset = reader.whole("attn_layer_offset", "layers", fallback=4, least=0)
    if offset >= period:
        raise ValueError(
            f"attn_layer_offset is {offset:,}; it must be less than attn_layer_period, which is {period:,}"
        )
    reader.told("layer kinds", f"i mod {period} = {offset} full", "derived", "the other layers hold a fixed state")
    return where(n_layers, lambda index: index % period == offset, "full", "recurrent")


def _every_nth_full(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    every = reader.whole("full_attention_interval", "layers", fallback=4)
    reader.told("layer kinds", f"every {every}th full", "derived", "the others are linear attention with a fixed state")
    return where(n_layers, lambda index: (index + 1) % every == 0, "full", "recurrent")


def _olmo_hybrid(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    reader.told("layer kinds", "every 4th full", "absent", "layer_types is not in the file; at least the last is full")
    if n_layers < 4:
        return ["recurrent"] * (n_layers - 1) + ["full"]
    return where(n_layers, lambda index: (index + 1) % 4 == 0, "full", "recurrent")


def _nemotron_h(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    pattern = reader.raw.get("hybrid_override_pattern")
    if pattern is None and n_layers != len(NEMOTRON_DEFAULT):
        raise ValueError(
            f"neither hybrid_override_pattern nor layers_block_type is in the file; nemotron_h needs one of them for"
            f" {n_layers:,} layers"
        )
    if pattern is None:
        why = "no pattern in the file; nemotron_h assumes four layers: mamba, moe, attention, mlp"
        reader.told("layer kinds", NEMOTRON_DEFAULT, "absent", why)
        pattern = NEMOTRON_DEFAULT
    elif not isinstance(pattern, str) or set(pattern) - NEMOTRON.keys():
        raise ValueError(f"hybrid_override_pattern is {short(pattern)}; letters may be {', '.join(NEMOTRON)}")
    else:
        reader.told("layer kinds", short(pattern), "read", "hybrid_override_pattern: * is attention, M holds a state")
    return [NEMOTRON[letter] for letter in pattern]


def _bamba(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    chosen = indices(reader, "attn_layer_indices")
    if chosen is None:
        reader.told("layer kinds", "recurrent", "absent", "attn_layer_indices is not in the file: none has attention")
        chosen = set()
    return where(n_layers, chosen.__contains__, "full", "recurrent")


def _lfm2(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    chosen = indices(reader, "full_attn_idxs")
    if chosen is None:
        reader.told("layer kinds", "full", "absent", "neither layer_types nor full_attn_idxs in the file")
        return ["full"] * n_layers
    return where(n_layers, chosen.__contains__, "full", "recurrent")


def _recurrent_gemma(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    listed = reader.listed("block_types") or ["recurrent", "recurrent", "attention"]
    kinds = ["sliding" if kind_of("block_types", each) == "full" else "recurrent" for each in listed]
    return [kinds[index % len(kinds)] for index in range(n_layers)]


def _minimax(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    listed = switches(reader, "attn_type_list", n_layers)
    if listed is not None:
        return ["full" if each else "recurrent" for each in listed]
    reader.told("layer kinds", "full, recurrent", "absent", "layer_types is not in the file; every second is linear")
    return where(n_layers, lambda index: index % 2 == 0, "full", "recurrent")


def _kimi_linear(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    name, listed = "linear_attn_config.full_attn_layers", reader.inside("linear_attn_config").get("full_attn_layers")
    if listed is not None:
        if not isinstance(listed, list):
            raise ValueError(f"{name} is {short(listed)}; it must be a list")
        chosen = {whole_number(name, each, "layers") for each in listed}
        reader.told("layer kinds", short(listed), "read", f"{name}, counted from 1")
        return where(n_layers, lambda index: index + 1 in chosen, "full", "recurrent")
    reader.told("layer kinds", "every 4th full", "absent", "no layer list in the file")
    return where(n_layers, lambda index: index > 0 and index % 4 == 0, "full", "recurrent")


def _mllama(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    chosen = indices(reader, "cross_attention_layers")
    if chosen is None:
        chosen = set(range(3, n_layers, 5))
        reader.told("cross-attention layers", sorted(chosen), "absent", "mllama assumes every fifth from 3 on")
    return where(n_layers, chosen.__contains__, "cross", "full")


def _mimo(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    listed = switches(reader, "hybrid_layer_pattern", n_layers)
    if listed is not None:
        return ["sliding" if each else "full" for each in listed]
    reader.told("layer kinds", "0 and every 6th full", "absent", "hybrid_layer_pattern is not in the file")
    return where(n_layers, lambda index: index == 0 or (index + 1) % 6 == 0, "full", "sliding")


def _gpt_neo(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    given = reader.listed("attention_types")
    if not given:
        given = [[["global", "local"], n_layers // 2]]
        reader.told("layer kinds", "full, sliding", "absent", "attention_types is not in the file; gpt_neo alternates")
    kinds: list[str] = []
    for entry in given:
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)):
            raise ValueError(f"attention_types holds {short(entry)}; each entry is a list of kinds and a count")
        count = whole_number("attention_types", entry[1], "layers", 0)
        if count * len(entry[0]) > MOST["layers"]:
            raise ValueError(f"attention_types gives more than {MOST['layers']:,} layers; at most so many are read")
        kinds += [kind_of("attention_types", each) for each in entry[0]] * count
    if len(kinds) != n_layers:
        raise ValueError(f"attention_types gives {len(kinds):,} layers; the model has {n_layers:,}")
    return kinds


def _smollm3(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    """With use_sliding_window, the layers without rotary positions slide."""
    if window is None:
        return ["full"] * n_layers
    every = reader.whole("no_rope_layer_interval", "layers", fallback=4)
    return where(n_layers, lambda index: (index + 1) % every == 0, "sliding", "full")


def _modernbert(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    every = reader.whole("global_attn_every_n_layers", "layers", fallback=3)
    reader.told("layer kinds", f"0 and every {every}th full", "derived", "the others slide")
    return where(n_layers, lambda index: index % every == 0, "full", "sliding")


def _all(kind: str) -> Callable[[Reader, int, int | None], list[str]]:
    def kinds(reader: Reader, n_layers: int, window: int | None) -> list[str]:
        reader.told("layer kinds", kind, "derived", f"every layer of {reader.model_type}")
        return [kind] * n_layers

    return kinds


def _zamba(reader: Reader, n_layers: int, window: int | None) -> list[str]:
    chosen = indices(reader, "hybrid_layer_ids")
    if chosen is None and reader.model_type == "zamba2":
        if n_layers != ZAMBA2_LAYERS:
            raise ValueError("neither layers_block_type nor hybrid_layer_ids is in the file; zamba2 needs one of them")
        reader.told("layer kinds", list(ZAMBA2_HYBRID), "absent", "zamba2 assumes attention in these of 54 layers")
        chosen = {*ZAMBA2_HYBRID}
    if chosen is None:
        offset = reader.whole("attn_layer_offset", "layers", fallback=4, least=0)
        period = reader.whole("attn_layer_period", "layers", fallback=6)
        chosen = {2} | {index for index in range(3, n_layers) if (index - 3) % period == offset}
    return where(n_layers, chosen.__contains__, "hybrid", "recurrent")


FAMILIES: dict[str, Callable[[Reader, int, int | None], list[str]]] = {
    **dict.fromkeys(WINDOW_UNLESS_OFF, _qwen),
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4,
    "diffusion_gemma_text": _gemma4,
    "llama4_text": _llama4,
    "jamba": _jamba,
    "qwen3_next": _every_nth_full,
    "qwen3_5_text": _every_nth_full,
    "qwen3_5_moe_text": _every_nth_full,
    "olmo_hybrid": _olmo_hybrid,
    "nemotron_h": _nemotron_h,
    "bamba": _bamba,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "recurrent_gemma": _recurrent_gemma,
    "minimax": _minimax,
    "kimi_linear": _kimi_linear,
    "mllama_text_model": _mllama,
    "mimo_v2_flash": _mimo,
    "gpt_neo": _gpt_neo,
    "smollm3": _smollm3,
    "modernbert-decoder": _modernbert,
    "falcon_h1": _all("hybrid"),
    "zamba": _zamba,
    "zamba2": _zamba,
}
"""Families whose kinds follow from keys of their own."""
