"""The second recorded system: one multi-head attention layer on vectors, with a preallocated cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kvcore.attention import attention, merge_heads, split_heads
from kvcore.cache import KVCache
from kvcore.compare import Comparison, compare
from kvcore.config import TOLERANCE, check_int
from kvcore.masks import Mask
from kvcore.model import LayerStep, Step
from kvcore.paths import count_work
from kvcore.work import Work


@dataclass(frozen=True)
class MultiHeadConfig:
    """The recorded setting. The weights were not recorded, so only the relation cached = uncached binds."""

    seed: int = 42
    batch: int = 2
    d_model: int = 64
    n_heads: int = 4
    capacity: int = 32
    n_prompt: int = 5
    n_decode: int = 3

    dtype: ClassVar[str] = "float32"
    tolerance: ClassVar[float] = TOLERANCE["float32"]

    def __post_init__(self) -> None:
        check_int("seed", self.seed, 0)
        for name in ("batch", "d_model", "n_heads", "capacity", "n_prompt", "n_decode"):
            check_int(name, getattr(self, name), 1)
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model {self.d_model} cannot be split into {self.n_heads} heads; it must divide evenly")

    @property
    def chunk_sizes(self) -> tuple[int, ...]:
        """The prompt in one call, then single vectors."""
        return (self.n_prompt, *(1,) * self.n_decode)


class MultiHeadLayer:
    """Separate W_Q, W_K, W_V, W_O (d_model, d_model), drawn as normal(0, 1/√d_model), without bias or tanh."""

    def __init__(self, config: MultiHeadConfig, rng: np.random.Generator) -> None:
        self.n_heads = config.n_heads
        shape = (config.d_model, config.d_model)
        self.w_q, self.w_k, self.w_v, self.w_o = (
            torch.from_numpy(rng.normal(0, config.d_model**-0.5, shape)).to(torch.float32) for _ in range(4)
        )

    @torch.inference_mode()
    def step(self, x: Tensor, cache: KVCache | None = None) -> Step:
        """New rows (batch, n, d_model) behind those in `cache` (of one layer); the outputs are the step's `hidden`.

        Scores are taken over filled positions only. Raises ValueError beyond the cache's capacity; the
        given cache stays as it was.
        """
        cache = KVCache.empty(1) if cache is None else cache
        cache_position = np.arange(cache.n_processed, cache.n_processed + x.shape[1])
        query, key, value = (split_heads(x @ weight, (self.n_heads,))[0] for weight in (self.w_q, self.w_k, self.w_v))
        entries = cache.layers[0].append(key, value, cache_position)
        visible = Mask()(cache_position, entries.position)
        context, weights = attention(query, entries.key, entries.value, visible)
        out = merge_heads(context) @ self.w_o
        layer = LayerStep(query, key, value, entries.position, visible, weights, out)
        return Step(out, KVCache((entries,), cache.n_processed + x.shape[1]), [layer])


@dataclass(frozen=True, eq=False)
class MultiHeadRun:
    """Outputs (batch, positions, d_model) without and with the cache, as float64; work counted a sequence."""

    config: MultiHeadConfig
    uncached: np.ndarray
    cached: np.ndarray
    work: Work
    cached_entries: int
    payload_bytes: int

    @property
    def comparison(self) -> Comparison:
        """The largest difference over the batch at each position."""
        position = np.arange(self.cached.shape[1])
        wide = [rows.transpose(1, 0, 2).reshape(len(position), -1) for rows in (self.cached, self.uncached)]
        return compare(*wide, position, self.config.tolerance)


def run_multihead(config: MultiHeadConfig = MultiHeadConfig()) -> MultiHeadRun:
    """A prompt in one call, then single vectors from a preallocated cache, against all in one call without one."""
    rng = np.random.default_rng(config.seed)
    layer = MultiHeadLayer(config, rng)
    prompt = rng.normal(size=(config.batch, config.n_prompt, config.d_model))
    later = rng.normal(size=(config.n_decode, config.batch, 1, config.d_model))
    x = torch.from_numpy(np.concatenate([prompt, *later], axis=1)).to(torch.float32)

    uncached = layer.step(x).hidden
    cache, rows, work = KVCache.empty(1, config.capacity), [], Work(0, 0)
    for part in x.split(config.chunk_sizes, dim=1):
        step = layer.step(part, cache)
        rows.append(step.hidden)
        cache, work = step.cache, work + count_work(step)
    cached = torch.cat(rows, dim=1)
    return MultiHeadRun(
        config, uncached.double().numpy(), cached.double().numpy(), work, len(cache.layers[0]), cache.payload_bytes
    )
