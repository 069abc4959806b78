"""Finding the language model in a file that describes more than one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcore.published.layer import Rule
from kvcore.published.reader import library, short

INSIDE = ("text_config", "llm_config", "language_config", "language_model_config", "decoder", "generator")
"""Keys under which a file holds the configuration of its language model."""

AROUND = ("thinker_config",)
"""Keys that hold a configuration which holds that one."""


RENAMED = {"minimax_text_01": "minimax", "minimax_m1": "minimax", "kimi_k2": "deepseek_v3"}
"""Model types of files with code of their own, and the family whose keys they have."""

ENCODERS = (
    "albert", "bart", "bert", "bigbird_pegasus", "big_bird", "blenderbot", "blenderbot-small", "camembert", "clip",
    "deberta", "deberta-v2", "distilbert", "electra", "ernie", "esm", "longformer", "longt5", "m2m_100", "marian",
    "mbart", "modernbert", "mpnet", "mt5", "mvp", "nllb-moe", "pegasus", "plbart", "prophetnet", "rembert", "roberta",
    "switch_transformers", "t5", "umt5", "vit", "whisper", "xlm-roberta", "xlnet",
)  # fmt: skip
"""Model types with an encoder: none, or not only, of their cache grows with the text."""


def language_model(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, list[Rule]]:
    """(configuration of the language model, its model_type, rules). Raises ValueError for what is no configuration."""
    rules: list[Rule] = []
    raw, outer = config, _model_type(config)
    for key in (*AROUND, *INSIDE):
        inner = raw.get(key)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise ValueError(f"{key} is {short(inner)}; it must be a JSON object with the language model's keys")
        if key in INSIDE and any(isinstance(inner.get(other), Mapping) for other in INSIDE):
            raise ValueError(f"{key} holds another configuration in it; one inside the file is read")
        rules.append(Rule("language model", key, "read", f"the language model's keys are those under {key}"))
        raw = inner
        if key in INSIDE:
            break
    own = _model_type(raw)
    if raw is not config and not own:
        own = library()["text_types"].get(outer, outer)
        why = f"{rules[-1].value} has no model_type; {outer or 'the file'} holds one of {own or 'no known type'}"
        rules.append(Rule("model_type", own, "absent", why))
    elif raw is config:
        own = library()["text_types"].get(own, own)
    if own in ENCODERS or raw.get("is_encoder_decoder") is True:
        raise ValueError(f"{own or 'the file'} has an encoder; give the configuration of a decoder-only model")
    if own in RENAMED:
        rules.append(Rule("model_type", own, "derived", f"{own} has the keys of {RENAMED[own]}"))
    return raw, RENAMED.get(own, own), rules


def _model_type(config: Mapping[str, Any]) -> str:
    found = config.get("model_type", "")
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > 100 or not found.isprintable():
        raise ValueError(f"model_type is {short(found)}; it must be a name such as llama")
    return found
