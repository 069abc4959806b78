"""Going back: a cache as it was after its first n tokens, where what later queries need is still there."""

from __future__ import annotations

import numpy as np

from kvcore.cache import KVCache
from kvcore.config import check_int
from kvcore.rules import RIGHT, ByLayer, Rules


def crop(cache: KVCache, n_tokens: int, rules: ByLayer = RIGHT) -> KVCache:
    """The cache of the first n_tokens tokens; the given one stays as it is.

    Raises ValueError for more tokens than were processed, and where an entry that the query at position
    n_tokens reads was already evicted: a window W kept in C slots goes back by at most C − W + 1 tokens.
    """
    check_int("the number of tokens to keep", n_tokens, 0, cache.n_processed)
    pattern = (rules,) if isinstance(rules, Rules) else rules
    for index, layer in enumerate(cache.layers):
        needed = pattern[index % len(pattern)].visible(np.array([n_tokens]), np.arange(n_tokens))[0]
        missing = np.setdiff1d(np.flatnonzero(needed), layer.position)
        if missing.size:
            raise ValueError(
                f"layer {index} no longer holds position {missing[0]}, which the token at position {n_tokens}"
                " reads; keep more tokens, or start anew"
            )
    return KVCache(tuple(layer.before(n_tokens) for layer in cache.layers), n_tokens)
