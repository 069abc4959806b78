"""What each step of a path did with each position: read off the recorded calls, nothing is assumed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvcore.paths import Call

NOT_YET, NEW, READ, AGAIN, GONE = range(5)

STATES = {
    NEW: "computed now",
    READ: "read from the cache",
    AGAIN: "computed again",
    GONE: "evicted or left out",
}
"""What a drawn cell can be; a position that has not come yet is no cell."""


def cells(calls: Sequence[Call], n_positions: int) -> np.ndarray:
    """One row a call, one column an absolute position 0..n_positions − 1, as int8 states.

    A position is computed where the call was given its token, for the first time or again; read
    where the call attended over it without its token; gone where an earlier call had it and this
    one did not.
    """
    state = np.full((len(calls), n_positions), NOT_YET, dtype=np.int8)
    n_seen = 0
    for row, call in zip(state, calls, strict=True):
        row[:n_seen] = GONE
        row[call.key_position[call.key_position < n_positions]] = READ
        given = call.cache_position[call.cache_position < n_positions]
        row[given] = np.where(given < n_seen, AGAIN, NEW)
        n_seen = max(n_seen, int(call.cache_position[-1]) + 1)
    return state
