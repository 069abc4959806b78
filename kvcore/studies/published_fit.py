"""What fits beside the weights on a device: how many sequences, and how long one may grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcore.published import fits
from kvcore.published.fits import Fit
from kvcore.published.layer import Description
from kvcore.published.sizes import MOST_BATCH, Ask, size
from kvcore.studies.published_curves import grown

GIB = 1 << 30


@dataclass(frozen=True)
class Fits:
    """Memory and weights are bytes of one device; both answers are None where the weights alone are too large."""

    memory: int
    weights: int
    sequences: Fit | None
    longest: Fit | None


def weight_bytes(millions: int, bits: int, devices: int) -> int:
    """Bytes of the weights on one device, dealt out evenly."""
    return -(-millions * 1_000_000 * bits // (8 * devices))


def fit(model: Description, ask: Ask, memory: int, weights: int) -> Fits:
    """Both answers."""
    if weights >= memory:
        return Fits(memory, weights, None, None)
    return Fits(
        memory,
        weights,
        fits.sequences(model, ask, memory, weights),
        fits.longest_context(model, ask, memory, weights),
    )


def sequences_at(model: Description, ask: Ask, found: Fits, contexts: Sequence[int]) -> list[int]:
    """Sequences that fit at each context: bytes grow in step with the batch, so what is left is divided by one's."""
    if found.sequences is None:
        return [0] * len(contexts)
    left = found.memory - found.weights
    alone = replace(ask, batch=1)
    state = size(model, alone).fixed_state_bytes or 0
    each = [grew + state for grew in grown(model, alone, contexts, on_one_device=True)]
    return [left // one if one else MOST_BATCH for one in each]
