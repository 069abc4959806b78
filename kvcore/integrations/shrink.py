"""Small sizes in the place of published ones, by the names that configuration files use; ratios stay."""

from __future__ import annotations

import math
from collections.abc import Mapping

VOCAB_SIZE = 64
WINDOW = 4
MAX_POSITIONS = 512
MAX_RATIO = 128
"""Query heads a KV head; published models reach 71."""

LARGEST = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 1000),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads"), 100_000),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "head_dim"), 1_000_000),
    **dict.fromkeys(("expand", "mamba_expand"), 16),
}
"""The largest value that is believed; each is a whole number from 1 on."""

_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
_WINDOWS = ("sliding_window", "attention_window_size", "window_size", "attention_chunk_size", "floor_scale")
_SCAN_CHUNKS = ("chunk_size", "mamba_chunk_size")
_GROUPS = ("n_groups", "mamba_n_groups", "mamba_ngroups")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")
_FEED_FORWARD = ("intermediate_size", "intermediate_size_mlp", "n_inner", "ffn_dim", "ffn_hidden_size")
_EXPERT_WIDTHS = ("moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size",
                  "moe_shared_expert_intermediate_size")  # fmt: skip
_STATE_WIDTHS = ("state_size", "ssm_state_size", "mamba_d_state", "mamba_d_head", "mamba_head_dim", "linear_head_dim")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_A_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_k")


def sizes(raw: dict, names: dict[str, str]) -> dict:
    """New widths and heads for a configuration's values; `names` says what it calls the usual ones.

    A model without attention heads gets a width of 32. Raises ValueError for heads that cannot be shared evenly.
    """
    hidden_name = names.get("hidden_size", "hidden_size")
    heads_name = names.get("num_attention_heads", "num_attention_heads")
    hidden = whole(raw, hidden_name)
    if heads_name not in raw:
        return {hidden_name: 32} | _inner_widths(raw, 32)
    heads = whole(raw, heads_name)
    few, few_kv = _few_heads(heads, _kv_heads(raw, heads))
    wide = raw.get("head_dim") or hidden // heads
    if wide < 1:
        raise ValueError(f"{hidden_name} {hidden} is less than {heads_name} {heads}")
    narrow = _head_dim(raw, wide, few)
    width = few * narrow if hidden == heads * wide else 4 * max(1, round(hidden / (heads * wide) * few * narrow / 4))
    new = {hidden_name: width, heads_name: few}
    new |= {name: few_kv for name in ("num_key_value_heads", "num_kv_heads") if raw.get(name) is not None}
    new |= {"head_dim": narrow} if raw.get("head_dim") is not None else {}
    if raw.get("kv_lora_rank") is not None:  # latent attention has widths of its own
        new |= {hidden_name: 8 * few, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
        new |= {"q_lora_rank": 24} if raw.get("q_lora_rank") is not None else {}
    if raw.get("attention_head_dim"):  # attention over a width that is twice the hidden one
        new |= {"attention_head_dim": 2 * width // few}
        new |= {"attention_hidden_size": 2 * width} if "attention_hidden_size" in raw else {}
    return new | _scaled_by_head(raw, narrow / wide) | _inner_widths(raw, new[hidden_name])


def counts(raw: dict) -> dict:
    """Vocabulary, windows, learned positions and experts. A window that never ends within the context stays."""
    positions = [raw[name] for name in _POSITIONS if isinstance(raw.get(name), int)]
    context = max(positions, default=math.inf)
    new = {"vocab_size": VOCAB_SIZE, **{name: None for name in _SPECIAL_TOKENS if name in raw}}
    new |= {name: WINDOW for name in _WINDOWS if raw.get(name) is not None and 0 < raw[name] < context}
    new |= {name: WINDOW for name in _SCAN_CHUNKS if raw.get(name) is not None}
    new |= {name: min(raw[name], 2) for name in _GROUPS if raw.get(name) is not None}
    if "original_max_position_embeddings" not in str(raw.get("rope_parameters")):
        new |= {name: min(raw[name], MAX_POSITIONS) for name in _POSITIONS if isinstance(raw.get(name), int)}
    new |= {name: min(raw[name], 4) for name in _EXPERTS if raw.get(name) is not None}
    new |= {name: min(raw[name], 2) for name in _EXPERTS_A_TOKEN if raw.get(name) is not None}
    groups = next((name for name in ("n_group", "num_expert_group") if (raw.get(name) or 1) > 1), None)
    new |= {"is_decoder": True} if "is_decoder" in raw else {}
    return new | ({groups: 2, "topk_group": 1} if groups else {})


def refuse_absurd(given: Mapping) -> None:
    """ValueError for a size that no model has, before the library makes anything of it."""
    for name, largest in LARGEST.items():
        if given.get(name) is not None and whole(given, name) > largest:
            raise ValueError(f"{name} is {given[name]}; at most {largest} is allowed")


def whole(raw: Mapping, name: str) -> int:
    """The value under `name`, a whole number from 1 on; ValueError for any other."""
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}, and must be a whole number from 1 on")
    return value


def _kv_heads(raw: dict, heads: int) -> int:
    """One for multi-query models, which keep another number in the file; as many as heads where none is given."""
    if raw.get("multi_query") and not raw.get("new_decoder_architecture"):
        return 1
    name = "num_kv_heads" if "num_kv_heads" in raw else "num_key_value_heads"
    return heads if raw.get(name) is None else whole(raw, name)


def _few_heads(heads: int, kv_heads: int) -> tuple[int, int]:
    """Query and KV heads in the same ratio; two KV heads where there were more. ALiBi treats powers of two apart."""
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} KV heads evenly")
    ratio = heads // kv_heads
    if ratio > MAX_RATIO:
        raise ValueError(f"{ratio} query heads a KV head are too many; at most {MAX_RATIO} are allowed")
    few_kv = min(kv_heads, 2)
    if ratio == 1:
        few_kv = min(heads, 3 if heads & (heads - 1) else 4)
    return ratio * few_kv, few_kv


def _head_dim(raw: dict, wide: int, heads: int) -> int:
    """The least width of a head whose turned part is even and has two frequencies."""
    share = raw["rotary_dim"] / wide if raw.get("rotary_dim") else _rotary_share(raw.get("rope_parameters"))
    candidates = (4, 8) if heads > 32 and share == 1 else (8, 10, 12, 16, 20, 24, 32)
    return next((d for d in candidates if int(d * share) >= 4 and int(d * share) % 2 == 0), 32)


def _rotary_share(rope: dict | None) -> float:
    """The share of a head that positions turn: the least over kinds of layers."""
    nested = [part for part in (rope or {}).values() if isinstance(part, dict)]
    return min((_rotary_share(part) for part in nested), default=(rope or {}).get("partial_rotary_factor") or 1.0)


def _scaled_by_head(raw: dict, scale: float) -> dict:
    """What is written for one width of a head and must follow it."""
    new = {}
    if raw.get("query_pre_attn_scalar"):
        new["query_pre_attn_scalar"] = max(1, round(raw["query_pre_attn_scalar"] * scale))
    if raw.get("attention_multiplier"):
        new["attention_multiplier"] = raw["attention_multiplier"] / scale
    if raw.get("rotary_dim"):
        new["rotary_dim"] = round(raw["rotary_dim"] * scale)
    rope = raw.get("rope_parameters")
    if rope and "short_factor" in rope:
        half = max(1, round(len(rope["short_factor"]) * scale))
        new["rope_parameters"] = rope | {name: rope[name][:half] for name in ("short_factor", "long_factor")}
    return new


def _inner_widths(raw: dict, hidden: int) -> dict:
    """Feed-forward, state-space and linear-attention widths beside a hidden width."""
    inner = int((raw.get("expand") or raw.get("mamba_expand") or 2) * hidden)
    new = {name: 2 * hidden for name in _FEED_FORWARD if raw.get(name) is not None}
    new |= {name: min(hidden, 32) for name in _EXPERT_WIDTHS if raw.get(name) is not None}
    new |= {name: hidden for name in ("word_embed_proj_dim", "lru_width") if raw.get(name) is not None}
    new |= {name: 8 for name in _STATE_WIDTHS if name in raw}
    new |= {name: max(2, math.ceil(hidden / 16)) for name in ("time_step_rank", "mamba_dt_rank") if name in raw}
    if "state_size" in raw and "num_heads" in raw:
        new |= {"num_heads": inner // 8, "head_dim": 8}
    if "mamba_n_heads" in raw:
        new |= {"mamba_n_heads": inner // 8} | ({"mamba_d_ssm": inner} if raw.get("mamba_d_ssm") else {})
    if "mamba_num_heads" in raw:
        new |= {"mamba_num_heads": inner // 8}
    if "n_mamba_heads" in raw:
        new |= {"n_mamba_heads": min(raw["n_mamba_heads"], 4)}
    if "linear_num_heads" in raw:
        new |= {"linear_num_heads": 4}
    if "linear_num_key_heads" in raw:
        ratio = raw["linear_num_value_heads"] // raw["linear_num_key_heads"]
        new |= {"linear_num_key_heads": 2, "linear_num_value_heads": 2 * ratio}
        new |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
    return new
