"""A folder that appears whole or not at all: what the commands write into."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def check_new(directory: str | os.PathLike) -> Path:
    """The path, if nothing is there yet and its parent is a folder; else ValueError."""
    path = Path(directory)
    if os.path.lexists(path):
        raise ValueError(f"{str(directory)!r} exists already; give a folder that does not exist yet")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{str(directory)!r} cannot be made: {str(path.parent)!r} is no folder; make that one first")
    return path


def write_new(directory: str | os.PathLike, files: Mapping[str, bytes]) -> Path:
    """Make `directory` with these files, built beside it and then renamed, so that no half of it is ever seen.

    Raises ValueError if it exists or cannot be written; nothing is then left behind.
    """
    path = check_new(directory)
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    except OSError as error:
        raise ValueError(f"{str(directory)!r} cannot be written ({error.strerror}); give another folder") from None
    try:
        for name, content in files.items():
            (partial / name).write_bytes(content)
        partial.chmod(0o755)
        partial.rename(check_new(path))
    except OSError as error:
        raise ValueError(f"{str(directory)!r} cannot be written ({error.strerror}); give another folder") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The arrays as an uncompressed `.npz`; the same arrays always give the same bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
