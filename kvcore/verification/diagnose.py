"""What is probably wrong: the engine's faults ranked by how alike the evidence is that they leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvcore.faults import FAULTS, Fault
from kvcore.setting import Setting
from kvcore.verification import battery as running
from kvcore.verification.battery import Trial
from kvcore.verification.evidence import Battery, Signature
from kvcore.verification.hypotheses import Calls, Late, Longer, Short, alternatives, calls_at_fault, settings
from kvcore.verification.match import distance, response_distance
from kvcore.verification.plan import BASE, CHUNKS_LAST, LONGER, RESPONSE_CHUNK, RESPONSE_ONES, UNEQUAL
from kvcore.verification.simulate import BEYOND, Simulation
from kvcore.verification.suspects import Suspect, observed

CHEAP = (CHUNKS_LAST, UNEQUAL, RESPONSE_ONES, RESPONSE_CHUNK)
"""The splits of the first round, with few calls between them."""

FINALISTS, LEAST_FINALISTS, MOST_FINALISTS, NEAR = 12, 6, 16, 0.3
"""Faults that go on to the whole battery; the others were less like the evidence in the first round."""

SPECIAL = 0.03
"""What it costs to suppose that only calls of some length or from some position on are wrong."""

HYBRID = 0.1
"""What it costs an explanation to suppose windows that the full forward does not show."""

RESPONSE_WEIGHT = 0.3
"""What the sizes of responses count beside the positions at which something is wrong."""

APART = 0.02
"""Distances that differ by less are not told apart."""


@dataclass(eq=False)
class Candidate:
    fault: Fault
    setting: Setting
    calls: Calls
    signature: Signature
    distance: float


def vocabulary(trial: Trial) -> Battery:
    """The battery with the caller's ids numbered from 0, for a decoder with a vocabulary of its own."""
    made = trial.battery
    numbers = running.one_of([token for tokens in made.sequences.values() for token in tokens])
    sequences = {name: tuple(numbers[token] % 32 for token in tokens) for name, tokens in made.sequences.items()}
    return Battery(sequences, made.splits, made.runs, made.edited)


def diagnose(trial: Trial) -> list[Suspect]:
    """Suspects of different classes, the likeliest first; empty where nothing differs."""
    certain = list(_certain(trial))
    made = vocabulary(trial)
    cheap = tuple((split, names) for split, names in made.runs if split in CHEAP)
    if any(bad.any() for (kind, _, sequence), bad in trial.signature.items() if kind == "differs" and sequence == BASE):
        made = _without(made, LONGER)
    supposed = [
        (fault, setting, calls)
        for setting, windows_only in settings(trial)
        for fault in FAULTS.values()
        if not fault.needs(setting) and not (windows_only and not fault.needs(_without_windows(setting)))
        for calls in alternatives(calls_at_fault(trial), fault)
    ]
    first = sorted(
        (_candidate(trial, made, cheap or made.runs, *one) for one in supposed),
        key=lambda candidate: candidate.distance,
    )
    finalists = [_candidate(trial, made, made.runs, one.fault, one.setting, one.calls) for one in _best(first)]
    finalists.sort(key=lambda candidate: candidate.distance)
    return list(_ranked(certain, finalists, observed(trial)))


def _certain(trial: Trial) -> Iterator[tuple[str, str]]:
    """(class, fault) where one observation is enough."""
    marks = {kind for (kind, _, _), bad in trial.signature.items() if bad.any()}
    if "repeat" in marks:
        yield "C17", "cache_not_reset"
    elif "branch" in marks:
        yield "C17", "branches_share_a_buffer"
    if "crop" in marks and "differs" not in marks:
        yield "C8", "crop_keeps_one_more"
    if "reuse" in marks and "differs" not in marks:
        yield "C7", "prefix_reused_past_an_edit"
    if "prefix" in marks and "noncausal" not in marks:
        yield "C18", "rotary_base_by_length"
    elif "noncausal" in marks:
        yield "C15", "causal_mask_dropped_in_every_call"


def _best(candidates: list[Candidate]) -> list[Candidate]:
    """The first ones, and all that are no less alike than the last of them."""
    limit = candidates[min(FINALISTS, len(candidates)) - 1].distance + 1e-9
    near = min(limit, candidates[0].distance + NEAR)
    return [c for c in candidates if c.distance <= near or c in candidates[:LEAST_FINALISTS]][:MOST_FINALISTS]


def _candidate(trial: Trial, made: Battery, runs, fault: Fault, setting: Setting, calls: Calls) -> Candidate:
    found = Simulation(fault, setting, calls).found(made, runs)
    signature = found.signature(made, BEYOND)
    apart = distance(trial.signature, signature)
    responses = found.responses(made, BEYOND)
    if responses:
        apart += RESPONSE_WEIGHT * response_distance(trial.responses, responses)
    if len(set(setting.windows)) > 1 and trial.character.drop not in setting.windows:
        apart += HYBRID
    if isinstance(calls, (Late, Longer, Short)):
        apart += SPECIAL
    return Candidate(fault, setting, calls, signature, apart)


def _without(made: Battery, left_out: str) -> Battery:
    runs = tuple((split, tuple(n for n in names if n != left_out)) for split, names in made.runs)
    return replace(made, runs=tuple((split, names) for split, names in runs if names))


def _without_windows(setting: Setting) -> Setting:
    return Setting(setting.decoder, (None,))


def _ranked(certain: list[tuple[str, str]], finalists: list[Candidate], seen: str) -> Iterator[Suspect]:
    """One entry a class, by its most alike fault; what is certain comes first."""
    found = [(FAULTS[name], code, 0.0) for code, name in certain]
    for candidate in finalists:
        fault = candidate.fault
        found += [(fault, code, candidate.distance) for code in (fault.fault_class, *fault.also)]
    first: dict[str, tuple[Fault, float]] = {}
    for fault, code, apart in found:
        first.setdefault(code, (fault, apart))
    rank, last, entries = 0, 0.0, []
    for code, (fault, apart) in first.items():
        if rank == 0 or apart > last + APART or (certain and last == 0.0 < apart):
            rank, last = rank + 1, apart
        entries.append((rank, code, fault, apart))
    for rank, code, fault, apart in entries:
        tied = [other for r, other, _, _ in entries if r == rank and other != code]
        words = f"{fault.sentence} Expected {fault.right}; this does {fault.wrong}."
        if tied:
            words += f" The evidence at hand does not tell it from {', '.join(tied)}."
        yield Suspect(rank, code, fault.name, f"{seen}. {words}", words, apart)
