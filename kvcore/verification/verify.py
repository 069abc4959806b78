"""`verify`: is a hand-written cache right, at which position does it first go wrong, and what mistake does that?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kvcore.threads import one_thread
from kvcore.verification.battery import run_battery
from kvcore.verification.diagnose import diagnose
from kvcore.verification.hooks import Hooks
from kvcore.verification.outputs import TokenIds
from kvcore.verification.plan import BASE
from kvcore.verification.report import Report
from kvcore.verification.simulate import Simulations
from kvcore.verification.subject import Subject
from kvcore.verification.suspects import Suspect, with_care
from kvcore.verification.trial import Trial

RANKED_BY, BEHIND = 24, 8
"""Long sequences are ranked by so many first tokens, or by so many behind the first position that differs."""


def verify(
    full: Callable[[Any], Any],
    step: Callable[[Any, Any], tuple[Any, Any]],
    token_ids: Sequence[int],
    *,
    vocab_size: int | None = None,
    alternatives: Sequence[int] | None = None,
    copy: Callable[[Any], Any] | None = None,
    in_place: bool | None = None,
    crop: Callable[[Any, int], Any] | None = None,
    reuse: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
    layers: tuple[Callable, Callable] | None = None,
    inspect: Callable[[Any], Any] | None = None,
    window: int | None = None,
    max_chunk: int | None = None,
    splits: Sequence[Sequence[int]] = (),
    rtol: float | None = None,
    atol: float | None = None,
) -> Report:
    """Compare cached decoding with the full forward at every position, under many splits of the tokens into calls.

    full(token_ids) -> (T, features): every position, no cache.
    step(token_ids, cache) -> (outputs (n, features), cache): n new tokens; cache is None at the start.
    token_ids: at least two of your own ids, a list, array or tensor; the functions get the same kind.
    Outputs may be NumPy arrays, tensors on any device or nested lists.

    vocab_size or alternatives: ids that edits may use; without them only ids in token_ids.
    copy(cache) -> cache. in_place=False declares that step leaves the cache it is given as it was.
    crop(cache, n) -> the cache of the first n tokens; may raise where it cannot.
    reuse(token_ids, cache, cached_ids) -> (outputs of the last rows, cache): answers token_ids with the help
    of a cache that holds cached_ids, as your prefix cache would.
    layers: two functions as full and step, with outputs (n_layers, n, features).
    inspect(cache) -> for each layer (keys, values, positions), keys and values (…, entries, numbers),
    positions (entries,) or None.
    window: the window your model says it has. max_chunk: the longest call it takes. splits: more ways
    to split token_ids. rtol, atol: equal means atol + rtol · the largest output; otherwise the tolerance
    follows from the number format and the scale of the outputs.

    Raises ValueError for arguments that are not what they must be, and where full does not run.
    """
    ids = TokenIds(token_ids)
    hooks = Hooks(vocab_size, alternatives, copy, in_place, crop, reuse, layers, inspect, window, max_chunk, splits)
    hooks.check(len(ids.values))
    for name, function in (("full", full), ("step", step)):
        if not callable(function):
            raise ValueError(f"{name} is {type(function).__name__}; it must be a function")
    return report(Subject(full, step, ids), hooks, rtol, atol)


def report(
    subject: Subject,
    hooks: Hooks,
    rtol: float | None = None,
    atol: float | None = None,
    simulations: Simulations | None = None,
) -> Report:
    """The report on a subject; `simulations` are those of earlier reports, where there are many."""
    begin = time.perf_counter()
    trial = run_battery(subject, hooks, rtol, atol)
    with one_thread():
        suspects = diagnose(_shorter(trial, rtol, atol), simulations) if trial.faulty else []
    return told(trial, suspects, with_care(suspects), begin)


def _shorter(trial: Trial, rtol: float | None, atol: float | None) -> Trial:
    """The battery on the first tokens alone, where they are enough to go wrong: what is ranked is also simulated."""
    firsts = [check.first_bad for check in trial.checks if check.tokens == BASE and check.first_bad is not None]
    length = max(RANKED_BY, min(firsts, default=0) + BEHIND)
    if trial.length <= 2 * length:
        return trial
    subject = trial.subject
    first_tokens = TokenIds(subject.ids.like(subject.ids.values[:length]))
    shorter = run_battery(
        Subject(subject.full_function, subject.step_function, first_tokens),
        replace(trial.hooks, splits=()),
        rtol,
        atol,
    )
    subject.calls += shorter.subject.calls
    subject.seconds += shorter.subject.seconds
    return shorter if shorter.faulty else trial


def told(trial: Trial, suspects: Sequence[Suspect], notes: Sequence[str], begin: float) -> Report:
    """The report on what was found; `begin` is the `perf_counter` at which the work on it began."""
    differences = {
        split: trial.found.difference(split, BASE) for split, sequence in trial.found.rows if sequence == BASE
    }
    return Report(
        not trial.faulty,
        trial.length,
        trial.tolerance,
        tuple(trial.checks),
        tuple(suspects),
        (*(check.note for check in trial.checks if check.verdict == "note"), *notes),
        differences,
        trial.subject.calls,
        trial.subject.seconds,
        time.perf_counter() - begin - trial.subject.seconds,
    )
