"""A config.json as data: limited in size, parsed as JSON, nothing executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20
MOST_DEPTH = 24


def parse_config(content: bytes | str) -> dict[str, Any]:
    """The object in a config.json. Raises ValueError with one sentence for anything else."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"the file has {len(content):,} bytes; a config.json of at most {MOST_BYTES:,} is read")
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {error.start} is not UTF-8; a config.json is a text file in UTF-8") from None
    content = content.removeprefix("\ufeff")
    if not content.strip():
        raise ValueError("the file is empty; a config.json holds one JSON object")
    try:
        found = json.loads(content)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"line {error.lineno} is not JSON ({error.msg}); a config.json holds one JSON object"
        ) from None
    except RecursionError:
        raise ValueError(f"the file is nested too deeply; at most {MOST_DEPTH} levels are read") from None
    except ValueError:
        raise ValueError("the file holds a number with thousands of digits; sizes are whole numbers") from None
    if not isinstance(found, dict):
        raise ValueError(f"the file holds {_named(found)}; a config.json holds one JSON object")
    _check_depth(found)
    return found


def read_config(path: str) -> dict[str, Any]:
    """The object in a file. Raises ValueError, with the path, where there is none."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"the file has more than {MOST_BYTES:,} bytes; a config.json of at most that is read")
        return parse_config(content)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}; give the path of a config.json") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_depth(found: dict[str, Any]) -> None:
    level: list[Any] = [found]
    for _ in range(MOST_DEPTH):
        level = [
            each
            for value in level
            if isinstance(value, dict | list)
            for each in (value.values() if isinstance(value, dict) else value)
        ]
    if level:
        raise ValueError(f"the file is nested too deeply; at most {MOST_DEPTH} levels are read")


def _named(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")
