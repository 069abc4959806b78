"""Saved outputs from an NPZ that may be damaged or hostile: data only, sizes before contents, one sentence if not."""

from __future__ import annotations

import io
import math
import re
import zipfile
from dataclasses import dataclass

import numpy as np

from kvcore.stored_arrays import HEADER, UNREADABLE
from kvcore.verification.plan import Sizes

MAX_BYTES = 20 * 2**20
MAX_NUMBERS = 10_000_000
MAX_RATIO = 200
"""How many times smaller than its content a member may be packed; random numbers hardly shrink at all."""

MAX_SPLITS = 16
MAX_TOKENS = 256

FULL, TOKEN_IDS = "full", "token_ids"
FLOATS = ("float16", "float32", "float64")
"""Formats of outputs, the least precise first; whole numbers count as float64."""

ALLOWED = (
    "it must be an NPZ file with `full` (tokens, features) and, for each split, one array of the same shape named by"
    " its chunk sizes, such as 5,4,3"
)


@dataclass(frozen=True, eq=False)
class Saved:
    """Outputs (T, features), float64: `full` of the full forward, `splits` by chunk sizes. `dtype` is the least
    precise format in the file; token_ids (T,) or None where the file has none."""

    full: np.ndarray
    splits: dict[Sizes, np.ndarray]
    token_ids: tuple[int, ...] | None
    dtype: str


def read_saved(content: bytes) -> Saved:
    """The arrays of an uploaded file. Raises ValueError, in one sentence, for anything that is not allowed."""
    if not content:
        raise ValueError(f"the file is empty; {ALLOWED}")
    if len(content) > MAX_BYTES:
        raise ValueError(f"the file has {len(content):,} bytes; at most {MAX_BYTES:,} are allowed")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive)
            arrays = {name: _array(archive, name, member) for name, member in members.items()}
    except Refused as error:
        raise ValueError(str(error)) from None
    except UNREADABLE as error:
        said = " ".join(str(error).split())[:80] or type(error).__name__
        raise ValueError(f"the file cannot be read ({said}); {ALLOWED}") from None
    return _saved(arrays)


class Refused(Exception):
    """Readable and not allowed; kept apart from what the readers themselves raise."""


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Array names and their members, by what the directory of the archive declares; nothing is unpacked."""
    found: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > MAX_SPLITS + 2:
        raise Refused(f"the file holds {len(infos)} arrays; at most {MAX_SPLITS} splits are allowed beside `full`")
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name == info.filename or "/" in name or "\\" in name:
            raise Refused(f"{_quoted(info.filename)} is no array; {ALLOWED}")
        if name in found:
            raise Refused(f"{_quoted(name)} is there twice; each array may be there once")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused(f"{_quoted(name)} is encrypted or packed unusually; save it with numpy.savez")
        if info.file_size > HEADER + MAX_RATIO * max(1, info.compress_size):
            raise Refused(f"{_quoted(name)} is packed more than {MAX_RATIO} times smaller; save it with numpy.savez")
        found[name] = info
    declared = sum(info.file_size for info in infos)
    if declared > 8 * MAX_NUMBERS + HEADER * len(infos):
        raise Refused(f"the arrays unpack to {declared:,} bytes; at most {8 * MAX_NUMBERS:,} are allowed")
    return found


def _array(archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> np.ndarray:
    """One array: its header is checked before anything of the size it declares is made."""
    with archive.open(member) as file:
        content = file.read(member.file_size + 1)  # bounded, whatever the member unpacks to
    head = io.BytesIO(content)
    version = np.lib.format.read_magic(head)
    if version not in ((1, 0), (2, 0)):
        raise Refused(f"{_quoted(name)} has a format that is not allowed; save it with numpy.savez")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(head, max_header_size=HEADER)
    if dtype.hasobject:
        raise Refused(f"{_quoted(name)} holds pickled objects, which are never opened; save plain numbers")
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise Refused(f"{_quoted(name)} holds {dtype}; numbers must be whole or {', '.join(FLOATS)}")
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(content) - head.tell():
        raise Refused(f"{_quoted(name)} declares shape {shape} but holds another amount of numbers; save it again")
    return np.load(io.BytesIO(content), allow_pickle=False, max_header_size=HEADER)


def _saved(arrays: dict[str, np.ndarray]) -> Saved:
    """What the arrays mean, checked against each other."""
    if FULL not in arrays:
        raise ValueError(f"`full` is missing; {ALLOWED}")
    full = arrays.pop(FULL)
    if full.ndim != 2 or full.shape[1] < 1 or not 2 <= full.shape[0] <= MAX_TOKENS:
        raise ValueError(
            f"`full` has shape {full.shape}; it must be (tokens, features) with 2 to {MAX_TOKENS} tokens and no batch"
        )
    if not np.isfinite(full).all():
        row = int(np.flatnonzero(~np.isfinite(full).all(axis=1))[0])
        raise ValueError(f"`full` is not finite at position {row}; it is the reference and must be finite everywhere")
    token_ids = _token_ids(arrays.pop(TOKEN_IDS, None), len(full))
    splits: dict[Sizes, np.ndarray] = {}
    for name, rows in arrays.items():
        sizes = chunk_sizes(name, len(full))
        if sizes in splits:
            raise ValueError(f"the split {_quoted(name)} is there twice; each may be there once")
        if rows.shape != full.shape:
            raise ValueError(f"{_quoted(name)} has shape {rows.shape}; it must be that of `full`, {full.shape}")
        splits[sizes] = rows.astype(np.float64)
    if not splits:
        raise ValueError(f"there is no split beside `full`; {ALLOWED}")
    used = {array.dtype.name for array in (full, *arrays.values())}
    dtype = next((name for name in FLOATS if name in used), "float64")
    return Saved(full.astype(np.float64), splits, token_ids, dtype)


def chunk_sizes(name: str, length: int) -> Sizes:
    """Sizes from a name such as `5,4,3`, `5+4+3` or `split_5_4_3`; they must add up to `length`."""
    text = re.sub(r"^(split|chunks)[ _:-]*", "", name)
    if not re.fullmatch(r"[0-9]{1,4}([,+_ -]+[0-9]{1,4})*", text):
        raise ValueError(f"{_quoted(name)} names no chunk sizes; name a split like 5,4,3 (allowed beside: token_ids)")
    sizes = tuple(int(size) for size in re.split(r"[,+_ -]+", text))
    if min(sizes) < 1 or sum(sizes) != length:
        raise ValueError(
            f"the sizes of {_quoted(name)} add up to {sum(sizes)}; each must be 1 or more, and all {length}"
        )
    return sizes


def _token_ids(array: np.ndarray | None, length: int) -> tuple[int, ...] | None:
    if array is None:
        return None
    if array.dtype.kind not in "iu" or array.shape != (length,):
        raise ValueError(f"token_ids are {array.dtype} of shape {array.shape}; they must be whole numbers, ({length},)")
    return tuple(array.tolist())


def _quoted(name: str) -> str:
    """A name from the file, short and on one line."""
    return repr(name if len(name) <= 40 else name[:40] + "…")
