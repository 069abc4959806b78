"""Looking up one configuration's keys, and keeping account of what was read, what was assumed, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from kvcore.published.layer import Rule

MOST = {"layers": 2_000, "heads": 100_000, "width": 10_000_000, "tokens": 1 << 40}
"""Larger numbers in a file are refused."""

ALIASES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads", "num_query_groups"),
    "hidden_size": ("n_embd", "d_model", "n_embed", "dim"),
    "head_dim": ("kv_channels", "attention_head_dim", "d_head", "head_size"),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
    "max_position_embeddings": ("n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length",
                                "max_sequence_length"),
    "sliding_window": ("sliding_window_size", "attention_window_size"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "block_ff_dim"),
}  # fmt: skip
"""Other names of a key, where a family does not say them itself."""

REMOTE = ("chatglm", "qwen", "phi-msft", "nemotron-nas", "RefinedWeb", "RefinedWebModel")
"""Families with code of their own, unknown to transformers, whose keys are read all the same."""

MISSING = object()


@cache
def library() -> dict[str, Any]:
    """What transformers' configuration classes assume, as recorded in the package."""
    return json.loads(files("kvcore").joinpath("data/families.json").read_text("utf-8"))


def short(value: object) -> str:
    """A value as the file has it, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole_number(name: str, value: object, kind: str, least: int = 1) -> int:
    """`value` as a whole number that is allowed for its kind; 12.0 counts as 12."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST[kind]:
        raise ValueError(f"{name} is {short(value)}; it must be a whole number from {least} to {MOST[kind]:,}")
    return value


class Reader:
    """One language model's configuration with the defaults of its family; `rules` is the account."""

    def __init__(self, raw: Mapping[str, Any], model_type: str) -> None:
        self.raw, self.model_type, self.rules = raw, model_type, []
        family = library()["families"].get(model_type)
        self.known = family is not None
        self.generic = family is None and model_type not in REMOTE
        self.defaults = family["defaults"] if family else {}
        self.names = family["names"] if family else {}
        self.layer_kinds = family.get("layer_kinds") if family else None
        self.null_kv_heads = family.get("null_kv_heads") if family else None

    def told(self, fact: str, value: object, how: str, why: str) -> None:
        """A rule for the account; one that is there already is not told twice."""
        rule = Rule(fact, value, how, why)
        if rule not in self.rules:
            self.rules.append(rule)

    def name_in_file(self, key: str) -> str | None:
        """The name under which the file holds this key, its own name first; None where it does not."""
        own = self.names.get(key)
        candidates = [key, own, *ALIASES.get(key, ())]
        return next((name for name in candidates if name is not None and name in self.raw), None)

    def default(self, key: str) -> Any:
        """The family's default under any of the key's names; MISSING where it has none."""
        for name in (key, self.names.get(key), *ALIASES.get(key, ())):
            if name in self.defaults:
                return self.defaults[name]
        return MISSING

    def get(self, key: str, fact: str | None = None) -> Any:
        """The key's value from the file, else the family's default, else MISSING; with a rule that says which."""
        name = self.name_in_file(key)
        if name is not None:
            value = self.raw[name]
            self.told(fact or key, value, "null" if value is None else "read", f"{name} in the file")
            return value
        value = self.default(key)
        if value is not MISSING and value is not None:
            self.told(fact or key, value, "absent", f"{key} is not in the file; {self.model_type} assumes {value!r}")
        return value

    def whole(self, key: str, kind: str, fallback: int | None = None, least: int = 1) -> int | None:
        """A whole number from `least` to what is allowed for its kind; `fallback` where it is missing or null."""
        value = self.get(key)
        if value is MISSING or value is None:
            return fallback
        return whole_number(self.name_in_file(key) or key, value, kind, least)

    def needed(self, key: str, kind: str, what: str) -> int:
        """A whole number that nothing goes without. Raises ValueError where it is missing or null."""
        found = self.whole(key, kind)
        if found is None:
            name = self.name_in_file(key)
            said = f"{name} is null in the file" if name else f"the file has no {key}"
            raise ValueError(f"{said}; it must say {what}")
        return found

    def flag(self, key: str, otherwise: bool = False) -> bool:
        """true or false; null counts as `otherwise`."""
        value = self.get(key)
        if value is MISSING or value is None:
            return otherwise
        if not isinstance(value, bool):
            raise ValueError(f"{key} is {short(value)}; it must be true or false")
        return value

    def inside(self, key: str) -> Mapping[str, Any]:
        """An object within the file; empty where it is missing or null."""
        value = self.raw.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"{key} is {short(value)}; it must be a JSON object")
        return value

    def listed(self, key: str) -> list[Any] | None:
        """A list from the file or the family's default; None where there is none."""
        value = self.get(key)
        if value is MISSING or value is None:
            return None
        if not isinstance(value, list):
            raise ValueError(f"{key} is {short(value)}; it must be a list")
        if len(value) > MOST["layers"]:
            raise ValueError(f"{key} has {len(value):,} entries; at most {MOST['layers']:,} are read")
        return value
