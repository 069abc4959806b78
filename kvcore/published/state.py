"""The size of a fixed state: what recurrent and linear layers keep whatever the context."""

from __future__ import annotations

from kvcore.published.reader import Reader, whole_number


def _given(reader: Reader, *keys: str) -> int | None:
    """The first of these keys that has a value, in the file or among the family's defaults; "auto" and null have none.

    Raises ValueError for what is no whole number.
    """
    for key in keys:
        value = reader.raw.get(key, reader.defaults.get(key))
        if value is not None and value != "auto":
            return whole_number(key, value, "width")
    return None


def state_elements(reader: Reader, d_model: int) -> int | None:
    """Numbers in one layer's state, of the convolution and of the recurrence; None where the file does not tell."""
    family = FAMILIES.get(reader.model_type)
    if family is None:
        reader.told("fixed state", None, "derived", f"its size is not known for {reader.model_type or 'this file'}")
        return None
    found = family(reader, d_model)
    if found is None:
        reader.told("fixed state", None, "derived", "keys for its size are missing")
        return None
    elements, why = found
    reader.told("fixed state", elements, "derived", why)
    return elements


Found = tuple[int, str] | None


def _mamba(reader: Reader, d_model: int) -> Found:
    """Conv kernel and state of every inner channel (Gu and Dao, "Mamba", 2023)."""
    inner = _given(reader, "intermediate_size") if reader.model_type in ("mamba", "falcon_mamba") else None
    if inner is None or "intermediate_size" not in reader.raw:
        expand = _given(reader, "mamba_expand", "expand")
        inner = expand and expand * d_model
    kernel, state = _given(reader, "mamba_d_conv", "conv_kernel"), _given(reader, "mamba_d_state", "state_size")
    if None in (inner, kernel, state):
        return None
    return inner * (kernel + state), f"{inner:,} channels × (kernel {kernel} + state {state})"


def _mamba2(reader: Reader, d_model: int) -> Found:
    """Heads × head width × state, and the convolution over inputs and both projections of the state."""
    heads = _given(reader, "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    expand = _given(reader, "mamba_expand", "expand")
    width = _given(reader, "mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if width is None and reader.model_type == "mamba2":
        width = _given(reader, "head_dim")
    if width is None and heads and expand:
        width = (_given(reader, "mamba_d_ssm") or expand * d_model) // heads
    groups = _given(reader, "mamba_n_groups", "mamba_ngroups", "n_groups")
    state = _given(reader, "mamba_d_state", "ssm_state_size", "state_size")
    kernel = _given(reader, "mamba_d_conv", "conv_kernel")
    if None in (heads, width, groups, state, kernel):
        return None
    channels = heads * width + 2 * groups * state
    why = f"{heads} heads × {width} × state {state}, and {channels:,} channels × kernel {kernel}"
    return heads * width * state + channels * kernel, why


def _delta(reader: Reader, d_model: int) -> Found:
    """Gated delta rule: a matrix a value head, and the convolution over queries, keys and values."""
    keys, key = _given(reader, "linear_num_key_heads"), _given(reader, "linear_key_head_dim")
    values, value = _given(reader, "linear_num_value_heads"), _given(reader, "linear_value_head_dim")
    kernel = _given(reader, "linear_conv_kernel_dim")
    if None in (keys, key, values, value, kernel):
        return None
    channels = 2 * keys * key + values * value
    why = f"{values} heads × {key} × {value}, and {channels:,} channels × kernel {kernel}"
    return values * key * value + channels * kernel, why


def _short_convolution(reader: Reader, d_model: int) -> Found:
    kernel = _given(reader, "conv_L_cache")
    return kernel and (d_model * kernel, f"{d_model:,} channels × kernel {kernel}")


def _rg_lru(reader: Reader, d_model: int) -> Found:
    width, kernel = _given(reader, "lru_width") or d_model, _given(reader, "conv1d_width")
    return kernel and (width * kernel, f"{width:,} channels × (state 1 + kernel {kernel} − 1)")


def _kda(reader: Reader, d_model: int) -> Found:
    """Kimi delta attention: a square matrix a head, and three convolutions; the file may keep its keys in an object."""
    inside = reader.inside("linear_attn_config")
    named = {
        "num_heads": "linear_num_heads",
        "head_dim": "linear_head_dim",
        "short_conv_kernel_size": "linear_conv_kernel_dim",
    }
    heads, width, kernel = (
        _given(reader, new)
        if inside.get(old) is None
        else whole_number(f"linear_attn_config.{old}", inside[old], "width")
        for old, new in named.items()
    )
    if None in (heads, width, kernel):
        return None
    why = f"{heads} heads × {width} × {width}, and 3 × {heads * width:,} channels × kernel {kernel}"
    return heads * width * width + 3 * heads * width * kernel, why


def _lightning(reader: Reader, d_model: int) -> Found:
    """Lightning attention: a square matrix a head."""
    heads = _given(reader, "num_attention_heads")
    if heads is None:
        return None
    width = _given(reader, "head_dim") or d_model // heads
    return heads * width * width, f"{heads} heads × {width} × {width}"


FAMILIES = {
    **dict.fromkeys(("mamba", "falcon_mamba", "jamba", "zamba"), _mamba),
    **dict.fromkeys(("mamba2", "bamba", "granitemoehybrid", "nemotron_h", "falcon_h1", "zamba2"), _mamba2),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"), _delta),
    **dict.fromkeys(("lfm2", "lfm2_moe"), _short_convolution),
    "recurrent_gemma": _rg_lru,
    "kimi_linear": _kda,
    "minimax": _lightning,
}
