"""What to suppose before the engine's faults are tried: the setting like the model's, and the calls at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kvcore.config import DecoderConfig
from kvcore.faults import Fault
from kvcore.setting import Setting
from kvcore.verification.plan import BASE, CHUNKS_LAST, ONES, positions_of
from kvcore.verification.trial import Trial

Calls = Callable[[np.ndarray], bool]
"""Whether a call at these positions is at fault."""

VOCABULARY = 128
"""Ids of the decoders that stand in for the caller's model: more than a battery on few tokens uses."""


def every_call(position: np.ndarray) -> bool:
    return True


def single_tokens(position: np.ndarray) -> bool:
    """Cached calls of one token."""
    return len(position) == 1 and bool(position[0] > 0)


def any_single_token(position: np.ndarray) -> bool:
    """Calls of one token, the first one too."""
    return len(position) == 1


def chunks(position: np.ndarray) -> bool:
    """Calls of several tokens behind a cache."""
    return len(position) > 1 and bool(position[0] > 0)


@dataclass(frozen=True)
class Longer:
    """Calls of more than `n_tokens` tokens."""

    n_tokens: int

    def __call__(self, position: np.ndarray) -> bool:
        return len(position) > self.n_tokens


@dataclass(frozen=True)
class Short:
    """Cached calls of two to `n_tokens` tokens."""

    n_tokens: int

    def __call__(self, position: np.ndarray) -> bool:
        return 1 < len(position) <= self.n_tokens and bool(position[0] > 0)


@dataclass(frozen=True)
class Late:
    """Cached calls that reach position `first` or beyond."""

    first: int

    def __call__(self, position: np.ndarray) -> bool:
        return bool(position[0] > 0 and position[-1] >= self.first)


@dataclass(frozen=True)
class After:
    """Calls behind a cache of `first` tokens or more."""

    first: int

    def __call__(self, position: np.ndarray) -> bool:
        return bool(position[0] >= self.first)


SPECIAL = (Longer, Short, Late, After)
"""Suppositions that are more particular than the kind of call."""


def calls_at_fault(trial: Trial) -> list[Calls]:
    """Kinds of calls that tell the first wrong call of every split from the right ones before it."""
    good, bad = _calls(trial)
    if not bad:
        return [every_call]
    singles = [call for call in bad if len(call) == 1]
    if len(singles) == len(bad) and any(chunks(call) for call in good):
        return [single_tokens if all(call[0] > 0 for call in bad) else any_single_token]
    if not singles and all(chunks(call) for call in bad) and any(single_tokens(call) for call in good):
        shorter = [len(call) for call in good if chunks(call)]
        longer = Longer(max(shorter, default=1))
        return [chunks, longer] if shorter and all(map(longer, bad)) else [chunks]
    guesses: list[Calls] = [
        Longer(max((len(call) for call in good), default=0)),
        Short(max(len(call) for call in bad)),
        Late(max((int(call[-1]) + 1 for call in good if call[0] > 0), default=0)),
        After(max((int(call[0]) + 1 for call in good), default=0)),
    ]
    fitting = [guess for guess in guesses if all(map(guess, bad)) and not any(map(guess, good))]
    cached_is_wrong = not any(call[0] > 0 for call in good)
    return [every_call] if cached_is_wrong else [every_call, *fitting[:1]]


def alternatives(calls: list[Calls], fault: Fault) -> list[Calls]:
    """The kinds of calls to try a fault in: one that lies in what is stored takes effect through every call."""
    in_storage = fault.fault_class in ("C9", "C11", "C12", "C17")
    return [*calls, every_call] if in_storage and every_call not in calls else calls


def _calls(trial: Trial) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Positions of the calls before the first wrong one, and of that one, over all splits of the caller's tokens."""
    good, bad = [], []
    for (kind, split, sequence), differs in trial.signature.items():
        if kind != "differs" or sequence != BASE:
            continue
        for call in positions_of(trial.splits[split]):
            if differs[call].any():
                bad.append(call)
                break
            good.append(call)
    return good, bad


def first_bad(trial: Trial, split: str) -> int | None:
    bad = np.flatnonzero(trial.signature.get(("differs", split, BASE), np.zeros(1, dtype=bool)))
    return int(bad[0]) if bad.size else None


def settings(trial: Trial) -> Iterator[tuple[Setting, Setting | None]]:
    """Settings of the engine that are like the caller's model.

    With the second of a pair only those faults are tried that need what the first has and the second lacks.
    """
    like, declared = trial.character, trial.hooks.window
    if like.reach is not None:
        for n_layers, window in _stacks(trial, like.reach):
            yield _setting(like.scheme, n_layers, (window,), like.n_sinks), None
        return
    plain = _setting(like.scheme, 2, (None,))
    yield plain, None
    for window in [declared] if declared else _windows(trial):
        yield _setting(like.scheme, 3, (window, None)), plain
    if like.scheme == "rotary":  # weak slopes look alike
        yield _setting("alibi", 2, (None,)), plain


def _setting(scheme: str, n_layers: int, windows: tuple[int | None, ...], n_sinks: int = 0) -> Setting:
    decoder = DecoderConfig(
        n_layers=n_layers, n_heads=4, n_kv_heads=2, d_model=16, vocab_size=VOCABULARY, positions=scheme
    )
    return Setting(decoder, windows, n_sinks)


def _stacks(trial: Trial, reach: int) -> list[tuple[int, int]]:
    """(layers, window) with layers · (window − 1) = reach, those first that fit where things go wrong."""
    if reach == 0:
        return [(2, 1)]
    declared = trial.hooks.window
    found = [(n, reach // n + 1) for n in (2, 3, 1, 4) if reach % n == 0 and (declared in (None, reach // n + 1))]
    first = first_bad(trial, ONES) or first_bad(trial, CHUNKS_LAST)
    if first is not None and first > 1:
        found.sort(key=lambda pair: abs(pair[1] - first))
    return found[:2] or [(1, reach + 1)]


def _windows(trial: Trial) -> list[int]:
    """Windows that a model of mixed layers may have: where influence drops, and where its runs first differ."""
    firsts = sorted({bad for split in trial.splits if (bad := first_bad(trial, split)) is not None} - {0, 1})
    guesses = ([trial.character.drop] if trial.character.drop else []) + firsts[:1]
    return list(dict.fromkeys(guesses))
