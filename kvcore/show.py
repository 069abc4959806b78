"""The studies from a shell: options made from a study's Config, and the command that gives a Config again."""

from __future__ import annotations

import json
import shlex
import types
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib import import_module
from typing import Any, get_args, get_type_hints

import pandas as pd

from kvcore.arguments import Parser, number, whole_number
from kvcore.computing import computing
from kvcore.folder import check_new, npz, write_new

STUDIES = (
    "overview",
    "mask_explorer",
    "decode_paths",
    "work_counts",
    "sliding_window",
    "fault_bench",
    "check_matrix",
    "prefix_reuse",
    "check_your_own",
    "published_models",
)
"""Modules of `kvcore.studies`, one a page."""

OFF = "off"
"""Stands for None."""

MAX_ROWS = 40
"""Rows of a table that are printed; files hold all."""


def study(name: str) -> types.ModuleType:
    """A study by name, with hyphens or underscores."""
    known = name.replace("-", "_")
    if known not in STUDIES:
        raise ValueError(f"{name!r} is no study; it must be one of {', '.join(map(_hyphens, STUDIES))}")
    return import_module(f"kvcore.studies.{known}")


def show(parser: Parser, argv: Sequence[str]) -> int:
    """Run one study and print its reading and tables; with --out also write tables, arrays and configuration."""
    if not argv or argv[0].startswith("-"):
        parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(map(_hyphens, STUDIES))}")
        given = parser.parse(argv)
        return show(parser, [given.name])
    module = study(argv[0])
    parser = Parser(f"{parser.prog} {_hyphens(argv[0])}", (module.__doc__ or "").strip().split("\n")[0])
    parser.add_argument("--out", metavar="DIR", help="a new folder for tables (CSV), arrays (NPZ) and configuration")
    for field in fields(module.Config):
        parser.option(field.name, _text(field.default), _kind(module.Config, field.name))
    given = parser.parse(argv[1:])
    config = module.Config(
        **{field.name: _value(module.Config, field.name, getattr(given, field.name)) for field in fields(module.Config)}
    )
    if given.out is not None:
        check_new(given.out)
    from kvcore.threads import one_thread  # brings PyTorch, which naming a command does not need

    with computing(), one_thread():
        result = module.run(config)
    print(result.reading)
    for name, table in result.tables().items():
        print(f"\n{name}\n{_as_text(table)}")
    if given.out is not None:
        tables = {f"{name}.csv": table.to_csv(index=False).encode() for name, table in result.tables().items()}
        settings = json.dumps({"study": argv[0].replace("-", "_"), "config": asdict(config)}, indent=1) + "\n"
        written = write_new(given.out, tables | {"arrays.npz": npz(result.arrays()), "config.json": settings.encode()})
        print(f"\nTables, arrays and configuration are in {written}.")
    return 0


def command_line(name: str, config: Any) -> str:
    """The shell command that shows the study `name` under `config`; what is at its default is left out."""
    words = ["python", "-m", "kvcore", "show", _hyphens(name)]
    for field in fields(config):
        value = getattr(config, field.name)
        if value != field.default:
            words += _option(field.name, _text(value))
    return shlex.join(words)


def _option(name: str, text: str) -> list[str]:
    """Two words, or one where the value begins with a minus and would be taken for an option."""
    flag = f"--{_hyphens(name)}"
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


def _types(config_class: type, name: str) -> tuple[type, bool]:
    """The field's type, and whether it may also be None."""
    hint = get_type_hints(config_class)[name]
    choices = [choice for choice in get_args(hint) if choice is not types.NoneType] or [hint]
    (choice,) = choices
    assert choice in (int, float, str, bool), f"a shell cannot give {name} as {choice}"
    return choice, types.NoneType in get_args(hint)


def _kind(config_class: type, name: str) -> str:
    kind, may_be_off = _types(config_class, name)
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[kind]
    return f"{words} or {OFF}" if may_be_off else words


def _value(config_class: type, name: str, text: str) -> int | float | str | bool | None:
    """What the option's text says, as the field's type; the Config checks the range."""
    kind, may_be_off = _types(config_class, name)
    flag = f"--{_hyphens(name)}"
    if may_be_off and text == OFF:
        return None
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError(f"{flag} is {text!r}; it must be true or false")
        return text == "true"
    if kind is str:
        return text
    found = whole_number(text) if kind is int else number(text)
    if isinstance(found, str):
        raise ValueError(f"{flag} is {text!r}; it must be {_kind(config_class, name)}")
    return found


def _text(value: int | float | str | bool | None) -> str:
    return OFF if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _as_text(table: pd.DataFrame) -> str:
    shown = table.head(MAX_ROWS).to_string(index=False, float_format=lambda value: f"{value:.6g}")
    left = len(table) - MAX_ROWS
    return f"{shown}\n… and {left:,} more rows; --out writes all" if left > 0 else shown
