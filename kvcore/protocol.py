"""The recorded experiment's settings: what may be asked for, without PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kvcore.config import (
    DTYPES,
    TOLERANCE,
    DecoderConfig,
    check_choice,
    check_chunk_sizes,
    check_int,
    lab_token_ids,
)


@dataclass(frozen=True)
class Protocol:
    """One run of the experiment: seeds, tokens and their split, the decoder's shape, and the tolerance.

    `tolerance` None stands for the dtype's own. Token ids follow: (7i + 3) mod vocab_size.
    """

    seeds: tuple[int, ...] = (7, 19, 41)
    length: int = 24
    chunk_sizes: tuple[int, ...] = (5, 3, 7, 9)
    window: int = 4
    n_layers: int = 2
    d_model: int = 16
    vocab_size: int = 32
    dtype: str = "float64"
    tolerance: float | None = None

    def __post_init__(self) -> None:
        seeds = tuple(check_int("a seed", seed, 0) for seed in self.seeds)
        if not seeds:
            raise ValueError("no seed is given; give at least one whole number 0 or more")
        if len(set(seeds)) < len(seeds):
            twice = next(seed for index, seed in enumerate(seeds) if seed in seeds[:index])
            raise ValueError(f"seed {twice} is given twice; each seed is run once")
        check_int("length", self.length, 2, 256)
        sizes = check_chunk_sizes(self.chunk_sizes, self.length, at_least=2)
        check_int("window", self.window, 1)
        check_int("layers", self.n_layers, 1, 6)
        if check_int("d_model", self.d_model, 2, 128) % 2:
            raise ValueError(f"d_model is {self.d_model}; it must be an even number from 2 to 128")
        check_int("vocabulary", self.vocab_size, 2, 1024)
        check_choice("dtype", self.dtype, DTYPES)
        tolerance = TOLERANCE[self.dtype] if self.tolerance is None else self.tolerance
        if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
            raise ValueError(f"tolerance is {tolerance!r}; it must be a positive finite number such as 1e-12")
        if not (tolerance > 0 and math.isfinite(tolerance)):
            raise ValueError(f"tolerance is {tolerance:g}; it must be a positive finite number such as 1e-12")
        for name, value in (("seeds", seeds), ("chunk_sizes", sizes), ("tolerance", float(tolerance))):
            object.__setattr__(self, name, value)

    def decoder(self, seed: int) -> DecoderConfig:
        return DecoderConfig(
            seed=seed, vocab_size=self.vocab_size, d_model=self.d_model, n_layers=self.n_layers, dtype=self.dtype
        )

    @property
    def token_ids(self) -> np.ndarray:
        """(length,)."""
        return lab_token_ids(self.length, self.vocab_size)

    @property
    def edited_token_ids(self) -> np.ndarray:
        """(length,): the future edit, every token from length // 2 on replaced by (token + 1) mod vocab_size."""
        edited = self.token_ids
        edited[self.first_edited :] = (edited[self.first_edited :] + 1) % self.vocab_size
        return edited

    @property
    def first_edited(self) -> int:
        return self.length // 2

    @property
    def second_chunk(self) -> slice:
        """Positions of the second chunk, the one that the wrong chunk mask is tried on."""
        first, second = self.chunk_sizes[:2]
        return slice(first, first + second)

    @property
    def crop_is_exact(self) -> bool:
        """Whether recomputing the last `window` raw tokens is right: it reaches back as far as the windowed path."""
        return self.n_layers == 1 or self.window == 1 or self.window >= self.length

    def in_words(self) -> str:
        return (
            f"{self.length} tokens in chunks {'+'.join(map(str, self.chunk_sizes))}, window {self.window},"
            f" {self.n_layers} layer{'s' if self.n_layers > 1 else ''}, d_model {self.d_model},"
            f" vocabulary {self.vocab_size}, {self.dtype}, tolerance {self.tolerance:g}"
        )
