"""Positions as a turn of queries and keys."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

ROTARY_BASE = 10000.0


@lru_cache(maxsize=512)
def _turns(positions: bytes, shape: tuple[int, ...], half: int, base: float, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Cosines and signed sines of every turn, (…, n, head_dim); the same few positions come again and again."""
    where = np.frombuffer(positions, dtype=np.float64).reshape(shape)
    angle = where[..., None] * base ** (-np.arange(half) / half)
    if angle.ndim == 3:
        angle = angle[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    both = np.concatenate([cos, cos], axis=-1), np.concatenate([-sin, sin], axis=-1)
    return tuple(torch.from_numpy(part).to(dtype) for part in both)


def rotate(rows: Tensor, positions: np.ndarray, base: float = ROTARY_BASE) -> Tensor:
    """Rows (batch, heads, n, head_dim) turned by their positions (n,) or (batch, n): rotary positions.

    Numbers i and i + head_dim/2 form a pair that turns by p · base^(−2i/head_dim) (Su et al., "RoFormer",
    2021, equation 15; which numbers pair up is a convention). The product of a turned query and a turned
    key depends on the difference of their positions only, and turning by p and then by q turns by p + q.
    """
    half = rows.shape[-1] // 2
    where = np.ascontiguousarray(positions, dtype=np.float64)
    cos, sin = _turns(where.tobytes(), where.shape, half, base, rows.dtype)
    first, second = rows.split_with_sizes((half, half), dim=-1)
    return rows * cos + torch.cat([second, first], dim=-1) * sin
