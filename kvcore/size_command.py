"""`python -m kvcore size`: what the K/V cache of a published model takes, from a config.json or by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvcore.arguments import Parser, whole_number
from kvcore.published.describe import describe
from kvcore.published.file import read_config
from kvcore.published.formats import FORMATS
from kvcore.published.layer import Description
from kvcore.published.presets import names, preset
from kvcore.published.reader import short
from kvcore.published.sizes import CONVENTIONS, Ask, Size, bytes_per_token, size
from kvcore.published.strip import runs
from kvcore.published.words import decides, guessed
from kvcore.units import both_units, plural

ABOUT = """What the K/V cache of a published model takes, layer by layer, and by which rules its file was read.

--config reads a config.json as data, without network; --model takes a stored model. Exit code 2: bad input."""


def command(parser: Parser, argv: Sequence[str]) -> int:
    parser.add_argument("--config", metavar="FILE", help="a config.json of a model")
    parser.add_argument("--model", metavar="NAME", help="a stored model; --models lists them")
    parser.add_argument("--models", action="store_true", help="print the names of the stored models")
    parser.option("context", "4096", "tokens of one sequence")
    parser.option("batch", "1", "sequences")
    parser.option("format", "bf16", f"of keys and values: {', '.join(FORMATS)}")
    parser.option("convention", "live", f"which tokens and heads are kept: {', '.join(CONVENTIONS)}")
    parser.option("devices", "1", "devices that the KV heads are dealt out to (tensor parallelism)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse(argv)
    if given.models:
        print("\n".join(names()))
        return 0
    if (given.config is None) == (given.model is None):
        raise ValueError("name one model: --config FILE or --model NAME; --models lists the names")
    counts = {name: whole_number(getattr(given, name)) for name in ("context", "batch", "devices")}
    ask = Ask(**counts, format=given.format, convention=given.convention)
    model = preset(given.model) if given.model is not None else _from_file(given.config)
    taken = size(model, ask)
    print(json.dumps(to_json(model, taken)) if given.json else "\n".join(lines(model, taken)))
    return 0


def _from_file(path: str) -> Description:
    config = read_config(path)
    try:
        return replace(describe(config), name=path.encode("utf-8", "replace").decode())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def to_json(model: Description, taken: Size) -> dict[str, Any]:
    """Everything that is said of a size, as plain data."""
    ask = taken.ask
    layers = [
        vars(layer_size) | {"layer": index, **layer.to_json()}
        for index, (layer_size, layer) in enumerate(zip(taken.layers, model.layers, strict=True))
    ]
    return {
        "model": model.name,
        "model_type": model.model_type,
        **vars(ask),
        **taken.to_json(),
        "bytes_per_token": bytes_per_token(model, ask.format, ask.convention),
        "layers": layers,
        "decides": decides(model, ask),
        "rules": [rule.to_json() for rule in model.rules],
        "source": list(model.source),
    }


def lines(model: Description, taken: Size) -> list[str]:
    """The same for readers."""
    ask = taken.ask
    state = taken.fixed_state_bytes
    each = plural(ask.batch, "sequence")
    until = ", while no window is full" if any(layer.window for layer in model.layers) else ""
    said = [
        f"{model.name}: {each} of {plural(ask.context, 'token')} in {ask.format}, convention {ask.convention}",
        f"  ({CONVENTIONS[ask.convention]})",
        f"K/V cache: {plural(taken.bytes, 'byte')}, {both_units(taken.bytes)}",
        f"Fixed state: {'not known from the file' if state is None else both_units(state) if state else 'none'}",
        f"One more token{until}: {both_units(bytes_per_token(model, ask.format, ask.convention))}",
    ]
    if ask.devices > 1:
        said.append(f"On each of {ask.devices} devices: {both_units(taken.bytes_per_device)}")
    said += [*filter(None, [decides(model, ask), guessed(model)]), "", "layers"]
    said += [f"  {run.span:>9}  {run.words}" for run in runs(model, taken)]
    said += ["", "rules"]
    said += [f"  {rule.fact}: {short(rule.value)} ({rule.how}; {rule.why})" for rule in model.rules]
    said += ["", *(f"source: {source}" for source in model.source)] if model.source else []
    return said
