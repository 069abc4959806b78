"""Positions as a turn of queries and keys."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

ROTARY_BASE = 10000.0


@lru_cache(maxsize=64)
def _turns(half: int, base: float) -> np.ndarray:
    return base ** (-np.arange(half) / half)


def rotate(rows: Tensor, positions: np.ndarray, base: float = ROTARY_BASE) -> Tensor:
    """Rows (batch, heads, n, head_dim) turned by their positions (n,) or (batch, n): rotary positions.

    Numbers i and i + head_dim/2 form a pair that turns by p · base^(−2i/head_dim) (Su et al., "RoFormer",
    2021, equation 15; which numbers pair up is a convention). The product of a turned query and a turned
    key depends on the difference of their positions only, and turning by p and then by q turns by p + q.
    """
    half = rows.shape[-1] // 2
    angle = positions[..., None] * _turns(half, base)
    if angle.ndim == 3:
        angle = angle[:, None]
    cos, sin = (torch.from_numpy(part).to(rows.dtype) for part in (np.cos(angle), np.sin(angle)))
    first, second = rows.split(half, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
