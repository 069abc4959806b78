"""The decode paths: the same tokens, split into calls in different ways.

Every path is a list of calls. What differs is which tokens a call gets, whether the cache of the
call before goes in, and the rules of the step; of what a call returns, the rows that no earlier
call has given are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from kvcore.cache import KVCache
from kvcore.config import check_chunk_sizes, check_int, check_token_ids
from kvcore.model import LabDecoder, Step
from kvcore.rules import RIGHT, ByLayer
from kvcore.work import Work


class Call(NamedTuple):
    """What one call read and cost, counted from the tensors it used."""

    cache_position: np.ndarray  # (n,), absolute positions of the tokens it was given
    key_position: np.ndarray  # (n_keys,), absolute positions its first layer attended over
    work: Work
    payload_bytes: int  # keys and values kept after the call
    attention: np.ndarray  # (n_layers, batch, n_heads, n, n_keys), float64


@dataclass(frozen=True, eq=False)
class PathRun:
    """One path's rows, as float64 NumPy arrays.

    hidden (…, rows, d_model); by_layer (n_layers, …, rows, d_model), the last being `hidden`;
    position (rows,), absolute; … is the batch, where the token ids had one.
    """

    position: np.ndarray
    hidden: np.ndarray
    by_layer: np.ndarray
    calls: tuple[Call, ...]

    @property
    def work(self) -> Work:
        return sum((call.work for call in self.calls), Work(0, 0))

    @property
    def payload_bytes(self) -> int:
        return self.calls[-1].payload_bytes


def count_work(step: Step) -> Work:
    """Counted, not computed: rows of the query, key and value tensors, entries of one head's score matrix."""
    rows = sum(tensor.shape[-2] for layer in step.layers for tensor in (layer.query, layer.key, layer.value))
    scores = sum(math.prod(layer.weights.shape[-2:]) for layer in step.layers)
    return Work(rows, scores)


def run_calls(
    decoder: LabDecoder,
    token_ids: np.ndarray,
    spans: Iterable[tuple[int, int]],
    *,
    with_cache: bool,
    cache: KVCache | None = None,
    rules: ByLayer = RIGHT,
    record_attention: bool = False,
) -> PathRun:
    """Run tokens start..stop − 1 for each span in turn; every token keeps its absolute position.

    token_ids (T,) or (batch, T). The first call gets `cache`; it may be an empty one of fixed capacity.
    """
    token_ids = check_token_ids(token_ids, decoder.config.vocab_size)
    done, calls, rows = None, [], []
    for start, stop in spans:
        step = decoder.step(token_ids[..., start:stop], cache, rules, cache_position=np.arange(start, stop))
        done = start if done is None else done
        # Cloned: a view of the last row would keep all rows of its call alive.
        rows.append([layer.hidden[:, done - stop :].clone() for layer in step.layers])
        weights = [layer.weights.double().numpy() for layer in step.layers] if record_attention else []
        calls.append(
            Call(
                np.arange(start, stop),
                step.layers[0].key_position,
                count_work(step),
                step.cache.payload_bytes if with_cache else 0,
                np.stack(weights) if weights else np.empty(0),
            )
        )
        cache, done = step.cache if with_cache else None, stop
    by_layer = torch.stack([torch.cat(layer, dim=1) for layer in zip(*rows, strict=True)]).double().numpy()
    by_layer = by_layer if token_ids.ndim == 2 else by_layer[:, 0]
    return PathRun(np.arange(stop - by_layer.shape[-2], stop), by_layer[-1], by_layer, tuple(calls))


def _checked(decoder: LabDecoder, token_ids: object) -> tuple[np.ndarray, int]:
    """Token ids (T,) or (batch, T), refused before they are split, and T."""
    token_ids = check_token_ids(token_ids, decoder.config.vocab_size)
    return token_ids, token_ids.shape[-1]


def full(decoder: LabDecoder, token_ids: np.ndarray, rules: ByLayer = RIGHT, record_attention: bool = False) -> PathRun:
    """All tokens in one call: the reference. With a windowed mask in `rules`, the windowed reference."""
    token_ids, length = _checked(decoder, token_ids)
    return run_calls(
        decoder, token_ids, [(0, length)], with_cache=False, rules=rules, record_attention=record_attention
    )


def prefix_recomputation(decoder: LabDecoder, token_ids: np.ndarray, rules: ByLayer = RIGHT) -> PathRun:
    """Tokens 0..t without a cache for t = 0..T − 1; the last row of each."""
    token_ids, length = _checked(decoder, token_ids)
    spans = [(0, t + 1) for t in range(length)]
    return run_calls(decoder, token_ids, spans, with_cache=False, rules=rules)


def cached(
    decoder: LabDecoder,
    token_ids: np.ndarray,
    chunk_sizes: Sequence[int] | None = None,
    rules: ByLayer = RIGHT,
    cache: KVCache | None = None,
) -> PathRun:
    """Blocks of `chunk_sizes` tokens, one at a time without them: token, chunk and sliding cache, by `rules`."""
    token_ids, length = _checked(decoder, token_ids)
    sizes = (1,) * length if chunk_sizes is None else check_chunk_sizes(chunk_sizes, length)
    ends = np.cumsum(sizes).tolist()
    spans = [(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return run_calls(decoder, token_ids, spans, with_cache=True, cache=cache, rules=rules)


def cropped_recomputation(decoder: LabDecoder, token_ids: np.ndarray, crop: int, rules: ByLayer) -> PathRun:
    """The last `crop` raw tokens at their true positions, without a cache; the last row of each."""
    token_ids, length = _checked(decoder, token_ids)
    check_int("crop", crop, 1)
    spans = [(max(0, t + 1 - crop), t + 1) for t in range(length)]
    return run_calls(decoder, token_ids, spans, with_cache=False, rules=rules)
