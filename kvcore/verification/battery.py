"""The battery: every split at every position, edits, a constant sequence, second runs, branches, hooks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification import hooked, plan
from kvcore.verification.branches import check_branches
from kvcore.verification.checks import Check, compared, judged, not_tested
from kvcore.verification.hooks import Hooks
from kvcore.verification.plan import BASE, CONSTANT, LONGER, ONES, PREFILL, UNEQUAL
from kvcore.verification.subject import Subject
from kvcore.verification.trial import Trial, prepare

MANY = 48
"""Beyond so many tokens, edits and the constant sequence are not run token by token."""


def check_full(trial: Trial) -> None:
    """The reference itself: its rows must not depend on what comes later, neither on tokens nor on how many."""
    floor, tolerance = trial.floor, trial.tolerance
    check = judged("full of a prefix", BASE, floor, tolerance, note="full of the first tokens against full of all")
    trial.checks.append(check)
    trial.signature["prefix", "", BASE] = floor > tolerance.rounding
    if not trial.edits:
        trial.checks.append(
            not_tested("full: later tokens edited", "no other id may be used; give vocab_size or alternatives")
        )
        return
    ahead = np.zeros(trial.length)
    for position, gap in trial.moved:
        ahead[:position] = np.maximum(ahead[:position], gap[:position])
    trial.signature["noncausal", "", BASE] = ahead > tolerance.rounding
    trial.checks.append(
        judged("full: later tokens edited", BASE, ahead, tolerance, note="what edits move in rows before them")
    )


def check_splits(trial: Trial) -> None:
    """The caller's tokens under every split; the first one twice in a row."""
    order = [ONES, *(split for split in trial.splits if split != ONES)]
    for split in order:
        trial.run(split, BASE)
        if split == ONES:
            check_second_run(trial)
    for split in order:
        sizes = "+".join(map(str, trial.splits[split])) if len(trial.splits[split]) <= 6 else ""
        if split in trial.failures:
            failure = trial.failures[split]
            verdict = "not tested" if failure.deliberate and split != ONES else "failed"
            trial.checks.append(Check(split, BASE, verdict, note=failure.in_words()))
        else:
            trial.compare(f"{split} {sizes}".strip(), split, BASE)


def check_second_run(trial: Trial) -> None:
    """The same split once more from None."""
    if ONES in trial.failures:
        return
    again = trial.subject.run(trial.sequences[BASE], trial.splits[ONES])
    first = trial.found.rows[ONES, BASE]
    if again.failure is not None:
        note = f"a second run from None: {again.failure.in_words()}"
        trial.checks.append(Check("second run from None", BASE, "failed", note=note))
        trial.signature["repeat", "", BASE] = np.ones(trial.length, dtype=bool)
        return
    check = compared("second run from None", BASE, again.rows, first, trial.tolerance, note="against the first run")
    trial.checks.append(check)
    trial.signature["repeat", "", BASE] = difference_by_position(again.rows, first) > trial.tolerance.rounding


def check_influence(trial: Trial) -> None:
    """Edited tokens through the cache: rows before an edit stay, rows after it move as they do in full."""
    wanted = plan.probed(trial.length)
    probes = [edit for edit in trial.edits if edit.position in wanted]
    if not probes:
        trial.checks.append(not_tested("edits", "no other id may be used; give vocab_size or alternatives"))
        return
    for split in (PREFILL, UNEQUAL, ONES):
        if split not in trial.splits or (split == ONES and trial.length > MANY):
            continue
        for edit in probes:
            trial.run(split, edit.name)
            trial.compare(f"{split}, {edit.name}", split, edit.name)


def follow_responses(trial: Trial) -> None:
    """Edits of the prompt and of the next tokens, followed into the first rows behind it; evidence only."""
    splits = plan.responses(trial.length, trial.hooks.max_chunk)
    if not splits or not trial.edits:
        return
    stop = sum(next(iter(splits.values())))
    wanted = [edit for edit in trial.edits if edit.position in plan.answered(trial.length)]
    tokens = {plan.SHORT: trial.sequences[BASE]} | {f"{edit.name}, short": edit.token_ids for edit in wanted}
    trial.splits |= splits
    for name, sequence in tokens.items():
        trial.sequences[name] = sequence[:stop]
        trial.found.reference[name] = trial.subject.full(sequence)[:stop]
        for split in splits:
            if split not in trial.failures:
                trial.run(split, name)


def check_constant(trial: Trial) -> None:
    """One token over and over: under rotary positions only slot and value faults are left."""
    for split in plan.splits(trial.length, trial.hooks.max_chunk):
        if not (split == ONES and trial.length > MANY):
            trial.run(split, CONSTANT)
            trial.compare(f"{split}, one token", split, CONSTANT)


def check_longer(trial: Trial) -> None:
    """The caller's tokens repeated, where they are few: windows and thresholds may lie beyond them."""
    if trial.length >= plan.LONG_ENOUGH:
        return
    tokens = plan.repeated(trial.sequences[BASE], plan.LONG_ENOUGH)
    reference = trial.subject.try_full(tokens)
    if reference is None:
        trial.checks.append(not_tested(LONGER, f"full does not take {plan.LONG_ENOUGH} tokens"))
        return
    trial.sequences[LONGER], trial.found.reference[LONGER] = tokens, reference
    ways = plan.splits(plan.LONG_ENOUGH, trial.hooks.max_chunk)
    for split in (ONES, PREFILL, UNEQUAL, plan.EQUAL):
        if split not in ways or split in trial.failures:
            continue
        name = f"{split} to {plan.LONG_ENOUGH}"
        done = trial.subject.run(tokens, ways[split])
        if done.failure is not None:
            trial.checks.append(not_tested(name, done.failure.in_words()))
            continue
        difference = difference_by_position(done.rows, reference)
        check = judged(name, LONGER, difference, trial.tolerance)
        if check.first_bad == trial.length:
            note = f"right up to your {trial.length} tokens and wrong right behind them, as where room is for no more"
            trial.checks.append(replace(check, verdict="note", note=note))
            continue
        trial.checks.append(check)
        trial.splits[name] = ways[split]
        trial.found.rows[name, LONGER] = done.rows


def check_last_run(trial: Trial) -> None:
    """The first split once more after everything else: nothing may have been left behind in the model."""
    if ONES in trial.failures or (ONES, BASE) not in trial.found.rows:
        return
    again = trial.subject.run(trial.sequences[BASE], trial.splits[ONES])
    if again.failure is None:
        first = trial.found.rows[ONES, BASE]
        check = compared("last run from None", BASE, again.rows, first, trial.tolerance, note="against the first run")
        trial.checks.append(check)
        bad = difference_by_position(again.rows, first) > trial.tolerance.rounding
        trial.signature["repeat", "", BASE] = trial.signature.get(("repeat", "", BASE), bad) | bad


def run_battery(subject: Subject, hooks: Hooks, rtol: float | None = None, atol: float | None = None) -> Trial:
    """Everything that can be tested with what the caller has given."""
    trial = prepare(subject, hooks, rtol, atol)
    check_full(trial)
    check_splits(trial)
    check_influence(trial)
    follow_responses(trial)
    check_constant(trial)
    check_longer(trial)
    check_branches(trial)
    hooked.check_all(trial)
    check_last_run(trial)
    trial.signature |= trial.found.signature(trial.battery, trial.tolerance.rounding)
    trial.responses = trial.found.responses(trial.battery, trial.tolerance.rounding)
    return trial
