"""Timing several ways to decode side by side: they take turns, so that what else the machine does slows all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from time import perf_counter

Side = Callable[[], Iterator[object]]
"""Starts one sequence; each item is one more token decoded."""

TURN = 1024
"""Tokens that a side decodes before the other has its turn: enough to have its own data in the processor's cache."""


def measure(sides: Sequence[Side], runs: int, repeats: int = 1) -> list[list[float]]:
    """Seconds of each side in each run of `repeats` sequences, after one sequence a side that is not counted."""
    _take_turns(sides)
    counted = [[_take_turns(sides) for _ in range(repeats)] for _ in range(runs)]
    return [[sum(seconds[side] for seconds in run) for run in counted] for side in range(len(sides))]


def _take_turns(sides: Sequence[Side]) -> list[float]:
    """Decode one sequence on every side, in turns; seconds of each."""
    seconds = [0.0] * len(sides)
    sequences = {index: side() for index, side in enumerate(sides)}
    for index in cycle(range(len(sides))):
        if not sequences:
            return seconds
        if index not in sequences:
            continue
        start = perf_counter()
        decoded = sum(1 for _ in islice(sequences[index], TURN))
        seconds[index] += perf_counter() - start
        if decoded < TURN:
            del sequences[index]
    raise AssertionError("cycle never ends")
