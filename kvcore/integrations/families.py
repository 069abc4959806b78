"""What transformers' own configuration classes assume of a file: names, defaults of absent keys, patterns of layers.

Recorded once as data, so that a config.json is read without transformers: `python -m kvcore.integrations.families`
prints it. Only keys that decide a cache, its sizes or the work are kept.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

from transformers import __version__
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ENCODERS = (
    "bart", "bert", "bert-generation", "big_bird", "bigbird_pegasus", "blenderbot", "blenderbot-small", "camembert",
    "data2vec-text", "electra", "ernie", "git", "marian", "mbart", "megatron-bert", "mvp", "pegasus", "plbart",
    "prophetnet", "reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "trocr", "whisper",
    "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod",
)  # fmt: skip
"""Listed there as causal, but made of an encoder, or with a decoder that needs one."""

KEYS = re.compile(
    r"^(num_|n_|head|hidden_size$|intermediate_size|ffn_|inner_|d_model|vocab_size$|sliding_window|use_sliding|layer_types"
    r"|layers_block|block_types|kv_|qk_|v_head|q_lora|index_|global_head|attention_k_eq|attention_chunk|no_rope|max_window"
    r"|mamba_(d|n|expand)|linear_|conv|ssm|state_size|expan|attn_|expert_layer|moe_|first_k|multi_query|new_decoder"
    r"|alibi|attention_types|lru|full_attention|hybrid|swa_|max_position|max_seq|window|attention_window|hidden_act"
    r"|activation_function|mlp_only|decoder_sparse|interleave_moe|shared_|cross_attention_layers|word_embed|tie_word)"
)
LENGTHS = (2, 3, 5, 7, 12, 13, 24, 26, 31, 40, 62)
"""Depths at which the pattern of layers is asked for."""


def _fields(config_class: type) -> dict[str, Any]:
    """The class's own defaults, before anything is derived from them."""
    found = {}
    for each in dataclasses.fields(config_class):
        default = each.default
        if default is dataclasses.MISSING or not KEYS.match(each.name):
            continue
        if default is None or isinstance(default, bool | int | float | str | list | tuple):
            found[each.name] = default
    return found


def _layer_kinds(config_class: type, depth_name: str) -> list[str] | None:
    """One period of the kinds of layers that follow from nothing but the depth; empty where they do not repeat.

    None where the class does not speak of kinds at all.
    """
    if not getattr(config_class(), "layer_types", None):
        return None
    try:
        made = {depth: list(config_class(**{depth_name: depth}).layer_types) for depth in LENGTHS}
    except Exception:  # whatever a configuration class raises for what it does not take
        return []
    longest = made[max(LENGTHS)]
    for period in range(1, 17):
        if all(kinds == [longest[i % period] for i in range(depth)] for depth, kinds in made.items()):
            return longest[:period]
    return []


def _null_heads(config_class: type, names: dict[str, str]) -> str | None:
    """What an explicit null for the KV heads means: as many as heads, a refusal, or nothing."""
    if "num_key_value_heads" not in {each.name for each in dataclasses.fields(config_class)}:
        return None
    heads = names.get("num_attention_heads", "num_attention_heads")
    try:
        made = config_class(num_key_value_heads=None, **{heads: 16})
    except Exception:  # whatever a configuration class raises for what it does not take
        return "refused"
    return "heads" if made.num_key_value_heads == 16 else None


def text_types() -> Iterator[tuple[str, str]]:
    """(model type of a file, model type of the language model that it describes)."""
    types = {
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    for name in sorted(types - {*ENCODERS}):
        try:
            yield name, CONFIG_MAPPING[name]().get_text_config(decoder=True).model_type
        except Exception:  # whatever a configuration class raises for what it does not take
            continue


def families() -> dict[str, Any]:
    """Everything that is recorded, as plain data."""
    of_file = {name: text for name, text in text_types() if text not in ENCODERS}
    found = {}
    for text in sorted({*of_file.values()} & {*CONFIG_MAPPING.keys()}):
        config_class = CONFIG_MAPPING[text]
        names = dict(getattr(config_class, "attribute_map", {}))
        depth = names.get("num_hidden_layers", "num_hidden_layers")
        entry = {"defaults": _fields(config_class), "names": {k: v for k, v in names.items() if KEYS.match(k)}}
        if (kinds := _layer_kinds(config_class, depth)) is not None:
            entry["layer_kinds"] = kinds
        if null := _null_heads(config_class, names):
            entry["null_kv_heads"] = null
        found[text] = entry
    return {
        "about": "Defaults, names and layer patterns of transformers' configuration classes; facts, read by a program.",
        "made_by": "python -m kvcore.integrations.families",
        "source": f"transformers {__version__}, Apache-2.0",
        "text_types": {name: text for name, text in of_file.items() if name != text},
        "families": found,
    }


if __name__ == "__main__":
    print(json.dumps(families(), separators=(",", ":")).replace('},"', '},\n"'))
