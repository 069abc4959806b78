"""Cells of a mask as text: which are flipped, which keys a row reads, and whole rows of ones and zeros."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

MAX_FLIPPED = 256
"""Flipped cells that fit into an address."""

Cells = frozenset[tuple[int, int]]
"""Cells named by (query position, key position), both absolute."""


def parse_cells(text: str) -> Cells:
    """Cells written `query:key`, separated by commas or spaces, such as `5:3,6:7`; the empty text gives none.

    A cell named twice is one cell. Raises ValueError for anything else and for more than MAX_FLIPPED.
    """
    cells = set()
    for word in re.split(r"[,;\s]+", text.strip().strip(",;")):
        if not word:
            continue
        found = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,6})", word)
        if not found:
            shown = repr(word if len(word) <= 24 else word[:24] + "…")
            raise ValueError(
                f"{shown} is no cell; flipped cells are written query:key and separated by commas, such as 5:3,6:7"
            )
        cells.add((int(found[1]), int(found[2])))
    if len(cells) > MAX_FLIPPED:
        raise ValueError(f"{len(cells)} flipped cells are too many; at most {MAX_FLIPPED} are allowed")
    return frozenset(cells)


def write_cells(cells: Iterable[tuple[int, int]]) -> str:
    """The text that `parse_cells` reads back, in order of query and key."""
    return ",".join(f"{query}:{key}" for query, key in sorted(cells))


def inside(cells: Cells, n_cached: int, n_new: int) -> Cells:
    """The cells in the rows of the new queries; keys are the cached and the new positions."""
    length = n_cached + n_new
    return frozenset((query, key) for query, key in cells if n_cached <= query < length and key < length)


def in_ranges(positions: Iterable[int]) -> str:
    """Increasing positions as ranges: `0 and 4–6`."""
    positions = np.fromiter(positions, dtype=np.int64)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1) if positions.size else []
    words = [f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs]
    return " and ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def named(noun: str, positions: np.ndarray) -> str:
    """Positions with their noun in the right number: `key 3`, `keys 0 and 4–6`, `no key`."""
    if len(positions) == 0:
        return f"no {noun}"
    return f"{noun}{'' if len(positions) == 1 else 's'} {in_ranges(positions)}"


def mask_text(query_position: np.ndarray, visible: np.ndarray) -> str:
    """One line a query, 1 where the key of that column is visible: `q5: 1 1 1 1 1 1 0 0`."""
    rows = zip(query_position, visible.astype(int).tolist(), strict=True)
    return "\n".join(f"q{query}: {' '.join(map(str, row))}" for query, row in rows)
