"""One text that names a model: a stored model's name, a typed architecture, or the content of a config.json."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from kvcore.published.describe import describe
from kvcore.published.file import parse_config
from kvcore.published.layer import Description, Rule
from kvcore.published.presets import preset
from kvcore.published.reader import short, whole_number
from kvcore.units import plural

TYPED = {
    "layers": ("layers", 1, 32),
    "heads": ("heads", 1, 32),
    "kv_heads": ("heads", 1, 8),
    "head_width": ("width", 1, 128),
    "window": ("tokens", 0, 0),
    "full_every": ("layers", 0, 0),
}
"""What a typed architecture says: the kind of number, the least that is allowed, and what stands for a missing one.

window is 0 where there is none; every full_every-th layer keeps everything, and none of them does at 0.
"""

FORM = "layers=32, heads=32, kv_heads=8, head_width=128, window=4096, full_every=6"


def typed_text(**numbers: int) -> str:
    """The text of a typed architecture; what stands at its default is left out, layers never."""
    kept = {name: value for name, value in numbers.items() if name == "layers" or value != TYPED[name][2]}
    return ", ".join(f"{name}={value}" for name, value in kept.items())


def compact(content: bytes | str) -> str:
    """The object of a config.json without spaces. Raises ValueError with one sentence for anything else."""
    return json.dumps(parse_config(content), separators=(",", ":"))


def is_file(text: str) -> bool:
    """Whether it is the content of a config.json and no name."""
    return text.lstrip().startswith(("{", "["))


def described(text: str) -> Description:
    """The description of what `text` names. Raises ValueError with one sentence that says what is allowed."""
    if is_file(text):
        model = describe(parse_config(text))
        family = re.sub(r"[^A-Za-z0-9_.-]", "", model.model_type)[:40]
        return replace(model, name=f"config.json ({family})" if family else "config.json")
    if "=" in text:
        return _typed(text)
    return preset(text)


def _typed(text: str) -> Description:
    numbers = {name: default for name, (_, _, default) in TYPED.items()}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in TYPED or not re.fullmatch(r"[0-9]{1,15}", value):
            raise ValueError(f"{short(part)} is not understood; type an architecture like {FORM}")
        kind, least, _ = TYPED[name]
        numbers[name] = whole_number(name, int(value), kind, least)
    config = {
        "num_hidden_layers": numbers["layers"],
        "num_attention_heads": numbers["heads"],
        "num_key_value_heads": numbers["kv_heads"],
        "head_dim": numbers["head_width"],
        "hidden_size": numbers["heads"] * numbers["head_width"],
    }
    if numbers["window"] and numbers["full_every"] != 1:
        config["sliding_window"] = numbers["window"]
        if numbers["full_every"]:
            config["sliding_window_pattern"] = numbers["full_every"]
    model = describe(config)
    return replace(model, name=_name(numbers), rules=tuple(_as_typed(rule) for rule in model.rules[1:]))


def _name(numbers: dict[str, int]) -> str:
    return f"typed {plural(numbers['layers'], 'layer')}, {numbers['kv_heads']} × {numbers['head_width']}"


def _as_typed(rule: Rule) -> Rule:
    """The same rule for numbers that no file holds; the width between layers is not typed."""
    if rule.fact == "hidden_size":
        return replace(rule, how="derived", why="heads times head width")
    return replace(rule, why=rule.why.replace("in the file", "as typed"))
