"""Mixtures of experts: which layers hold one, how many experts a token goes through, and how wide they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvcore.published.reader import MISSING, Reader, short, whole_number

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
"""Keys for the experts of a layer, and for those that a token goes through."""

Dense = Callable[[Reader, int], set[int]]
"""The layers that are no mixture, of so many."""


class Mixture(NamedTuple):
    """Where a family keeps the facts of its mixture.

    `shared` is the key of the shared expert: its width where the key ends in "size", else how many experts'
    widths it has. `gate` is 1 where a gate of one number weighs the shared expert.
    """

    dense: Dense
    expert_width: str = "moe_intermediate_size"
    shared: str | None = None
    gate: int = 0
    dense_width: str = "intermediate_size"


class Experts(NamedTuple):
    """A layer's experts, those of one token, and widths; `router` is the numbers that choose and weigh them."""

    n_experts: int
    active: int
    width: int
    shared_width: int
    router: int


def n_experts(reader: Reader) -> int | None:
    """Experts of a layer; None or 0 where the file has no mixture."""
    return _first_known(reader, EXPERTS)


def experts(reader: Reader, mixture: Mixture, count: int) -> Experts | None:
    """None where nothing gives the active experts or their width, or more would be active than there are."""
    active = _first_known(reader, ACTIVE)
    width = reader.whole(mixture.expert_width, "width")
    if active is None or width is None or active > count:
        return None
    shared = (reader.whole(mixture.shared, "width", least=0) or 0) if mixture.shared else 0
    if mixture.shared and not mixture.shared.endswith("size"):
        shared *= width
    return Experts(count, active, width, shared, count + (mixture.gate if shared else 0))


def _first_known(reader: Reader, keys: tuple[str, ...]) -> int | None:
    """The first of these keys that the file has, else the first with a default in the family."""
    there = [key for key in keys if reader.name_in_file(key)]
    there += [key for key in keys if reader.default(key) not in (MISSING, None)]
    return reader.whole(there[0], "heads", least=0) if there else None


def _listed_dense(reader: Reader, n_layers: int) -> set[int] | None:
    """Dense layers by a list with an entry a layer: mlp_layer_types, or moe_layer_freq where it is a list."""
    for key, dense in (("mlp_layer_types", "dense"), ("moe_layer_freq", 0)):
        listed = reader.raw.get(key)
        if not isinstance(listed, list):
            continue
        if len(listed) != n_layers:
            raise ValueError(f"{key} has {len(listed):,} entries; the model has {n_layers:,} layers, one entry each")
        reader.told("mixture layers", short(listed), "read", f"{key} in the file")
        return {index for index, each in enumerate(listed) if each == dense}
    return None


def _first(fallback: int, key: str = "first_k_dense_replace") -> Callable[[Reader, int], set[int]]:
    """The first k layers are dense, then every moe_layer_freq-th is a mixture."""

    def dense(reader: Reader, n_layers: int) -> set[int]:
        listed = _listed_dense(reader, n_layers)
        if listed is not None:
            return listed
        first = reader.whole(key, "layers", fallback=fallback, least=0)
        every = reader.whole("moe_layer_freq", "layers", fallback=1)
        return {index for index in range(n_layers) if index < first or index % every}

    return dense


def _sparse_step(*fallback: int) -> Callable[[Reader, int], set[int]]:
    """Every decoder_sparse_step-th layer is a mixture, those in mlp_only_layers are not."""

    def dense(reader: Reader, n_layers: int) -> set[int]:
        listed = reader.listed("mlp_only_layers")
        only = fallback if listed is None else [whole_number("mlp_only_layers", each, "layers", 0) for each in listed]
        step = reader.whole("decoder_sparse_step", "layers", fallback=1)
        return {index for index in range(n_layers) if index in only or (index + 1) % step}

    return dense


def _llama4(reader: Reader, n_layers: int) -> set[int]:
    listed = reader.listed("moe_layers")
    if listed is not None:
        return {*range(n_layers)} - {whole_number("moe_layers", each, "layers", 0) for each in listed}
    step = reader.whole("interleave_moe_layer_step", "layers", fallback=1)
    return {index for index in range(n_layers) if (index + 1) % step}


def _jamba(reader: Reader, n_layers: int) -> set[int]:
    if n_experts(reader) == 1:
        return {*range(n_layers)}
    period = reader.whole("expert_layer_period", "layers", fallback=2)
    offset = reader.whole("expert_layer_offset", "layers", fallback=1, least=0)
    return {index for index in range(n_layers) if index % period != offset}


def _ernie(reader: Reader, n_layers: int) -> set[int]:
    first = reader.whole("moe_layer_start_index", "layers", fallback=1, least=0)
    last = reader.whole("moe_layer_end_index", "layers", fallback=-1, least=-1)
    every = reader.whole("moe_layer_interval", "layers", fallback=1)
    last = n_layers - 1 if last == -1 else last
    return {index for index in range(n_layers) if (index + 1) % every or not first <= index <= last}


def _never(reader: Reader, n_layers: int) -> set[int]:
    return set()


_NARROW = "moe_intermediate_size"
_COUNTED = "n_shared_experts"
_FULL = "intermediate_size"

MIXTURES = {
    **dict.fromkeys(("mixtral", "phimoe", "olmoe", "flex_olmo", "gpt_oss", "minimax", "minimax_m2"),
                    Mixture(_never, _FULL)),
    **dict.fromkeys(("granitemoe", "granitemoeshared", "granitemoehybrid", "granitemoe_swa"),
                    Mixture(_never, _FULL, "shared_intermediate_size")),
    "jamba": Mixture(_jamba, _FULL),
    "aria_text": Mixture(_never, _FULL, "moe_num_shared_experts"),
    "cohere2_moe": Mixture(_first(0), _FULL, "num_shared_experts"),
    "llama4_text": Mixture(_llama4, _FULL, _FULL, 0, "intermediate_size_mlp"),
    "minimax_m3_vl_text": Mixture(_first(0), _FULL, "shared_intermediate_size", 0, "dense_intermediate_size"),
    **dict.fromkeys(("deepseek_v2", "dots1", "mistral4", "deepseek_ocr2_text"), Mixture(_first(0), _NARROW, _COUNTED)),
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "glm_moe_dsa"), Mixture(_first(3), _NARROW, _COUNTED)),
    **dict.fromkeys(
        ("axk1", "dots3_note_text", "glm4_moe", "glm4v_moe_text", "glm4_moe_lite", "kimi_linear", "mistral_large4_text",
         "sarvam_mla", "sarvam_moe"),
        Mixture(_first(1), _NARROW, _COUNTED),
    ),
    "bailing_hybrid": Mixture(_first(2), _NARROW, _COUNTED),
    "solar_open": Mixture(_first(0), _NARROW, _COUNTED),
    "beam": Mixture(_first(3)),
    "mellum": Mixture(_first(0)),
    "mimo_v2_flash": Mixture(_first(1)),
    "exaone_moe": Mixture(_first(1), _NARROW, "num_shared_experts"),
    "hy_v3": Mixture(_first(1), _NARROW, "num_shared_experts"),
    "afmoe": Mixture(_first(1, "num_dense_layers"), _NARROW, "num_shared_experts"),
    "lfm2_moe": Mixture(_first(2, "num_dense_layers")),
    "ernie4_5_moe": Mixture(_ernie, _NARROW, "moe_num_shared_experts"),
    **dict.fromkeys(("qwen2_moe", "qwen3_next"),
                    Mixture(_sparse_step(), _NARROW, "shared_expert_intermediate_size", 1)),
    **dict.fromkeys(("qwen3_5_moe_text", "qwen4_exp_text"),
                    Mixture(_never, _NARROW, "shared_expert_intermediate_size", 1)),
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"), Mixture(_sparse_step())),
    "flint": Mixture(_sparse_step(0, 1), _NARROW, "shared_expert_intermediate_size"),
    **dict.fromkeys(("kolibri1", "lara_mini"), Mixture(_first(0), _NARROW, "shared_expert_intermediate_size")),
    "laguna": Mixture(_first(1), _NARROW, "shared_expert_intermediate_size"),
    "nemotron_h": Mixture(_never, _NARROW, "moe_shared_expert_intermediate_size"),
}  # fmt: skip
"""Families that have mixtures: by the rules of transformers 5.24's own models."""
