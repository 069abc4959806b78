"""Which sequences are run, and split into which calls: the battery, before anything has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Sizes = tuple[int, ...]

ONES = "token by token"
ONE_CALL = "one call"
EQUAL = "equal chunks"
HALVES = "two halves"
UNEQUAL = "unequal chunks"
PREFILL = "prefill, then ones"
CHUNKS_LAST = "ones, then chunks"

BASE = "your tokens"
CONSTANT = "one token repeated"
SHORT = "your first tokens"
RESPONSE_ONES = "prefill, then three ones"
RESPONSE_CHUNK = "prefill, then a chunk"
LONGER = "your tokens repeated"

LONG_ENOUGH = 16
"""Sequences shorter than this are also run repeated to this length, where the model takes it."""


def unequal(length: int) -> Sizes:
    """Chunks of all different sizes, the largest first: 12 → 5, 4, 3."""
    n_chunks = max(n for n in range(1, length + 1) if n * (n + 1) // 2 <= length and n <= 3)
    rest = length - n_chunks * (n_chunks - 1) // 2
    sizes = [rest // n_chunks + n_chunks - 1 - index for index in range(n_chunks)]
    sizes[0] += length - sum(sizes)
    return tuple(sizes)


def equal(length: int, size: int) -> Sizes:
    """Chunks of `size`, and what is left."""
    return (size,) * (length // size) + ((length % size,) if length % size else ())


def limited(sizes: Sizes, most: int | None) -> Sizes:
    """No chunk longer than `most`."""
    if most is None:
        return sizes
    return tuple(part for size in sizes for part in equal(size, most))


def splits(length: int, max_chunk: int | None, more: Sequence[Sequence[int]] = ()) -> dict[str, Sizes]:
    """The ways in which a sequence is split into calls, by name; such as have become the same are left out."""
    half = (length + 1) // 2
    found = {
        ONES: (1,) * length,
        ONE_CALL: (length,),
        PREFILL: (half,) + (1,) * (length - half),
        UNEQUAL: unequal(length),
        EQUAL: equal(length, 2),
        HALVES: (half, length - half),
        CHUNKS_LAST: (1,) * half + (min(2, length - half), *equal(max(0, length - half - 2), 3)),
    }
    for sizes in more:
        found["+".join(map(str, sizes))] = tuple(sizes)
    kept: dict[str, Sizes] = {}
    for name, sizes in found.items():
        sizes = limited(tuple(size for size in sizes if size), max_chunk)
        if sizes not in kept.values():
            kept[name] = sizes
    return kept


def responses(length: int, max_chunk: int | None) -> dict[str, Sizes]:
    """Short splits in which many edits are followed: half the tokens, and then three more."""
    half = (length + 1) // 2
    if length - half < 3:
        return {}
    found = {RESPONSE_ONES: (half, 1, 1, 1), RESPONSE_CHUNK: (half, 3)}
    return {name: limited(sizes, max_chunk) for name, sizes in found.items()}


@dataclass(frozen=True)
class Edit:
    """The base sequence with the token at `position` replaced."""

    position: int
    token_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"token {self.position} edited"


def edits(token_ids: Sequence[int], alternatives: Sequence[int], positions: Sequence[int]) -> list[Edit]:
    """One edit a position, to another of the ids that may be used; none where there is no other id."""
    found = []
    for position in positions:
        # The id after the own one in the order of first use, so that the edit follows from the ids alone.
        order = list(dict.fromkeys(alternatives))
        start = order.index(token_ids[position]) + 1 if token_ids[position] in order else 0
        others = [token for token in order[start:] + order[:start] if token != token_ids[position]]
        if others:
            changed = (*token_ids[:position], others[0], *token_ids[position + 1 :])
            found.append(Edit(position, changed))
    return found


def edit_positions(length: int) -> list[int]:
    """Positions to edit in `full`: all, or about sixteen of them in long sequences."""
    step = max(1, length // 16)
    return list(range(0, length - 1, step))


def probed(length: int) -> list[int]:
    """Positions whose edits are also followed through the cache: an early one, and one inside a late chunk."""
    early, late = min(2, length - 2), max(0, length - 2)
    middle = min(length - 2, (length + 1) // 2 + 1)
    return sorted({early, middle, late})


def answered(length: int) -> list[int]:
    """Positions whose edits are followed in the short splits: the first ones of the prompt, its last, the new ones."""
    half = (length + 1) // 2
    early = list(range(0, half - 1, max(1, half // 5)))
    return sorted({*early, half - 1, half, half + 1})


def repeated(token_ids: Sequence[int], length: int) -> tuple[int, ...]:
    """The sequence over and over, cut at `length`."""
    return tuple(token_ids[index % len(token_ids)] for index in range(length))


def starts(sizes: Sizes) -> list[int]:
    """The positions at which calls begin."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + size)
    assert all(a < b for a, b in pairwise(found))
    return found[:-1]


def positions_of(sizes: Sizes) -> list[np.ndarray]:
    """The positions of each call's tokens."""
    return [np.arange(start, start + size) for start, size in zip(starts(sizes), sizes, strict=True)]
