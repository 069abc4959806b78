"""What a caller may ask for: frozen configurations and the rules for token ids, positions and chunks.

Nothing here needs PyTorch, so that `audit` can check evidence without the decoder.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest absolute difference of two hidden states, which lie in (−1, 1), that counts as equal."""

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes a number."""

DTYPES = tuple(TOLERANCE)

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "none")
"""How a decoder knows where a token stands."""


def check_int(name: str, value: object, low: int, high: int | None = None) -> int:
    """`value` as an int within low..high; a bool, a float or text is refused, not rounded."""
    allowed = f"a whole number {low} or more" if high is None else f"a whole number from {low} to {high}"
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value}; it must be {allowed}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; it must be {allowed}") from None
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name} is {number}; it must be {allowed}")
    return number


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}")
    return value


def _holds_bool(values: object) -> bool:
    if isinstance(values, (list, tuple)):
        return any(map(_holds_bool, values))
    return isinstance(values, (bool, np.bool_)) or (isinstance(values, np.ndarray) and values.dtype == bool)


def _integers(name: str, values: object) -> np.ndarray:
    """`values` as an int64 array; floats and bools are refused, also one among integers."""
    if _holds_bool(values):
        raise ValueError(f"{name} must be integers; a bool is not one")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be integers in rows of equal length") from None
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers; got {array.dtype.name if array.size else 'none'}")
    return array.astype(np.int64, copy=False)


def check_token_ids(token_ids: object, vocab_size: int) -> np.ndarray:
    """Token ids as int64 of shape (n,) or (batch, n), each in 0..vocab_size − 1."""
    ids = _integers("token ids", token_ids)
    if ids.ndim not in (1, 2) or ids.size == 0:
        raise ValueError(f"token ids have shape {ids.shape}; give at least one, as (n,) or (batch, n)")
    low, high = ids.min(), ids.max()
    if low < 0 or high >= vocab_size:
        bad = low if low < 0 else high
        raise ValueError(f"token id {bad} is outside the vocabulary; ids go from 0 to {vocab_size - 1}")
    return ids


def check_positions(cache_position: object, n_new: int, n_processed: int | None) -> np.ndarray:
    """Absolute positions of n_new tokens as int64 (n_new,): non-negative, contiguous, following the cache.

    `n_processed` is None where no cache was given: the call may then start at any position.
    """
    positions = _integers("positions", cache_position)
    if positions.shape != (n_new,):
        raise ValueError(f"positions have shape {positions.shape} for {n_new} tokens; give one a token, as ({n_new},)")
    if positions[0] < 0:
        raise ValueError(f"position {positions[0]} is negative; positions count from 0")
    if (positions[1:] != positions[:-1] + 1).any():
        raise ValueError(f"positions {positions.tolist()} have a gap; each must be one more than the last")
    if n_processed is not None and positions[0] != n_processed:
        raise ValueError(
            f"position {positions[0]} does not follow the cache, which has processed {n_processed} tokens;"
            f" start at {n_processed}"
        )
    return positions


def check_chunk_sizes(chunk_sizes: Sequence[int], length: int, at_least: int = 1) -> tuple[int, ...]:
    """Chunk sizes that are positive and add up to `length`."""
    sizes = tuple(check_int("a chunk size", size, 1) for size in chunk_sizes)
    if len(sizes) < at_least:
        raise ValueError(f"{len(sizes)} chunk(s) given; at least {at_least} are needed")
    total, shown = sum(sizes), "+".join(map(str, sizes[:12])) + ("+…" if len(sizes) > 12 else "")
    if total < length:
        raise ValueError(
            f"chunks {shown} cover {total} of {length} tokens; add {length - total} more or shorten the sequence"
        )
    if total > length:
        raise ValueError(
            f"chunks {shown} cover {total} tokens but there are {length}; remove {total - length}"
            " or lengthen the sequence"
        )
    return sizes


def lab_token_ids(length: int, vocab_size: int = 32) -> np.ndarray:
    """The recorded experiment's tokens, (7i + 3) mod vocab_size for i = 0..length − 1."""
    return (7 * np.arange(length) + 3) % vocab_size


@dataclass(frozen=True)
class DecoderConfig:
    """The lab decoder: everything that decides its parameters.

    `head_dim` follows: d_model / n_heads. Query head h reads KV head h // (n_heads / n_kv_heads).
    `positions` is one of POSITIONS; `max_positions` is the size of the learned table, and of no use otherwise.
    """

    seed: int = 7
    vocab_size: int = 32
    d_model: int = 16
    n_layers: int = 2
    n_heads: int = 1
    n_kv_heads: int = 1
    dtype: str = "float64"
    positions: str = "sinusoidal"
    max_positions: int = 512

    def __post_init__(self) -> None:
        check_int("seed", self.seed, 0)
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "max_positions"):
            check_int(name, getattr(self, name), 1)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("positions", self.positions, POSITIONS)
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; it must be even, for sine and cosine come in pairs")
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.n_heads} heads; it must divide evenly")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"{self.n_heads} heads cannot share {self.n_kv_heads} KV heads; n_kv_heads must divide n_heads"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary positions turn pairs of numbers, so it must be even")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]
