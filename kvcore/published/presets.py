"""Published models by name: facts of their configurations, stored with sources and read by the same rules as a file."""

from __future__ import annotations

import json
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from kvcore.published.describe import describe
from kvcore.published.layer import Description


@cache
def stored() -> dict[str, dict[str, Any]]:
    """Everything that is stored of each model, by name."""
    found = json.loads(files("kvcore").joinpath("data/models.json").read_text("utf-8"))
    return {entry["name"]: entry for entry in found["models"]}


def names() -> list[str]:
    """The models that are there, in the order in which they are stored."""
    return list(stored())


@cache
def preset(name: str) -> Description:
    """The description of a model by its name or its id on the model hub, upper and lower case alike.

    Raises ValueError with the nearest names.
    """
    entry = _entry(name)
    return replace(describe(entry["config"], entry["name"]), source=tuple(entry["source"]))


def _entry(name: str) -> dict[str, Any]:
    wanted = name.strip().lower()
    by_key = {key.lower(): entry for entry in stored().values() for key in (entry["name"], entry["hf_id"])}
    by_key |= {key.split("/")[-1]: entry for key, entry in by_key.items()}
    if wanted in by_key:
        return by_key[wanted]
    near = [by_key[key]["name"] for key in get_close_matches(wanted, by_key, n=3, cutoff=0.4)] or names()[:3]
    raise ValueError(
        f"there is no model named {name[:60]!r}; near are {', '.join(dict.fromkeys(near))},"
        " and python -m kvcore size --models lists all"
    )
