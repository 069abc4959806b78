"""What fits into a memory: sequences of one context, or the longest context of some sequences; sizes inverted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvcore.config import check_int
from kvcore.published.layer import Description
from kvcore.published.sizes import MOST_BATCH, MOST_CONTEXT, Ask, size

MOST_BYTES = 1 << 60


@dataclass(frozen=True)
class Fit:
    """The largest number that fits; `bytes` is then taken on one device, and one more would take `next_bytes`.

    `unbounded` says that no number is too large, as far as is counted.
    """

    asked: str
    number: int
    bytes: int
    next_bytes: int | None
    free_bytes: int
    unbounded: bool

    def to_json(self) -> dict[str, Any]:
        return vars(self)


def device_bytes(model: Description, ask: Ask) -> int:
    """What one device keeps: its part of the K/V, and every fixed state whose size is known."""
    taken = size(model, ask)
    return taken.bytes_per_device + (taken.fixed_state_bytes or 0)


def free(budget_bytes: int, weight_bytes: int) -> int:
    """Memory of one device that is left beside its weights. Raises ValueError where there is none."""
    check_int("memory", budget_bytes, 1, MOST_BYTES)
    check_int("weights", weight_bytes, 0, MOST_BYTES)
    if weight_bytes >= budget_bytes:
        raise ValueError(
            f"weights of {weight_bytes:,} bytes leave nothing of {budget_bytes:,}; give a larger memory,"
            " fewer bytes a weight, or more devices"
        )
    return budget_bytes - weight_bytes


def sequences(model: Description, ask: Ask, budget_bytes: int, weight_bytes: int = 0) -> Fit:
    """How many sequences of `ask.context` tokens fit beside the weights on one device."""
    left = free(budget_bytes, weight_bytes)
    return _most("sequences", left, MOST_BATCH, lambda n: device_bytes(model, replace(ask, batch=n)) if n else 0)


def longest_context(model: Description, ask: Ask, budget_bytes: int, weight_bytes: int = 0) -> Fit:
    """The longest context of `ask.batch` sequences that fits beside the weights on one device."""
    left = free(budget_bytes, weight_bytes)
    return _most("tokens", left, MOST_CONTEXT, lambda n: device_bytes(model, replace(ask, context=n)))


def _most(asked: str, left: int, most: int, taken) -> Fit:
    """The largest n with taken(n) ≤ left, for `taken` that never falls; by halving the interval."""
    if taken(most) <= left:
        return Fit(asked, most, taken(most), None, left, unbounded=True)
    low, high = -1, most  # taken(low) fits, taken(high) does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(middle) <= left else (low, middle)
    number = max(low, 0)
    return Fit(asked, number, taken(number) if low >= 0 else 0, taken(number + 1), left, unbounded=False)
