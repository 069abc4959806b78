"""`python -m kvcore verify`: a model of the caller's, from a factory, or a small one of a published architecture."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcore.arguments import Parser, whole_number
from kvcore.config import check_choice, check_int

if TYPE_CHECKING:
    from kvcore.verification.report import Report

CACHES, ATTENTIONS = ("dynamic", "static", "model"), ("eager", "sdpa")
CONFIG_BYTES = 1_000_000
"""A configuration file may be so large."""

ABOUT = """Check cached decoding against the full forward at every position.

MODULE:FACTORY names a function that takes nothing and returns (full, step, token_ids), or a mapping with
these keys and any keyword of kvcore.verify. --config builds a small random-weight model of that
architecture instead (needs transformers). Exit code 0: equal or rounding; 1: a fault; 2: bad input."""


def command(parser: Parser, argv: Sequence[str]) -> int:
    parser.add_argument("factory", nargs="?", metavar="MODULE:FACTORY", help="such as package.module:make_model")
    parser.add_argument("--config", metavar="FILE", help="a config.json of a published model")
    parser.add_argument("--saved", metavar="FILE", help="an NPZ of saved outputs, as the page Check your own takes it")
    parser.option("cache", "dynamic", f"with --config: one of {', '.join(CACHES)}")
    parser.option("attention", "eager", f"with --config: one of {', '.join(ATTENTIONS)}")
    parser.option("seed", "0", "with --config: seed of the random weights")
    parser.option("tokens", "16", "with --config: how many random tokens, 2 to 64")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    given = parser.parse(argv)
    if sum(source is not None for source in (given.factory, given.config, given.saved)) != 1:
        raise ValueError("name one model: MODULE:FACTORY, --config FILE or --saved FILE")
    if given.saved is not None:
        report = _saved(given.saved)
    else:
        report = _published(given) if given.config is not None else _made(given.factory)
    print(report.to_json() if given.json else report)
    return 0 if report.ok else 1


def _made(factory: str) -> Report:
    """The report on what a factory returns."""
    module_name, separator, name = factory.partition(":")
    if not (separator and module_name and name):
        raise ValueError(f"{factory!r} names no factory; write MODULE:FACTORY, such as package.module:make_model")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        make = getattr(importlib.import_module(module_name), name)
    except SystemExit as error:
        raise ValueError(f"{factory} cannot be imported: {module_name} {_ended(error)}") from error
    except Exception as error:  # whatever importing a stranger's module raises
        raise ValueError(f"{factory} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(make):
        raise ValueError(f"{factory} is {type(make).__name__}; it must be a function that takes nothing")
    try:
        made = make()
    except SystemExit as error:
        raise ValueError(f"{factory}() {_ended(error)}") from error
    except Exception as error:
        raise ValueError(f"{factory}() raised {type(error).__name__}: {error}") from error
    try:
        return _verify(**_arguments(factory, made))
    except SystemExit as error:
        raise ValueError(f"the model of {factory} {_ended(error)}") from error


def _ended(error: SystemExit) -> str:
    """What a stranger's exit is told as: it must not become the verdict, for its code 0 would read as equal."""
    return f"ended the program with exit code {error.code}; it must run to its end"


def _arguments(factory: str, made: Any) -> dict[str, Any]:
    """What the factory returned as keyword arguments of `verify`."""
    from kvcore.verification.hooks import Hooks

    needed = ("full", "step", "token_ids")
    if isinstance(made, Mapping):
        allowed = {*needed, *(field.name for field in fields(Hooks)), "rtol", "atol"}
        if missing := [name for name in needed if name not in made]:
            raise ValueError(f"{factory}() gives no {missing[0]}; the keys full, step and token_ids are needed")
        if unknown := sorted(set(made) - allowed):
            raise ValueError(f"{factory}() gives {unknown[0]!r}; keys are {', '.join(sorted(allowed))}")
        return dict(made)
    if not isinstance(made, (tuple, list)) or len(made) != len(needed):
        raise ValueError(f"{factory}() gives {type(made).__name__}; it must give (full, step, token_ids) or a mapping")
    return dict(zip(needed, made, strict=True))


def _published(given: Any) -> Report:
    """The report on a small model of the architecture that a configuration file describes."""
    check_choice("--cache", given.cache, CACHES)
    check_choice("--attention", given.attention, ATTENTIONS)
    seed = check_int("--seed", whole_number(given.seed), 0)
    n_tokens = check_int("--tokens", whole_number(given.tokens), 2, 64)
    config = read_config(given.config)

    from kvcore.integrations.small import small_model
    from kvcore.integrations.transformers import wrap

    wrapped = wrap(small_model(config, given.attention, seed), given.cache)
    token_ids = np.random.default_rng(seed).permutation(wrapped.vocab_size)[:n_tokens].tolist()
    return _verify(full=wrapped.full, step=wrapped.step, token_ids=token_ids, **wrapped.hooks())


def _saved(path: str) -> Report:
    """The report on outputs that were saved to a file."""
    from kvcore.verification.saved import verify_saved
    from kvcore.verification.saved_file import MAX_BYTES

    return verify_saved(_read(path, MAX_BYTES))


def _read(path: str, most: int) -> bytes:
    """A file's bytes. Raises ValueError where it cannot be read or has more than `most`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(most + 1)  # bounded, for a device or a pipe declares no size
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > most:
        raise ValueError(f"{path} is larger than {most:,} bytes, which are allowed at most")
    return content


def read_config(path: str) -> dict[str, Any]:
    """A configuration file as a mapping. Raises ValueError for what is none, in one sentence."""
    content = _read(path, CONFIG_BYTES)
    try:
        config = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also for whole numbers of thousands of digits
        raise ValueError(f"{path} is not JSON in UTF-8: {type(error).__name__}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds {type(config).__name__}; a config.json holds one object with a model_type")
    return config


def _verify(**arguments: Any) -> Report:
    from kvcore.verification.verify import verify

    return verify(**arguments)
