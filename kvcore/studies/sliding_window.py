"""Why are W cached slots not the same as recomputing the last W tokens? A window, its cache, and what each has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kvcore import paths, reach
from kvcore.batch_positions import EachItsOwn
from kvcore.budget import estimate
from kvcore.compare import difference_by_position
from kvcore.config import DecoderConfig, check_int, lab_token_ids
from kvcore.crop_sweep import crop_sweep
from kvcore.model import LabDecoder
from kvcore.rules import absolute, from_zero, sliding, windowed
from kvcore.studies.sliding_result import Result

MAX_WINDOW = 32
MAX_LAYERS = 6
MAX_LENGTH = 64
BEYOND = 4
"""Crops that are swept after the first that must be right, to show that it stays right."""


@dataclass(frozen=True)
class Config:
    """`crop` is how many raw tokens are recomputed; `step` the position whose slots and reach are looked at."""

    window: int = 4
    n_layers: int = 2
    crop: int = 4
    step: int = 11
    length: int = 24
    seed: int = 7

    def __post_init__(self) -> None:
        check_int("window", self.window, 1, MAX_WINDOW)
        check_int("layers", self.n_layers, 1, MAX_LAYERS)
        check_int("tokens", self.length, 2, MAX_LENGTH)
        check_int("crop", self.crop, 1, MAX_LENGTH)
        check_int("step", self.step, 0, self.length - 1)
        check_int("seed", self.seed, 0)

    @property
    def decoder(self) -> DecoderConfig:
        return DecoderConfig(seed=self.seed, n_layers=self.n_layers)

    @property
    def tokens(self) -> np.ndarray:
        """Token ids (T,), the lab's."""
        return lab_token_ids(self.length, self.decoder.vocab_size)

    @property
    def recomputed(self) -> int:
        """Raw tokens that the chosen crop can hold: at most all there are."""
        return min(self.crop, self.length)

    @property
    def earliest(self) -> int:
        """p − L(W − 1) for the chosen step; negative where that lies before the first token."""
        return reach.earliest_token(self.step, self.n_layers, self.window)

    @property
    def enough(self) -> int:
        """Raw tokens whose recomputation is right at every position: L(W − 1) + 1, or all."""
        return min(self.length, self.n_layers * (self.window - 1) + 1)

    @property
    def largest_crop(self) -> int:
        """The sweep goes past what is enough and past what is chosen."""
        return min(self.length, max(self.enough + BEYOND, self.crop))


def cost(config: Config) -> int:
    """Weighted multiply-adds of one `run`; at the largest settings within `budget.WORK_BUDGET`."""
    shape, length, position = config.decoder, config.length, config.step
    ones = [(t, t + 1) for t in range(length)]
    decode_last = [(0, position), (position, position + 1)]
    edits = position + 1
    return sum(
        [
            estimate(shape, [(0, length)], with_cache=False),
            estimate(shape, ones, with_cache=True, batch=2, kept=config.window),
            *(
                estimate(shape, [(0, c)], with_cache=False, batch=length - c + 1)
                for c in range(1, config.largest_crop + 1)
            ),
            2 * estimate(shape, decode_last, with_cache=True, batch=edits, kept=config.window),
            2 * estimate(shape, [(0, min(edits, config.recomputed))], with_cache=False, batch=edits),
        ]
    )


def run(config: Config) -> Result:
    """The three ways beside the windowed full path, the slots and the reach of one step, and every crop."""
    decoder, tokens, window = LabDecoder(config.decoder), config.tokens, config.window
    reference = paths.full(decoder, tokens, windowed(window), record_attention=True)
    right_and_reset = replace(sliding(window), input_position=EachItsOwn((absolute, from_zero)))
    cached, reset = paths.cached(decoder, np.stack([tokens, tokens]), rules=right_and_reset).hidden
    cropped = crop_sweep(decoder, tokens, config.largest_crop, window)
    moved_by_cache, slots = reach.through_cache(decoder, tokens, config.step, window)
    return Result(
        config=config,
        sliding=difference_by_position(cached, reference.hidden),
        reset=difference_by_position(reset, reference.hidden),
        sweep=difference_by_position(cropped, np.broadcast_to(reference.hidden, cropped.shape)),
        slots=slots,
        feeds=reach.feeds(reference.calls[0].attention[:, 0], config.step),
        moved_by_cache=moved_by_cache,
        moved_by_crop=reach.through_crop(decoder, tokens, config.step, window, config.recomputed),
    )
