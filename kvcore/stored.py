"""Reading evidence that may be damaged or hostile: sizes before contents, no pickles, no code, one plain error."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

from kvcore.measures import KEYS
from kvcore.protocol import Protocol

MAX_TEXT = 16 * 2**20
"""Bytes of a text file that are read at most; three seeds take 2 KiB."""


MAX_ARRAYS = 2**30
"""Bytes of `arrays.npz` at most, before it is hashed; one seed takes 4 MB at the largest settings."""

MAX_LINE = 300
"""Characters of an error: evidence may repeat itself, not fill a screen."""


class Disagreement(Exception):
    """What is wrong with the evidence, as one line that begins with the file."""

    def __init__(self, line: str) -> None:
        super().__init__(line if len(line) <= MAX_LINE else line[:MAX_LINE] + "…")


class Manifest(NamedTuple):
    protocol: Protocol
    engine_sha256: dict[str, str]


def check_files(folder: Path, names: Sequence[str]) -> None:
    """Exactly these files, all of them regular ones of a size that evidence may have."""
    try:
        for name in names:
            path, at_most = folder / name, MAX_ARRAYS if name.endswith(".npz") else MAX_TEXT
            if path.is_symlink() or not path.is_file():
                raise Disagreement(f"{name}: the file is missing or no regular file")
            if path.stat().st_size > at_most:
                raise Disagreement(f"{name}: it is larger than the {at_most:,} bytes that it may have")
        extra = sorted(path.name for path in folder.iterdir() if path.name not in names)
    except OSError as error:
        raise Disagreement(f"{folder.name}: the folder cannot be read ({error.strerror})") from None
    if extra:
        raise Disagreement(f"{extra[0]!r}: this file does not belong to the evidence")


def read_bytes(path: Path, at_most: int) -> bytes:
    try:
        if path.stat().st_size > at_most:
            raise Disagreement(f"{path.name}: it is larger than the {at_most:,} bytes that it may have")
        return path.read_bytes()
    except OSError as error:
        raise Disagreement(f"{path.name}: it cannot be read ({error.strerror})") from None


def read_json(folder: Path, name: str) -> object:
    """Strict JSON: no key twice, every number finite."""

    def refuse(what: str) -> NoReturn:
        raise ValueError(what)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        return found if len(found) == len(pairs) else refuse("a key stands twice")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refuse("a number is not finite")

    content = read_bytes(folder / name, MAX_TEXT)
    try:
        return json.loads(
            content.decode(),
            object_pairs_hook=once,
            parse_float=finite,
            parse_constant=lambda _: refuse("a number is not finite"),
        )
    except (ValueError, RecursionError) as error:
        raise Disagreement(f"{name}: it is no valid JSON ({str(error)[:80]})") from None


def changed_files(folder: Path, names: Sequence[str]) -> list[str]:
    """Those of `names` whose SHA-256 is not the one in `sha256.json`."""
    hashes = read_json(folder, "sha256.json")
    if not isinstance(hashes, dict) or sorted(hashes) != sorted(names):
        raise Disagreement(f"sha256.json: it must hold one hash for each of {', '.join(names)}")
    return [name for name in names if hashes[name] != _hash(folder / name)]


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Disagreement(f"{path.name}: it cannot be read ({error.strerror})") from None


def read_manifest(folder: Path) -> Manifest:
    """The manifest's protocol, validated as `run` would, and its hashes; its other entries are checked for form."""
    name, manifest = "manifest.json", read_json(folder, "manifest.json")
    keys = {"time", "versions", "commit", "dirty", "engine_sha256", "protocol"}
    if not isinstance(manifest, dict) or set(manifest) != keys:
        raise Disagreement(f"{name}: it must hold {', '.join(sorted(keys))}, and nothing else")
    protocol, wanted = manifest["protocol"], {field.name for field in fields(Protocol)}
    if not isinstance(protocol, dict) or set(protocol) != wanted:
        raise Disagreement(f"{name}: its protocol must hold {', '.join(sorted(wanted))}, and nothing else")
    for key in ("seeds", "chunk_sizes"):
        if not isinstance(protocol[key], list):
            raise Disagreement(f"{name}: {key} of its protocol must be a list")
    if not isinstance(protocol["dtype"], str) or type(protocol["tolerance"]) not in (int, float):
        raise Disagreement(f"{name}: dtype and tolerance of its protocol must be a name and a number")
    try:
        lists = {key: tuple(protocol[key]) for key in ("seeds", "chunk_sizes")}
        checked = Protocol(**(protocol | lists))
    except (ValueError, OverflowError) as error:
        raise Disagreement(f"{name}: its protocol cannot be run: {error}") from None
    _check_origin(name, manifest)
    return Manifest(checked, manifest["engine_sha256"])


def _check_origin(name: str, manifest: Mapping) -> None:
    """Time, versions, commit and source hashes: no arrays tell whether they are true, so only their form."""
    hashes = manifest["engine_sha256"]
    try:
        zone = datetime.fromisoformat(manifest["time"]).tzinfo
    except (TypeError, ValueError):
        zone = None
    laws = {
        "time is no ISO time with its zone": zone is not None,
        "versions are not those of python, numpy and torch": _is_text(
            manifest["versions"], ("python", "numpy", "torch")
        ),
        "commit is neither null nor a hash": manifest["commit"] is None or _is_hex(manifest["commit"], 40, 64),
        "dirty is neither null nor true or false": isinstance(manifest["dirty"], bool | None),
        "engine_sha256 is no table of hashes": isinstance(hashes, dict)
        and bool(hashes)
        and all(_is_hex(value, 64, 64) for value in hashes.values()),
    }
    for fault, holds in laws.items():
        if not holds:
            raise Disagreement(f"{name}: its {fault}")


def _is_hex(value: object, *lengths: int) -> bool:
    return isinstance(value, str) and len(value) in lengths and re.fullmatch("[0-9a-f]+", value) is not None


def _is_text(value: object, keys: Sequence[str]) -> bool:
    return isinstance(value, dict) and sorted(value) == sorted(keys) and all(isinstance(v, str) for v in value.values())


def read_csv(folder: Path, name: str, results: Sequence[Mapping[str, int | float]]) -> None:
    """`results.csv` must say the same as `results.json`, number by number."""
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(folder / name, MAX_TEXT).decode(), newline=""), strict=True))
    except (csv.Error, ValueError) as error:
        raise Disagreement(f"{name}: it is no readable table ({str(error)[:80]})") from None
    if not rows or rows[0] != list(KEYS) or len(rows) != len(results) + 1:
        raise Disagreement(f"{name}: it must hold a line with the names of the figures and one line a seed")
    for row, result in zip(rows[1:], results, strict=True):
        if len(row) != len(KEYS):
            raise Disagreement(f"{name}: seed {result['seed']} has {len(row)} entries instead of {len(KEYS)}")
        for key, text in zip(KEYS, row, strict=True):
            if not _says(text, result[key]):
                raise Disagreement(
                    f"{name}: seed {result['seed']}: {key} is {text[:40]!r}, results.json has {result[key]}"
                )


def _says(text: str, number: int | float) -> bool:
    try:
        return type(number)(text) == number
    except ValueError:
        return False
