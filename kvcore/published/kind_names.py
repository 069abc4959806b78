"""Names of kinds of layers as files use them, and the forms in which files say which layer is of which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvcore.published.reader import Reader, short, whole_number

NAMES = {
    "full_attention": "full",
    "attention": "full",
    "full": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "sliding_window": "sliding",
    "local": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "recurrent",
    "linear": "recurrent",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "recurrent": "recurrent",
    "conv": "recurrent",
    "hybrid": "hybrid",
    "hybrid_sliding": "hybrid sliding",
    "indexed_attention": "full",
    "cross_attention": "cross",
    "mlp": "none",
    "moe": "none",
}
"""Names that files use, and the kind; a hybrid layer has attention and a state beside each other."""

USUAL = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention", "conv", "hybrid", "mlp", "moe")
"""The names of today, for what is said of an unknown one."""


def checked(name: str, listed: Sequence[Any], n_layers: int) -> list[str]:
    if len(listed) != n_layers:
        raise ValueError(f"{name} has {len(listed):,} entries; the model has {n_layers:,} layers, one entry each")
    return [kind_of(name, each) for each in listed]


def kind_of(name: str, value: object) -> str:
    if not isinstance(value, str) or value not in NAMES:
        raise ValueError(f"{name} holds {short(value)}; known are {', '.join(USUAL)} and older names of these")
    return NAMES[value]


def where(n_layers: int, chosen: Callable[[int], bool], yes: str, no: str) -> list[str]:
    return [yes if chosen(index) else no for index in range(n_layers)]


def indices(reader: Reader, key: str) -> set[int] | None:
    listed = reader.listed(key)
    return None if listed is None else {whole_number(key, each, "layers", 0) for each in listed}


def switches(reader: Reader, key: str, n_layers: int) -> list[bool] | None:
    """A list with 1 or 0 a layer; None where it is missing, null or empty."""
    listed = reader.listed(key)
    if not listed:
        return None
    if len(listed) != n_layers:
        raise ValueError(f"{key} has {len(listed):,} entries; the model has {n_layers:,} layers, one entry each")
    for each in listed:
        if not isinstance(each, int) or each not in (0, 1):
            raise ValueError(f"{key} holds {short(each)}; each entry is 1 or 0")
    return [bool(each) for each in listed]
