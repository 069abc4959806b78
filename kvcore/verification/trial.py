"""One battery under way: what full says of itself, the tolerance that follows, and what has been found so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification import plan
from kvcore.verification.character import Character, character
from kvcore.verification.checks import Check, judged
from kvcore.verification.evidence import Battery, Found, Responses, Signature
from kvcore.verification.hooks import Hooks
from kvcore.verification.plan import BASE, CONSTANT, Edit
from kvcore.verification.subject import Failure, Run, Subject
from kvcore.verification.tolerance import Tolerance, effective_dtype, from_format

REPEATED = {"float64": 1e-4, "float32": 1e-3, "float16": 5e-2, "bfloat16": 1e-1}
"""Part of the output scale by which two full forwards of the same tokens may differ: atomic sums come in any order."""


@dataclass(eq=False)
class Trial:
    """One battery under way: the subject, what is run, and what has been found so far.

    `moved` holds for each edited position how far each row of full moved, (T,); `floor` how far full
    forwards of prefixes lie from the whole one at each position, (T,).
    """

    subject: Subject
    hooks: Hooks
    length: int
    splits: dict[str, plan.Sizes]
    edits: list[Edit]
    tolerance: Tolerance
    found: Found = field(default_factory=Found)
    checks: list[Check] = field(default_factory=list)
    signature: Signature = field(default_factory=dict)
    responses: Responses = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    sequences: dict[str, tuple[int, ...]] = field(default_factory=dict)
    moved: list[tuple[int, np.ndarray]] = field(default_factory=list)
    floor: np.ndarray | None = None
    character: Character | None = None

    @property
    def faulty(self) -> bool:
        """Whether a check has found something wrong."""
        return any(check.faulty for check in self.checks)

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
        """One sequence under one split; kept as evidence. None where this split fails, now or earlier."""
        if split in self.failures:
            return None
        tokens = self.sequences[sequence]
        done = self.subject.run(tokens, self.splits[split])
        if done.failure is not None:
            self.failures[split] = done.failure
            if sequence != BASE:  # the caller's tokens went through; their failures are told with the splits
                verdict = "not tested" if done.failure.deliberate else "failed"
                self.checks.append(Check(split, sequence, verdict, note=done.failure.in_words()))
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
    _check_repeats(subject, base)
    floor = prefix_floor(subject, base)

    def takes(token_ids: tuple[int, ...]) -> bool:
        return subject.try_full(token_ids) is not None

    alternatives = hooks.ids_for_edits(tokens)
    edits = [e for e in plan.edits(tokens, alternatives, plan.edit_positions(length)) if takes(e.token_ids)]
    moved = [(edit.position, difference_by_position(subject.full(edit.token_ids), base)) for edit in edits]
    influence = max((float(gap[position + 1 :].max()) for position, gap in moved), default=0.0)
    tolerance = from_format(base, subject.dtype, float(floor.max()), influence, rtol, atol)
    trial = Trial(subject, hooks, length, plan.splits(length, hooks.max_chunk, hooks.splits), edits, tolerance)
    trial.sequences = {BASE: tokens, CONSTANT: (tokens[0],) * length} | {edit.name: edit.token_ids for edit in edits}
    trial.found.reference[BASE] = base
    trial.moved, trial.floor = moved, floor
    trial.character = character(subject, tokens, _moved_far(subject, tokens, alternatives), alternatives, tolerance)
    return trial


def _moved_far(subject: Subject, tokens: tuple[int, ...], alternatives: list[int]) -> list[tuple[int, np.ndarray]]:
    """How far each edit moves each row of full, on the tokens repeated where they are few: reach tells a window."""
    longer = plan.repeated(tokens, max(len(tokens), plan.LONG_ENOUGH))
    if subject.try_full(longer) is None:
        longer = tokens
    base, found = subject.full(longer), []
    for edit in plan.edits(longer, alternatives, plan.edit_positions(len(longer))):
        rows = subject.try_full(edit.token_ids)
        if rows is not None:
            found.append((edit.position, difference_by_position(rows, base)))
    return found


def _check_repeats(subject: Subject, base: np.ndarray) -> None:
    """The reference gives the same rows for the same tokens, up to what summing in another order explains."""
    largest = float(difference_by_position(subject.full_anew(subject.ids.values), base).max())
    if largest > REPEATED.get(effective_dtype(base, subject.dtype), 1e-3) * float(np.abs(base).max()):
        raise ValueError(
            f"full gave other rows for the same tokens, {largest:.2g} apart; it is the reference and must repeat"
            " itself (is dropout on? call eval() first)"
        )


def prefix_floor(subject: Subject, base: np.ndarray) -> np.ndarray:
    """How far full forwards of a few prefixes differ from the whole one, at each position (T,)."""
    length = len(base)
    floor = np.zeros(length)
    for stop in sorted({1, (length + 2) // 3, (2 * length) // 3, length - 1} - {0}):
        rows = subject.full(subject.ids.values[:stop])
        floor[:stop] = np.maximum(floor[:stop], difference_by_position(rows, base[:stop]))
    return floor
