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
    return raw, own, rules


def _model_type(config: Mapping[str, Any]) -> str:
    found = config.get("model_type", "")
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > 100:
        raise ValueError(f"model_type is {short(found)}; it must be a name such as llama")
    return found
