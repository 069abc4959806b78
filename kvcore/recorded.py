"""The recorded figures of the public attention-lab experiment, as data: `data/attention_lab.json`.

The file is the project's reference as it was handed over; its `about` says where it comes from and
how closely each kind of figure must agree.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

from kvcore.measures import Number
from kvcore.protocol import Protocol


def load() -> dict:
    """The file as it is: about, protocol, rounding, control, results."""
    return json.loads(files("kvcore").joinpath("data/attention_lab.json").read_text(encoding="utf-8"))


def recorded_figures(protocol: Protocol) -> dict[int, dict[str, Number]]:
    """Seed -> its 15 recorded figures, for those seeds of `protocol` that were recorded under the same settings.

    Empty where a setting differs; the tolerance changes no figure, so it may differ.
    """
    data = load()
    then = data["protocol"]
    names = ("length", "window", "n_layers", "d_model", "vocab_size", "dtype", "tolerance")
    settings = {name: then[name] for name in names} | {"chunk_sizes": tuple(then["chunk_sizes"])}
    if replace(protocol, tolerance=then["tolerance"]) != Protocol(seeds=protocol.seeds, **settings):
        return {}
    results = {result["seed"]: {k: v for k, v in result.items() if k != "seed"} for result in data["results"]}
    return {seed: results[seed] for seed in protocol.seeds if seed in results}
