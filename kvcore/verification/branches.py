"""Two continuations of one prefix, and whether a call changes the cache it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification import plan
from kvcore.verification.checks import Check, judged, not_tested
from kvcore.verification.plan import BASE, PREFILL
from kvcore.verification.subject import find_copy, holds_arrays, said
from kvcore.verification.trial import Trial


def check_branches(trial: Trial) -> None:
    """Two continuations of one prefix, taking turns, each from a copy; and whether the given cache changes."""
    half = trial.length // 2
    prefill = plan.limited((half,), trial.hooks.max_chunk)
    begun = trial.subject.run(trial.sequences[BASE][:half], prefill)
    other = next((edit for edit in trial.edits if edit.position >= half), None)
    if begun.failure is not None or other is None or trial.length - half < 2:
        trial.checks.append(not_tested("two branches", "no prefix to branch from, or no other id to branch to"))
        return
    tokens = {BASE: trial.sequences[BASE], other.name: other.token_ids}
    copy = find_copy(trial.hooks.copy, begun.cache)
    if copy is None:
        trial.checks.append(not_tested("two branches", "the cache cannot be copied; give copy"))
    else:
        _branch(trial, begun.cache, copy, tokens, half)
    _changed_in_place(trial, begun.cache, half)


def _branch(
    trial: Trial, cache: Any, copy: Callable[[Any], Any], tokens: dict[str, tuple[int, ...]], half: int
) -> None:
    linear = trial.found.rows.get((PREFILL, BASE))
    ends = [(half, half + (trial.length - half) // 2), (half + (trial.length - half) // 2, trial.length)]
    try:
        caches = {name: copy(cache) for name in tokens}
    except Exception as error:  # whatever a stranger's copy raises
        trial.checks.append(not_tested("two branches", f"copy raised {said(error)}"))
        return
    rows = {name: [] for name in tokens}
    for start, stop in ends:
        for name, sequence in tokens.items():
            done = trial.subject.run(sequence[:stop], (1,) * (stop - start), caches[name], first=start)
            if done.failure is not None:
                trial.checks.append(not_tested("two branches", done.failure.in_words()))
                return
            caches[name] = done.cache
            rows[name].append(done.rows)
    gaps = [
        difference_by_position(np.concatenate(rows[name]), trial.subject.full(sequence)[half:])
        for name, sequence in tokens.items()
    ]
    wrong = np.maximum(*gaps)
    note = "each from its own copy, taking turns"
    if trial.hooks.copy is None and not holds_arrays(cache):
        note += "; keys and values do not lie in the cache object itself"
    check = judged("two branches", BASE, wrong, trial.tolerance, half, note)
    trial.checks.append(check)
    if linear is None or not (trial.found.difference(PREFILL, BASE) > trial.tolerance.rounding).any():
        bad = np.zeros(trial.length, dtype=bool)
        bad[half:] = wrong > trial.tolerance.rounding
        trial.signature["branch", "", BASE] = bad


def _changed_in_place(trial: Trial, cache: Any, half: int) -> None:
    """The same tokens twice behind the same cache object."""
    rest = trial.sequences[BASE]
    first = trial.subject.run(rest, (1,) * (trial.length - half), cache, first=half)
    second = trial.subject.run(rest, (1,) * (trial.length - half), cache, first=half)
    if first.failure is not None:
        return
    gap = np.inf if second.failure is not None else float(difference_by_position(second.rows, first.rows).max())
    changed = gap > trial.tolerance.rounding
    if trial.hooks.in_place is False:
        verdict = "differs" if changed else "equal"
        note = "declared not to change in place" + (", but the old cache gives other rows" if changed else "")
        bad = np.zeros(trial.length, dtype=bool)
        bad[half:] = changed
        trial.signature["branch", "old cache", BASE] = bad
        first_bad = half if changed else None
        n_rows = trial.length - half
        check = Check("old cache used again", BASE, verdict, gap, first_bad, int(bad.sum()), n_rows, note)
        trial.checks.append(check)
    elif changed:
        note = "step changes the cache it is given; that is a choice, not a fault"
        trial.checks.append(Check("old cache used again", BASE, "note", note=note))
