"""An experiment as files that `audit` can check: results, arrays, manifest and hashes.

Importing this needs no PyTorch: `audit` takes the names of the files from here.
"""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kvcore.folder import npz, write_new
from kvcore.measures import KEYS
from kvcore.provenance import checkout, engine_sha256, sha256, versions

if TYPE_CHECKING:
    from kvcore.experiment import Experiment

HASHED = ("results.json", "results.csv", "arrays.npz")
FILES = (*HASHED, "manifest.json", "sha256.json")
TOP = "evidence"
"""The folder inside the zip."""


def files(experiment: Experiment) -> dict[str, bytes]:
    """Name -> content. All but `manifest.json`, which tells the time, follow from the experiment alone."""
    results = experiment.results()
    found = {
        "results.json": _json(results),
        "results.csv": _csv(results),
        "arrays.npz": npz(experiment.arrays()),
    }
    manifest = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        **checkout(),
        "engine_sha256": engine_sha256(),
        "protocol": asdict(experiment.protocol),
    }
    hashes = {name: sha256(found[name]) for name in HASHED}
    return found | {"manifest.json": _json(manifest), "sha256.json": _json(hashes)}


def write(experiment: Experiment, directory: str | os.PathLike) -> Path:
    """Write all files to a new folder; raises ValueError, and writes nothing, if it exists."""
    return write_new(directory, files(experiment))


def zip_bytes(experiment: Experiment) -> bytes:
    """The same files in a zip, inside one folder named `evidence`: unpack it and audit that folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files(experiment).items():
            entry = zipfile.ZipInfo(f"{TOP}/{name}")
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _csv(results: list[dict]) -> bytes:
    """One row a seed; floats in the shortest form that reads back as the same number."""
    text = io.StringIO()
    table = csv.DictWriter(text, KEYS, lineterminator="\n")
    table.writeheader()
    table.writerows(results)
    return text.getvalue().encode()
