"""What a position does: a vector added to the embedding, a turn of queries and keys, or a bias on the scores."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

ROTARY_BASE = 10000.0


@lru_cache(maxsize=64)
def _wavelengths(d_model: int) -> np.ndarray:
    return 10000.0 ** (np.arange(0, d_model, 2) / d_model)


def sinusoidal(positions: np.ndarray, d_model: int) -> np.ndarray:
    """Position vectors (n, d_model) in float64, with values in [−1, 1].

    Column 2i holds sin(p / 10000^(2i/d_model)), column 2i + 1 the cosine of the same angle
    (Vaswani et al., "Attention Is All You Need", 2017, section 3.5).
    """
    angle = positions[..., None] / _wavelengths(d_model)
    vectors = np.empty((*positions.shape, d_model))
    np.sin(angle, out=vectors[..., 0::2])
    np.cos(angle, out=vectors[..., 1::2])
    return vectors


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


def alibi_slopes(n_heads: int) -> np.ndarray:
    """Slopes (n_heads,): a geometric sequence from 2^(−8/n_heads) (Press et al., "Train Short, Test Long", 2022)."""
    return 2.0 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
