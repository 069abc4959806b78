"""What is probably wrong: the engine's faults ranked by how alike the evidence is that they leave.

The numbers that weigh, and how many go on from round to round, were chosen on `python -m kvcore selfcheck` and
`python -m tests.measure_foreign`: with fewer going on, faults of both fall behind rank 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvcore.faults import FAULTS, Fault
from kvcore.verification.evidence import Battery, Runs
from kvcore.verification.going_back import likeliest
from kvcore.verification.hypotheses import (
    SPECIAL,
    VOCABULARY,
    Calls,
    alternatives,
    any_single_token,
    calls_at_fault,
    settings,
    single_tokens,
)
from kvcore.verification.match import distance, response_distance
from kvcore.verification.plan import BASE, CHUNKS_LAST, LONGER, RESPONSE_CHUNK, RESPONSE_ONES, UNEQUAL
from kvcore.verification.ranking import Candidate, Certain, ranked
from kvcore.verification.simulate import Simulation, Simulations
from kvcore.verification.suspects import Suspect
from kvcore.verification.trial import Trial

MOST_CALLS = 64
"""Splits with more calls are not simulated: in long sequences the others tell enough."""

CHEAP = (UNEQUAL, RESPONSE_ONES, RESPONSE_CHUNK)
"""The splits of the second round, with few calls between them."""

LEAST_AFTER_ONE, MOST_AFTER_ONE, NEAR_AFTER_ONE = 20, 48, 0.3
"""Candidates that go on to them; the others were less like the evidence under the first split alone."""

LEAST_FINALISTS, MOST_FINALISTS, NEAR = 8, 16, 0.2
"""Faults that go on to the whole battery."""

PARTICULAR = 0.03
"""What it costs to suppose that only calls of some length or from some position on are wrong."""

SHOWN_WEIGHT = 0.5
"""What outputs by layer and contents of the cache count, where they were given."""

HYBRID = 0.1
"""What it costs an explanation to suppose windows that the full forward does not show."""

RESPONSE_WEIGHT = 0.3
"""What the sizes of responses count beside the positions at which something is wrong."""


def numbered(trial: Trial) -> Battery:
    """The battery with the caller's ids numbered from 0 in the order of first use, for the engine's decoder."""
    made = trial.battery
    seen = dict.fromkeys(token for tokens in made.sequences.values() for token in tokens)
    numbers = {token: index % VOCABULARY for index, token in enumerate(seen)}
    run = {name for _, names in made.runs for name in names}
    sequences = {name: tuple(map(numbers.get, made.sequences[name])) for name in run}
    return replace(made, sequences=sequences)


def diagnose(trial: Trial, simulations: Simulations | None = None) -> list[Suspect]:
    """Suspects of different classes, the likeliest first; empty where nothing differs."""
    certain = list(_certain(trial))
    wrong = {key[2] for key, bad in trial.signature.items() if key[0] == "differs" and bad.any()}
    if not wrong or any(bad.any() for (kind, _, _), bad in trial.signature.items() if kind == "repeat"):
        return list(ranked(trial, certain, []))
    made = numbered(trial)
    made = replace(made, runs=tuple(run for run in made.runs if len(made.splits[run[0]]) <= MOST_CALLS))
    if BASE in wrong:
        made = _without(made, LONGER)
    finalists = [_again(trial, made, candidate) for candidate in _finalists(trial, made, simulations or Simulations())]
    finalists.sort(key=lambda candidate: candidate.distance)
    return list(ranked(trial, certain, finalists))


def _finalists(trial: Trial, made: Battery, simulations: Simulations) -> list[Candidate]:
    """The faults most like the evidence: all of them under one split, the best of these under the cheap ones."""
    calls_supposed = calls_at_fault(trial)
    only_single = calls_supposed in ([single_tokens], [any_single_token])
    one = (RESPONSE_ONES,) if only_single else (UNEQUAL,)
    few = (*CHEAP, CHUNKS_LAST) if only_single else CHEAP

    def under(splits: tuple[str, ...]) -> Runs:
        return tuple(run for run in made.runs if run[0] in splits) or made.runs

    tried = list(_tried(trial, under(one), simulations, made, calls_supposed))
    tried.sort(key=lambda candidate: candidate.distance)
    near = tried[0].distance + NEAR_AFTER_ONE
    left = tried[:LEAST_AFTER_ONE] + [c for c in tried[LEAST_AFTER_ONE:MOST_AFTER_ONE] if c.distance <= near]
    return _best([_candidate(trial, under(few), c.simulation, c.fault, c.calls) for c in left])


def _tried(
    trial: Trial, runs: Runs, simulations: Simulations, made: Battery, calls_supposed: list[Calls]
) -> Iterator[Candidate]:
    """Every fault that can be in force."""
    for setting, besides in settings(trial):
        simulation = simulations.of(setting, made)
        for fault in FAULTS.values():
            if fault.shown_by or fault.across_sequences or fault.needs(setting):
                continue
            if besides is not None and not fault.needs(besides):
                continue
            for calls in alternatives(calls_supposed, fault):
                yield _candidate(trial, runs, simulation, fault, calls)


def _again(trial: Trial, made: Battery, candidate: Candidate) -> Candidate:
    """A finalist under the whole battery, with what the hooks have shown."""
    again = _candidate(trial, made.runs, candidate.simulation, candidate.fault, candidate.calls)
    shown = {key: bad for key, bad in trial.signature.items() if key[0] in ("layer", "contents")}
    if shown:
        expected = candidate.simulation.shown(candidate.fault, candidate.calls, [key[:2] for key in shown])
        again.distance += SHOWN_WEIGHT * distance(shown, expected)
    return again


def _certain(trial: Trial) -> Iterator[Certain]:
    """Where one observation is enough: the class, and the faults that leave it."""
    marks = {kind for (kind, _, _), bad in trial.signature.items() if bad.any()}
    if "repeat" in marks:
        yield "C17", (FAULTS["cache_not_reset"],)
    elif "branch" in marks:
        yield "C17", (FAULTS["branches_share_a_buffer"],)
    for kind in ("crop", "reuse"):
        if kind in marks and "differs" not in marks:
            setting = next(iter(settings(trial)))[0]
            found = likeliest(kind, trial.signature, setting, numbered(trial).sequences[BASE])
            yield found[0].fault_class, tuple(found)
    if "prefix" in marks and "noncausal" not in marks:
        yield "C18", (FAULTS["rotary_base_by_length"],)
    elif "noncausal" in marks:
        yield "C15", (FAULTS["causal_mask_dropped_in_every_call"],)


def _best(candidates: list[Candidate]) -> list[Candidate]:
    """The most alike, each fault once, and those next to them."""
    by_fault: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.distance):
        by_fault.setdefault(candidate.fault.name, candidate)
    ordered = list(by_fault.values())
    near = ordered[0].distance + NEAR
    return ordered[:LEAST_FINALISTS] + [c for c in ordered[LEAST_FINALISTS:MOST_FINALISTS] if c.distance <= near]


def _candidate(trial: Trial, runs: Runs, simulation: Simulation, fault: Fault, calls: Calls) -> Candidate:
    signature, responses = simulation.evidence(fault, calls, runs)
    apart = distance(trial.signature, signature) + RESPONSE_WEIGHT * response_distance(trial.responses, responses)
    windows = simulation.setting.windows
    shown = trial.hooks.window or trial.character.drop
    if simulation.setting.decoder.positions != trial.character.scheme:
        apart += PARTICULAR
    if len(set(windows)) > 1 and (shown is None or shown not in windows):
        apart += HYBRID
    if isinstance(calls, SPECIAL):
        apart += PARTICULAR
    return Candidate(fault, simulation, calls, apart)


def _without(made: Battery, left_out: str) -> Battery:
    runs = tuple((split, tuple(n for n in names if n != left_out)) for split, names in made.runs)
    return replace(made, runs=tuple((split, names) for split, names in runs if names))
