"""What is probably wrong: the engine's faults ranked by how alike the evidence is that they leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kvcore.config import DecoderConfig
from kvcore.faults import FAULTS, Fault
from kvcore.setting import Setting
from kvcore.verification import battery as running
from kvcore.verification.battery import Trial
from kvcore.verification.evidence import Battery, Signature
from kvcore.verification.match import distance, response_distance
from kvcore.verification.plan import BASE, CHUNKS_LAST, EQUAL, HALVES, LONGER, ONE_CALL, ONES, PREFILL, UNEQUAL
from kvcore.verification.simulate import BEYOND, Calls, Simulation, chunks, every_call, single_tokens

FINALISTS, LEAST_FINALISTS, MOST_FINALISTS, NEAR = 12, 6, 24, 0.3
"""Faults that are run under the whole battery; the others were less like the evidence in its cheapest part."""

HYBRID = 0.05
"""What it costs an explanation to suppose windows that the full forward does not show."""

RESPONSE_WEIGHT = 0.3
"""What the sizes of responses count beside the positions at which something is wrong."""

APART = 0.02
"""Distances that differ by less are not told apart."""


@dataclass(frozen=True)
class Suspect:
    """One entry of the ranking: 1 is the likeliest, and entries that cannot be told apart share a rank."""

    rank: int
    fault_class: str
    fault: str
    evidence: str
    distance: float


@dataclass(eq=False)
class Candidate:
    fault: Fault
    setting: Setting
    calls: Calls
    signature: Signature
    distance: float


def settings(trial: Trial) -> Iterator[tuple[Setting, bool]]:
    """Settings of the engine that are like the caller's model, and whether only faults of windows are tried in them."""
    like, declared = trial.character, trial.hooks.window
    if like.reach is not None:
        for n_layers, window in _stacks(trial, like.reach):
            yield _setting(like.scheme, n_layers, (window,), like.n_sinks), False
        return
    yield _setting(like.scheme, 2, (None,)), False
    for window in [declared] if declared else _windows(trial):
        yield _setting(like.scheme, 2, (window, None)), True


def _setting(scheme: str, n_layers: int, windows: tuple[int | None, ...], n_sinks: int = 0) -> Setting:
    decoder = DecoderConfig(n_layers=n_layers, n_heads=4, n_kv_heads=2, d_model=16, positions=scheme)
    return Setting(decoder, windows, n_sinks)


def _stacks(trial: Trial, reach: int) -> list[tuple[int, int]]:
    """(layers, window) with layers · (window − 1) = reach, those first that fit where things go wrong."""
    if reach == 0:
        return [(2, 1)]
    declared = trial.hooks.window
    found = [(n, reach // n + 1) for n in (2, 3, 1, 4) if reach % n == 0 and (declared in (None, reach // n + 1))]
    first = _first_bad(trial, ONES) or _first_bad(trial, PREFILL)
    if first and first[0] > 1:
        found.sort(key=lambda pair: abs(pair[1] - first[0]))
    return found[:2] or [(1, reach + 1)]


def _first_bad(trial: Trial, split: str) -> list[int]:
    bad = np.flatnonzero(trial.signature.get(("differs", split, BASE), np.zeros(1, dtype=bool)))
    return [int(bad[0])] if bad.size else []


def _windows(trial: Trial) -> list[int]:
    """Windows that a model of mixed layers may have, judged by where its runs first differ."""
    firsts = sorted({bad for split in trial.splits for bad in _first_bad(trial, split)} - {0, 1})
    return firsts[:1]


def calls_at_fault(trial: Trial) -> Calls:
    """Only single tokens, only chunks, or every call, by which splits differ at all."""

    def bad(*splits: str) -> bool:
        return any(trial.signature.get(("differs", split, BASE), np.zeros(1, dtype=bool)).any() for split in splits)

    if bad(ONE_CALL):
        return every_call
    in_ones, in_chunks = bad(ONES, PREFILL), bad(HALVES, EQUAL, UNEQUAL)
    if in_ones and not in_chunks:
        return single_tokens
    return chunks if in_chunks and not in_ones else every_call


def vocabulary(trial: Trial) -> Battery:
    """The battery with the caller's ids numbered from 0, for a decoder with a vocabulary of its own."""
    made = trial.battery
    numbers = running.one_of([token for tokens in made.sequences.values() for token in tokens])
    sequences = {name: tuple(numbers[token] % 32 for token in tokens) for name, tokens in made.sequences.items()}
    return Battery(sequences, made.splits, made.runs, made.edited)


def diagnose(trial: Trial) -> list[Suspect]:
    """Suspects of different classes, the likeliest first; empty where nothing differs."""
    made, when = vocabulary(trial), calls_at_fault(trial)
    runs = dict(made.runs)
    cheap = [(split, (BASE,)) for split in (CHUNKS_LAST, UNEQUAL) if split in runs] or [(s, (BASE,)) for s in list(runs)[:2]]
    if any(bad.any() for (kind, _, sequence), bad in trial.signature.items() if kind == "differs" and sequence == BASE):
        made = _without(made, LONGER)
    first = [
        _candidate(trial, made, cheap, fault, setting, when)
        for setting, windows_only in settings(trial)
        for fault in FAULTS.values()
        if not fault.needs(setting) and not (windows_only and not fault.needs(_without_windows(setting)))
    ]
    first.sort(key=lambda candidate: candidate.distance)
    finalists = [
        _candidate(trial, made, made.runs, one.fault, one.setting, one.calls) for one in _best(first)
    ]
    finalists.sort(key=lambda candidate: candidate.distance)
    return list(_ranked(finalists))


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
    if len(set(setting.windows)) > 1:
        apart += HYBRID
    return Candidate(fault, setting, calls, signature, apart)


def _without(made: Battery, left_out: str) -> Battery:
    runs = tuple((split, tuple(n for n in names if n != left_out)) for split, names in made.runs)
    return replace(made, runs=tuple((split, names) for split, names in runs if names))


def _without_windows(setting: Setting) -> Setting:
    return Setting(setting.decoder, (None,))


def _ranked(finalists: list[Candidate]) -> Iterator[Suspect]:
    """One entry a class, by its most alike fault."""
    rank, last, seen = 0, -1.0, set()
    for candidate in finalists:
        for code in (candidate.fault.fault_class, *candidate.fault.also):
            if code in seen:
                continue
            seen.add(code)
            if candidate.distance > last + APART or rank == 0:
                rank, last = rank + 1, candidate.distance
            yield Suspect(rank, code, candidate.fault.name, candidate.fault.sentence, candidate.distance)
