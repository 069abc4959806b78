"""Options of a command: anything wrong with them is one ValueError that says what is allowed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """argparse with errors raised instead of printed; values stay text, each command checks its own."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def option(self, name: str, default: object, help: str) -> None:
        """`--name VALUE`, also with underscores instead of hyphens."""
        spellings = dict.fromkeys([f"--{name.replace('_', '-')}", f"--{name}"])
        self.add_argument(*spellings, default=default, metavar="VALUE", help=f"{help} (default: {default})")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Raises ValueError for an option that is unknown, missing or without its value."""
        found, unknown = self.parse_known_args(_joined(argv))
        if unknown:
            self.error(f"{unknown[0]!r} is not understood")
        return found

    def error(self, message: str) -> NoReturn:
        options = [action.option_strings[0] for action in self._actions if action.option_strings]
        positional = [action.dest.upper() for action in self._actions if not action.option_strings]
        raise ValueError(f"{message}; {self.prog} takes {', '.join([*positional, *options[1:], '--help'])}")


def _joined(argv: Sequence[str]) -> list[str]:
    """`--seeds -1,2` as `--seeds=-1,2`: argparse would take a value that begins with a minus for an option."""
    joined: list[str] = []
    for word in argv:
        if re.match(r"-[0-9.]", word) and joined and re.fullmatch(r"--[a-z][a-z_-]*", joined[-1]):
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return joined


def whole_number(text: str) -> int | str:
    """The number that `text` says; else the text, which the check of its range refuses, saying what is allowed."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,40}\s*", text) else text


def whole_numbers(text: str) -> tuple[int | str, ...]:
    """Whole numbers with commas between them."""
    return tuple(map(whole_number, text.split(",")))


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
