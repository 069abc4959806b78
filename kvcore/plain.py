"""The lab decoder once more in plain NumPy, one token a step: what `bench` measures the engine against.

It shares nothing with the engine but the definition: its cache grows by `np.concatenate`, so every
step copies all that is cached.
"""

from __future__ import annotations

import numpy as np

from kvcore.config import DecoderConfig


class PlainDecoder:
    """One sequence in float64, as many KV heads as heads; same parameters and hidden states as the engine's."""

    def __init__(self, config: DecoderConfig) -> None:
        rng = np.random.default_rng(config.seed)
        d_model, shape = config.d_model, (config.d_model, config.d_model)
        self.n_heads, self.head_dim = config.n_heads, config.head_dim
        self.table = rng.normal(0, 0.3, (config.vocab_size, d_model))
        self.weights = [[rng.normal(0, 0.25, shape) for _ in range(3)] for _ in range(config.n_layers)]
        self.wavelengths = 10000.0 ** (np.arange(0, d_model, 2) / d_model)
        self.restart()

    def restart(self) -> None:
        """Forget all tokens; the parameters stay."""
        self.position = np.empty(0, dtype=np.int64)
        self.keys = [np.empty((self.n_heads, 0, self.head_dim)) for _ in self.weights]
        self.values = [np.empty((self.n_heads, 0, self.head_dim)) for _ in self.weights]

    def step(self, token_id: int) -> np.ndarray:
        """The next token's hidden state (d_model,)."""
        position = len(self.position)
        self.position = np.append(self.position, position)
        angle = position / self.wavelengths
        x = self.table[token_id].copy()
        x[0::2] += np.sin(angle)
        x[1::2] += np.cos(angle)
        heads = (self.n_heads, 1, self.head_dim)
        for layer, (w_q, w_k, w_v) in enumerate(self.weights):
            query = (x @ w_q).reshape(heads)
            key = self.keys[layer] = np.concatenate([self.keys[layer], (x @ w_k).reshape(heads)], axis=1)
            value = self.values[layer] = np.concatenate([self.values[layer], (x @ w_v).reshape(heads)], axis=1)
            scores = query @ key.transpose(0, 2, 1) / np.sqrt(self.head_dim)
            scores = np.where(self.position <= position, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            x = np.tanh(x + (weights @ value).reshape(-1))
        return x
