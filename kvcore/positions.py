"""Positions as vectors that are added to the embedding, and as a bias on the scores."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


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


def alibi_slopes(n_heads: int) -> np.ndarray:
    """Slopes (n_heads,): a geometric sequence from 2^(−8/n_heads) (Press et al., "Train Short, Test Long", 2022)."""
    return 2.0 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
