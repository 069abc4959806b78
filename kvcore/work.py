"""Closed-form counts of the work and storage of each decode path. Counts are not a speed-up.

L layers, T tokens, t = 1..T. Projected rows: every row that enters a Q, K or V projection. Score
elements, for one query head: every entry of an allocated score matrix, masked ones too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class Work(NamedTuple):
    """Projected rows and score elements of one or more calls."""

    projected_rows: int
    score_elements: int

    def __add__(self, other: Work) -> Work:
        return Work(self.projected_rows + other.projected_rows, self.score_elements + other.score_elements)


def _sum_to(n: int) -> int:
    """1 + 2 + … + n."""
    return n * (n + 1) // 2


def _sum_of_squares_to(n: int) -> int:
    """1² + 2² + … + n²."""
    return n * (n + 1) * (2 * n + 1) // 6


def full(n_layers: int, length: int) -> Work:
    """One call: 3·L·T rows, L·T² score elements."""
    return Work(3 * n_layers * length, n_layers * length**2)


def prefix_recomputation(n_layers: int, length: int) -> Work:
    """Every prefix anew: 3·L·Σt rows, L·Σt² score elements."""
    return Work(3 * n_layers * _sum_to(length), n_layers * _sum_of_squares_to(length))


def token_cache(n_layers: int, length: int) -> Work:
    """One token a call: 3·L·T rows, L·Σt score elements."""
    return Work(3 * n_layers * length, n_layers * _sum_to(length))


def chunk_cache(n_layers: int, chunk_sizes: Sequence[int]) -> Work:
    """Blocks of c tokens that end at position `end`: 3·L·T rows, L·Σ c·end score elements."""
    score = sum(size * end for size, end in zip(chunk_sizes, accumulate(chunk_sizes), strict=True))
    return Work(3 * n_layers * sum(chunk_sizes), n_layers * score)


def prompt_then_tokens(n_layers: int, prompt: int, length: int) -> Work:
    """The chunk cache with P tokens in one call, then one a call: 3·L·T rows, L·(P² + Σ t from P + 1 to T)."""
    start = min(prompt, length)
    score = start**2 + _sum_to(length) - _sum_to(start)
    return Work(3 * n_layers * length, n_layers * score)


def sliding_cache(n_layers: int, length: int, window: int, n_sinks: int = 0) -> Work:
    """One token a call, attending before it evicts: L·Σ min(t, n_sinks + W + 1) score elements."""
    most = n_sinks + window + 1
    grown = min(length, most)
    return Work(3 * n_layers * length, n_layers * (_sum_to(grown) + (length - grown) * most))


def cropped_recomputation(n_layers: int, length: int, crop: int) -> Work:
    """The last C raw tokens anew each time: 3·L·Σ min(t, C) rows, L·Σ min(t, C)² score elements."""
    grown = min(length, crop)
    rows = _sum_to(grown) + (length - grown) * crop
    score = _sum_of_squares_to(grown) + (length - grown) * crop**2
    return Work(3 * n_layers * rows, n_layers * score)


def payload_bytes(n_layers: int, kept: int, n_kv_heads: int, head_dim: int, itemsize: int) -> int:
    """Bytes of the kept keys and values: 2·L·kept·n_kv_heads·head_dim·itemsize."""
    return 2 * n_layers * kept * n_kv_heads * head_dim * itemsize
