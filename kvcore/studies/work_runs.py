"""The recorded calls of the counted paths, kept between requests: a longer run begins with those of a shorter one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvcore.budget import WORK_BUDGET, estimate
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.paths import Call
from kvcore.studies.work_paths import MAX_RUN, WorkPath, work_paths

BLOCK = 8
"""Runs are made for a multiple of so many tokens, so that most steps of the T slider find theirs made."""


def run_length(path: WorkPath, length: int) -> int:
    """How many tokens are run to count the first `length`: more where the calls up to there are the same."""
    return length if path.single_call else -(-length // BLOCK) * BLOCK


def recorded(decoder: DecoderConfig, path: WorkPath, length: int) -> tuple[Call, ...]:
    """The calls that process the first `length` tokens."""
    calls = _run(decoder, path.name, path.first, path.window, run_length(path, length))
    return tuple(call for call in calls if call.cache_position[-1] < length)


@lru_cache(maxsize=64)
def _run(decoder: DecoderConfig, name: str, prompt: int, window: int | None, length: int) -> tuple[Call, ...]:
    path = next(path for path in work_paths(decoder.n_layers, prompt, window) if path.name == name)
    return path.run(LabDecoder(decoder), lab_token_ids(length)).calls


class Allowance:
    """What is left of the work budget while one request is planned."""

    def __init__(self, decoder: DecoderConfig) -> None:
        self._decoder, self._left = decoder, WORK_BUDGET

    def grants(self, path: WorkPath, length: int) -> bool:
        """Whether the first `length` tokens may be run; if so, their cost is taken off."""
        if length > MAX_RUN:
            return False
        spans: Sequence[tuple[int, int]] = path.spans(run_length(path, length))
        cost = estimate(self._decoder, spans, with_cache=path.with_cache, kept=path.window)
        if cost > self._left:
            return False
        self._left -= cost
        return True
