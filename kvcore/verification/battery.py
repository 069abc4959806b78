"""The battery: every split at every position, edits, a constant sequence, second runs, branches, hooks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification import plan
from kvcore.verification.character import Character, character
from kvcore.verification.checks import Check, compared, judged, not_tested
from kvcore.verification.evidence import Battery, Found, Signature
from kvcore.verification.hooks import Hooks
from kvcore.verification.plan import BASE, CONSTANT, LONGER, ONES, PREFILL, UNEQUAL, Edit
from kvcore.verification.subject import Failure, Run, Subject, find_copy, holds_arrays
from kvcore.verification.tolerance import Tolerance, from_format

MANY = 48
"""Beyond so many tokens, edits and the constant sequence are not run token by token."""


@dataclass(eq=False)
class Trial:
    """One battery under way: the subject, what is run, and what has been found so far."""

    subject: Subject
    hooks: Hooks
    length: int
    splits: dict[str, plan.Sizes]
    edits: list[Edit]
    tolerance: Tolerance
    found: Found = field(default_factory=Found)
    checks: list[Check] = field(default_factory=list)
    signature: Signature = field(default_factory=dict)
    responses: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    sequences: dict[str, tuple[int, ...]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    character: Character | None = None

    @property
    def battery(self) -> Battery:
        """What was run, as far as it gave rows: for others to run the same."""
        by_split: dict[str, list[str]] = {}
        for split, sequence in self.found.rows:
            by_split.setdefault(split, []).append(sequence)
        runs = tuple((split, tuple(names)) for split, names in by_split.items())
        edited = {name: edit.position for edit in self.edits for name in (edit.name, f"{edit.name}, short")}
        return Battery(self.sequences, self.splits, runs, edited)

    def run(self, split: str, sequence: str) -> Run | None:
        """One sequence under one split; kept as evidence. None where this split has already failed."""
        if split in self.failures:
            return None
        tokens = self.sequences[sequence]
        done = self.subject.run(tokens, self.splits[split])
        if done.failure is not None:
            self.failures[split] = done.failure
            return None
        if sequence not in self.found.reference:
            self.found.reference[sequence] = self.subject.full(tokens)
        if done.rows.shape != self.found.reference[sequence].shape:
            raise ValueError(
                f"step gave {done.rows.shape[1]} features a token, full {self.found.reference[sequence].shape[1]};"
                " both must give the same"
            )
        self.found.rows[split, sequence] = done.rows
        return done

    def compare(self, name: str, split: str, sequence: str) -> None:
        """A check line for a run that is there."""
        if (split, sequence) in self.found.rows:
            difference = self.found.difference(split, sequence)
            self.checks.append(judged(name, sequence, difference, self.tolerance))


def prepare(subject: Subject, hooks: Hooks, rtol: float | None, atol: float | None) -> Trial:
    """What full says about itself, and from it the tolerance; nothing has gone through the cache yet."""
    tokens = subject.ids.values
    length = len(tokens)
    base = subject.full(tokens)
    if not np.isfinite(base).all():
        row = int(np.flatnonzero(~np.isfinite(base).all(axis=-1))[0])
        raise ValueError(
            f"full gave a value that is not finite at position {row}; it is the reference and must be finite"
        )
    floor_by_position = prefix_floor(subject, base)
    alternatives = hooks.ids_for_edits(tokens)
    edits = plan.edits(tokens, alternatives, plan.edit_positions(length))
    moved = [
        difference_by_position(rows, base) for edit in edits if (rows := subject.try_full(edit.token_ids)) is not None
    ]
    edits = [edit for edit in edits if subject.try_full(edit.token_ids) is not None]
    later = [float(gap[edit.position + 1 :].max()) for edit, gap in zip(edits, moved, strict=True)]
    influence = max(later, default=0.0)
    tolerance = from_format(base, subject.dtype, float(floor_by_position.max()), influence, rtol, atol)
    trial = Trial(subject, hooks, length, plan.splits(length, hooks.max_chunk, hooks.splits), edits, tolerance)
    trial.sequences = {BASE: tokens, CONSTANT: (tokens[0],) * length} | {edit.name: edit.token_ids for edit in edits}
    trial.found.reference[BASE] = base
    positions = [edit.position for edit in edits]
    trial.extra = {"moved": list(zip(positions, moved, strict=True)), "floor": floor_by_position}
    trial.character = character(subject, tokens, trial.extra["moved"], alternatives, tolerance)
    return trial


def prefix_floor(subject: Subject, base: np.ndarray) -> np.ndarray:
    """How far full forwards of a few prefixes differ from the whole one, at each position (T,)."""
    length = len(base)
    floor = np.zeros(length)
    for stop in sorted({1, (length + 2) // 3, (2 * length) // 3, length - 1} - {0}):
        rows = subject.full(subject.ids.values[:stop])
        floor[:stop] = np.maximum(floor[:stop], difference_by_position(rows, base[:stop]))
    return floor


def check_full(trial: Trial) -> None:
    """The reference itself: its rows must not depend on what comes later, neither on tokens nor on how many."""
    floor, tolerance = trial.extra["floor"], trial.tolerance
    check = judged("full of a prefix", BASE, floor, tolerance, note="full of the first tokens against full of all")
    trial.checks.append(check)
    trial.signature["prefix", "", BASE] = floor > tolerance.rounding
    if not trial.edits:
        trial.checks.append(
            not_tested("full: later tokens edited", "no other id may be used; give vocab_size or alternatives")
        )
        return
    ahead = np.zeros(trial.length)
    for position, gap in trial.extra["moved"]:
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


def _branch(trial: Trial, cache: Any, copy: Any, tokens: dict[str, tuple[int, ...]], half: int) -> None:
    linear = trial.found.rows.get((PREFILL, BASE))
    ends = [(half, half + (trial.length - half) // 2), (half + (trial.length - half) // 2, trial.length)]
    caches, rows = {name: copy(cache) for name in tokens}, {name: [] for name in tokens}
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
        trial.checks.append(
            Check(
                "old cache used again",
                BASE,
                verdict,
                gap,
                half if changed else None,
                int(bad.sum()),
                trial.length - half,
                note,
            )
        )
    elif changed:
        note = "step changes the cache it is given; that is a choice, not a fault"
        trial.checks.append(Check("old cache used again", BASE, "note", note=note))


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
    from kvcore.verification import hooked

    hooked.check_all(trial)
    check_last_run(trial)
    trial.signature |= trial.found.signature(trial.battery, trial.tolerance.rounding)
    trial.responses = trial.found.responses(trial.battery, trial.tolerance.rounding)
    return trial
