"""Going back after rejected drafts: one entry too many, one too few, or not at all."""

from __future__ import annotations

from kvcore.cache import KVCache
from kvcore.crop import crop
from kvcore.faults.fault import Fault, Pattern


def _one_more(cache: KVCache, n_tokens: int, rules: Pattern) -> KVCache:
    """The right count, and one rejected entry left in every layer."""
    return KVCache(crop(cache, min(n_tokens + 1, cache.n_processed), rules).layers, n_tokens)


def _one_fewer(cache: KVCache, n_tokens: int, rules: Pattern) -> KVCache:
    return crop(cache, max(0, n_tokens - 1), rules)


def _nothing(cache: KVCache, n_tokens: int, rules: Pattern) -> KVCache:
    return cache


FAULTS = (
    Fault(
        "crop_keeps_one_more",
        "C8",
        "Going back leaves one rejected entry in the cache.",
        wrong="keep accepted + 1",
        right="keep accepted",
        reported=("huggingface/transformers issue 30312", "pie PR 197"),
        hidden_by="rounds in which every draft is accepted",
        crop=_one_more,
        shown_by="crop",
    ),
    Fault(
        "crop_keeps_one_fewer",
        "C8",
        "Going back drops one accepted entry too.",
        wrong="keep accepted − 1",
        right="keep accepted",
        reported=("mlxcel PR 1002",),
        hidden_by="rounds in which every draft is accepted",
        crop=_one_fewer,
        shown_by="crop",
    ),
    Fault(
        "crop_does_nothing",
        "C8",
        "The cache cannot go back and nobody looks at what it returns.",
        wrong="keep everything",
        right="keep accepted, or refuse",
        reported=("ml-explore/mlx-lm PR 1109",),
        hidden_by="rounds in which every draft is accepted",
        crop=_nothing,
        shown_by="crop",
    ),
)
