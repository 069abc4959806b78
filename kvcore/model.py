"""The lab decoder: seeded weights and one step that is prefill, chunk and decode step alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kvcore.attention import attention, merge_heads, split_heads
from kvcore.cache import KVCache, LayerCache
from kvcore.config import DecoderConfig, check_positions, check_token_ids
from kvcore.positions import alibi_slopes, sinusoidal
from kvcore.rules import RIGHT, ByLayer, Rules


class LayerStep(NamedTuple):
    """What one layer computed in one call, for those who want to look or count."""

    query: Tensor  # (batch, n_heads, n, head_dim)
    key: Tensor  # (batch, n_kv_heads, n, head_dim), the new rows only
    value: Tensor  # (batch, n_kv_heads, n, head_dim), the new rows only
    key_position: np.ndarray  # (n_keys,), of the entries attended over
    visible: np.ndarray  # (n, n_keys), the mask
    weights: Tensor  # (batch, n_heads, n, n_keys)
    hidden: Tensor  # (batch, n, d_model), after this layer


class Step(NamedTuple):
    """One call's hidden states, the cache that continues it, and its layers."""

    hidden: Tensor  # (n, d_model), or (batch, n, d_model) for a batch of token ids
    cache: KVCache
    layers: list[LayerStep]


class LabDecoder:
    """An untrained decoder whose parameters follow from `config` alone.

    Drawn in float64 with NumPy, in this order: the token table normal(0, 0.3); then for each layer
    W_Q, W_K, W_V normal(0, 0.25); last, where positions are learned, their table normal(0, 0.3); then cast
    to the dtype. Each layer is x ← tanh(x + concat_heads(attention(x W_Q, x W_K, x W_V))).
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        rng = np.random.default_rng(config.seed)
        self.dtype = getattr(torch, config.dtype)

        def draw(scale: float, *shape: int) -> Tensor:
            return torch.from_numpy(rng.normal(0, scale, shape)).to(self.dtype)

        self.table = draw(0.3, config.vocab_size, config.d_model)
        kv_width = config.n_kv_heads * config.head_dim
        widths = (config.d_model, kv_width, kv_width)
        self.projections = [
            torch.cat([draw(0.25, config.d_model, width) for width in widths], dim=1) for _ in range(config.n_layers)
        ]
        self.learned = draw(0.3, config.max_positions, config.d_model) if config.positions == "learned" else None
        self.slopes = torch.from_numpy(alibi_slopes(config.n_heads)) if config.positions == "alibi" else None

    def in_float64(self) -> LabDecoder:
        """The same, already cast, parameters computing in float64: what a lower precision is measured against."""
        exact = object.__new__(LabDecoder)
        exact.config, exact.dtype = self.config, torch.float64
        exact.table = self.table.double()
        exact.projections = [weight.double() for weight in self.projections]
        exact.learned = None if self.learned is None else self.learned.double()
        exact.slopes = self.slopes
        return exact

    @torch.inference_mode()
    def step(
        self,
        token_ids: object,
        cache: KVCache | None = None,
        rules: ByLayer = RIGHT,
        cache_position: object = None,
    ) -> Step:
        """Process new tokens behind those in `cache`; without a cache, from position 0 or `cache_position`.

        token_ids (n,) or (batch, n), integers in the vocabulary; cache_position (n,), contiguous; rules for
        every layer, or a pattern of them that repeats over the layers. The given cache stays usable. Any
        split of the same tokens into calls gives the same hidden states.
        Raises ValueError for ids or positions that break these rules.
        """
        ids = check_token_ids(token_ids, self.config.vocab_size)
        n_new = ids.shape[-1]
        if cache_position is None:
            first = cache.n_processed if cache is not None else 0
            cache_position = np.arange(first, first + n_new)
        else:
            n_processed = None if cache is None else cache.n_processed
            cache_position = check_positions(cache_position, n_new, n_processed)
        if cache is None:
            cache = KVCache.empty(self.config.n_layers)
        elif len(cache.layers) != self.config.n_layers:
            raise ValueError(f"the cache has {len(cache.layers)} layers; this decoder has {self.config.n_layers}")

        pattern = (rules,) if isinstance(rules, Rules) else rules
        x = self._embed(ids.reshape(-1, n_new), pattern[0].input_position(cache_position))
        layers, kept = [], []
        for index, (projection, entries) in enumerate(zip(self.projections, cache.layers, strict=True)):
            layer, entries = self._layer(x, projection, entries, pattern[index % len(pattern)], cache_position)
            x = layer.hidden
            layers.append(layer)
            kept.append(entries)
        hidden = x if ids.ndim == 2 else x[0]
        return Step(hidden, KVCache(tuple(kept), int(cache_position[-1]) + 1), layers)

    def _embed(self, ids: np.ndarray, where: np.ndarray) -> Tensor:
        """Tokens (batch, n) at positions (n,) or (batch, n) → (batch, n, d_model)."""
        x = self.table[torch.from_numpy(ids)]
        if self.config.positions == "sinusoidal":
            return x + torch.from_numpy(sinusoidal(where, self.config.d_model)).to(self.dtype)
        if self.learned is not None:
            if where.max() >= len(self.learned):
                raise ValueError(
                    f"position {where.max()} has no vector; this decoder learned positions 0 to {len(self.learned) - 1}"
                )
            return x + self.learned[torch.from_numpy(where)]
        return x

    def _layer(
        self, x: Tensor, projection: Tensor, entries: LayerCache, rules: Rules, cache_position: np.ndarray
    ) -> tuple[LayerStep, LayerCache]:
        """One layer of one call: what it computed, and the entries that it keeps."""
        config = self.config
        query, key, value = split_heads(x @ projection, (config.n_heads, config.n_kv_heads, config.n_kv_heads))
        if config.positions == "rotary":
            both = rules.rotate(torch.cat([query, key], dim=1), rules.rotary_position(cache_position))
            query, key = both.split_with_sizes((config.n_heads, config.n_kv_heads), dim=1)
        entries = rules.append(entries, key, value, cache_position)
        seen = rules.read(entries)
        seen_position = seen.position
        visible = rules.visible(rules.mask_position(cache_position), seen_position)
        bias = None
        if self.slopes is not None:
            distance = torch.from_numpy(rules.distance(cache_position, seen_position))
            bias = (-self.slopes[:, None, None] * distance).to(self.dtype)
        order = rules.head_order(cache_position, config.n_heads, config.n_kv_heads)
        if order is None:
            context, weights = attention(query, seen.key, seen.value, visible, bias)
        else:
            back = np.argsort(order)
            context, weights = attention(query[:, order], seen.key, seen.value, visible, bias)
            context, weights = context[:, back], weights[:, back]
        hidden = torch.tanh(x + merge_heads(context))
        return LayerStep(query, key, value, seen_position, visible, weights, hidden), rules.keep(entries)
