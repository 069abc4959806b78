"""The runs behind the work counts: what may be run within the budget, and the calls each run recorded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvcore.budget import WORK_BUDGET, estimate
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.paths import Call
from kvcore.studies.work_paths import MAX_RUN, WorkPath, work_paths

BUDGET = WORK_BUDGET * 13 // 20
"""A smaller share than other requests get, since the many single-token calls here cost more than their estimate."""

DRAWN = 32
"""Steps and positions that the picture of the work shows at most."""

SKETCH = DecoderConfig(d_model=2, n_layers=1)
"""Draws a path that is too large to run: which positions a call computes and reads depends on no width or depth."""

BLOCK = 8
"""Runs are made for a multiple of so many tokens, so that most steps of the T slider find theirs made."""


def run_length(path: WorkPath, length: int) -> int:
    """How many tokens are run to count the first `length`: more where the calls up to there are the same."""
    return length if path.single_call else -(-length // BLOCK) * BLOCK


def recorded(decoder: DecoderConfig, path: WorkPath, length: int) -> tuple[Call, ...]:
    """The calls that process the first `length` tokens; a longer run kept from before begins with them."""
    return _first(decoder, decoder.n_layers, path, length)


def sketched(decoder: DecoderConfig, path: WorkPath, length: int) -> tuple[Call, ...]:
    """The same positions call by call, run by `SKETCH` in place of the decoder."""
    return _first(SKETCH, decoder.n_layers, path, length)


def _first(decoder: DecoderConfig, n_layers: int, path: WorkPath, length: int) -> tuple[Call, ...]:
    calls = _run(decoder, n_layers, path.name, path.first, path.window, run_length(path, length))
    return tuple(call for call in calls if call.cache_position[-1] < length)


@lru_cache(maxsize=64)
def _run(
    decoder: DecoderConfig, n_layers: int, name: str, prompt: int, window: int | None, length: int
) -> tuple[Call, ...]:
    """The path as it is for `n_layers`, on which the raw tokens of a crop depend."""
    path = next(path for path in work_paths(n_layers, prompt, window) if path.name == name)
    return path.run(LabDecoder(decoder), lab_token_ids(length)).calls


class Allowance:
    """What is left of the budget while one request is planned; a sketch of every path is taken off at once."""

    def __init__(self, decoder: DecoderConfig, paths: Sequence[WorkPath], length: int) -> None:
        self._decoder, self._left = decoder, BUDGET
        drawn = min(length, DRAWN)
        self._left -= sum(_cost(SKETCH, path, drawn) for path in paths)

    def grants(self, path: WorkPath, length: int) -> bool:
        """Whether the first `length` tokens may be run; if so, their cost is taken off."""
        return length <= MAX_RUN and self._take(_cost(self._decoder, path, length))

    def grants_cases(self, prompt: int) -> bool:
        """Whether the cases of a prompt and one token may be run, with the cache and without; as `grants`."""
        cached = estimate(self._decoder, [(0, prompt), (prompt, prompt + 1)], with_cache=True)
        anew = estimate(self._decoder, [(0, prompt), (0, prompt + 1)], with_cache=False)
        return prompt < MAX_RUN and self._take(cached + anew)

    def _take(self, cost: int) -> bool:
        if cost > self._left:
            return False
        self._left -= cost
        return True


def _cost(decoder: DecoderConfig, path: WorkPath, length: int) -> int:
    spans = path.spans(run_length(path, length))
    return estimate(decoder, spans, with_cache=path.with_cache, kept=path.window)
