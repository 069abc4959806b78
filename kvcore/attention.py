"""The one attention formula, used by every path, model and cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from kvcore.masks import rows_without_keys


def attention(
    query: Tensor, key: Tensor, value: Tensor, visible: np.ndarray, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √head_dim over the visible keys) v (Vaswani et al. 2017, equation 1).

    query (batch, n_heads, n, head_dim); key and value (batch, n_kv_heads, n_keys, head_dim);
    visible (n, n_keys), True where a key may be read; bias (n_heads, n, n_keys), added to the scores.
    Query head h reads KV head h // (n_heads / n_kv_heads).

    Returns the context (batch, n_heads, n, head_dim) and the weights (batch, n_heads, n, n_keys).
    Each row of weights sums to 1 and is exactly 0 where not visible.

    Raises ValueError for a query row without a visible key, heads that do not divide, and a mask
    of another shape.
    """
    batch, n_heads, n_queries, head_dim = query.shape
    n_kv_heads, n_keys = key.shape[1:3]
    if n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} heads cannot share {n_kv_heads} KV heads; n_kv_heads must divide n_heads")
    if visible.shape != (n_queries, n_keys):
        raise ValueError(f"the mask is {visible.shape} for {n_queries} queries and {n_keys} keys")
    everything = np.count_nonzero(visible) == visible.size
    if not everything and not visible.any(axis=-1).all():
        row = rows_without_keys(visible)[0]
        raise ValueError(f"query row {row} sees no key; every query must see at least one")

    # The query heads that share a KV head lie next to each other: their rows are stacked, no key is copied.
    stacked = (query / math.sqrt(head_dim)).reshape(batch * n_kv_heads, -1, head_dim)
    scores = torch.bmm(stacked, key.flatten(0, 1).mT).view(batch, n_heads, n_queries, n_keys)
    if bias is not None:
        scores += bias
    if not everything:
        scores.masked_fill_(torch.from_numpy(~visible), -math.inf)
    weights = torch.softmax(scores, -1, out=scores)  # in place: the scores are not needed any more
    context = torch.bmm(weights.view(batch * n_kv_heads, -1, n_keys), value.flatten(0, 1))
    return context.view(batch, n_heads, n_queries, head_dim), weights


def split_heads(rows: Tensor, n_heads: Sequence[int]) -> tuple[Tensor, ...]:
    """(batch, n, sum(n_heads) · head_dim) → one (batch, heads, n, head_dim) for each number of heads."""
    batch, n_rows, width = rows.shape
    total = sum(n_heads)
    return rows.view(batch, n_rows, total, width // total).transpose(1, 2).split_with_sizes(n_heads, dim=1)


def merge_heads(context: Tensor) -> Tensor:
    """(batch, n_heads, n, head_dim) → (batch, n, n_heads · head_dim)."""
    return context.transpose(1, 2).flatten(-2)
