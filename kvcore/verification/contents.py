"""What lies in a cache after all tokens, beside what lies there after one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

FLAGS = (
    "more or fewer entries than tokens",
    "a position more than once",
    "a slot never written",
    "values that are the keys",
    "other keys than after one call",
    "other values than after one call",
)

Layer = tuple[np.ndarray, np.ndarray, np.ndarray | None]
"""Keys and values (…, entries, numbers), and positions (entries,) or None."""


def to_array(values: Any) -> np.ndarray:
    return values.detach().cpu().double().numpy() if hasattr(values, "detach") else np.asarray(values, dtype=np.float64)


def layers_of(inspected: Any) -> list[Layer]:
    """What the caller's inspect gave, as arrays. Raises ValueError for anything else."""
    found: list[Layer] = []
    for layer in inspected:
        key, value, *rest = layer
        position = None if not rest or rest[0] is None else to_array(rest[0]).astype(np.int64).ravel()
        key, value = to_array(key), to_array(value)
        if key.ndim < 2 or value.ndim < 2:
            raise ValueError(f"inspect gave keys of shape {key.shape}; they must be (…, entries, numbers)")
        if position is not None and len(position) != key.shape[-2]:
            raise ValueError(f"inspect gave {len(position)} positions for {key.shape[-2]} entries; give one an entry")
        found.append((key, value, position))
    return found


def flags(layer: Layer, one_call: Layer | None, length: int, beyond: float) -> np.ndarray:
    """Which of FLAGS hold for a layer's entries, (6,); a window may keep fewer entries, where positions are given."""
    key, value, position = layer
    rows = by_entry(key)
    n_entries = len(rows)
    evicted = position is not None and len(np.unique(position)) == n_entries and position.max(initial=0) == length - 1
    found = [
        n_entries != length and not evicted,
        position is not None and len(np.unique(position)) < len(position),
        n_entries > 0 and not rows.any(axis=-1).all(),
        key.shape == value.shape and bool(np.array_equal(key, value)),
    ]
    pairs = [(by_entry(key), by_entry(one_call[0])), (by_entry(value), by_entry(one_call[1]))] if one_call else []
    for mine, other in pairs:
        n_common = min(len(mine), len(other))
        if mine.shape[1] != other.shape[1]:
            found.append(True)
            continue
        gap = np.abs(mine[len(mine) - n_common :] - other[len(other) - n_common :])
        found.append(bool(gap.size and not (gap.max() <= beyond)))
    return np.array(found + [False] * (len(FLAGS) - len(found)))


def by_entry(tensor: np.ndarray) -> np.ndarray:
    """(…, entries, numbers) → (entries, all numbers of an entry)."""
    moved = np.moveaxis(tensor, -2, 0)
    return moved.reshape(len(moved), int(np.prod(moved.shape[1:])))


def in_time(layer: Layer) -> Layer:
    """The entries in the order of their positions, where these are known."""
    key, value, position = layer
    if position is None:
        return layer
    order = np.argsort(position, kind="stable")
    return key[..., order, :], value[..., order, :], position[order]


def in_words(found: np.ndarray) -> str:
    return "; ".join(word for word, holds in zip(FLAGS, found, strict=True) if holds)


def first_and_last(layers: Sequence[Layer]) -> dict[str, Layer]:
    return {"first layer": layers[0], "last layer": layers[-1]}
