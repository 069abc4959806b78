"""Reading an `.npz` that may be damaged or hostile: names, sizes and headers before contents, and no pickles."""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kvcore.stored import Disagreement, read_bytes

HEADER = 4096
"""Bytes of an array's header at most; NumPy's own are 128."""

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What zipfile and NumPy's header parser raise for damaged bytes."""


def read_arrays(folder: Path, name: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The arrays of an `.npz`: exactly these names and shapes, finite; int64 tokens and bytes, else float64.

    An array's declared sizes are checked before its contents are read.
    """
    bytes_needed = {key: 8 * math.prod(shape) + HEADER for key, shape in shapes.items()}
    content = read_bytes(folder / name, sum(bytes_needed.values()) + 1024 * (len(shapes) + 1))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            wrong = set(members) ^ {f"{key}.npy" for key in shapes}
            if wrong or len(members) != len(archive.infolist()):
                first = min(wrong, default="a name twice").removesuffix(".npy")
                raise Disagreement(f"{name}: {first[:60]!r} is missing or does not belong to this protocol")
            found = {}
            for key, shape in shapes.items():
                member = members[f"{key}.npy"]
                if member.file_size > bytes_needed[key]:
                    raise Disagreement(f"{name}: {key} is larger than its shape {shape} needs")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise Disagreement(f"{name}: {key} is packed in a way that NumPy never uses")
                found[key] = _read_array(name, key, archive.read(f"{key}.npy"), shape)
    except UNREADABLE as error:
        raise Disagreement(f"{name}: it is no readable archive of arrays ({str(error)[:80]})") from None
    return found


def _read_array(name: str, key: str, content: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """One `.npy`: its header is compared before anything of the declared size is made."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise Disagreement(f"{name}: {key} has a format that is not known here")
    found_shape, _, dtype = read_header(file, max_header_size=HEADER)
    wanted = np.dtype(np.int64 if key.endswith(("_tokens", "_cache_bytes")) else np.float64)
    if found_shape != shape or dtype != wanted:
        raise Disagreement(f"{name}: {key} is {found_shape} of {dtype}; the protocol wants {shape} of {wanted}")
    array = np.load(io.BytesIO(content), allow_pickle=False, max_header_size=HEADER)
    if not np.isfinite(array).all():
        raise Disagreement(f"{name}: {key} holds a value that is not finite")
    return array
