"""What is probably wrong: the engine's faults ranked by how alike the evidence is that they leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvcore.config import DecoderConfig
from kvcore.faults import FAULTS, Fault
from kvcore.setting import Setting
from kvcore.verification import battery as running
from kvcore.verification.battery import Trial
from kvcore.verification.evidence import Battery, Signature
from kvcore.verification.match import distance
from kvcore.verification.plan import BASE, ONES, PREFILL, UNEQUAL
from kvcore.verification.simulate import Simulation

FINALISTS = 14
"""Faults that are run under the whole battery; the others were less like the evidence in its cheapest part."""

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
    signature: Signature
    distance: float


def settings(trial: Trial) -> Iterator[tuple[Setting, bool]]:
    """Settings of the engine that are like the caller's model, and whether only faults of windows are tried in them."""
    added = running.positions_added(trial)
    reach = running.reach(trial)
    declared = trial.hooks.window
    schemes = ("sinusoidal",) if added else ("rotary", "alibi")
    for scheme in schemes:
        if reach is not None and reach < trial.length - 1:
            for n_layers, window in _stacks(trial, reach):
                yield _setting(scheme, n_layers, (window,)), False
        else:
            yield _setting(scheme, 2, (None,)), False
            for window in [declared] if declared else _windows(trial):
                yield _setting(scheme, 2, (window, None)), True


def _setting(scheme: str, n_layers: int, windows: tuple[int | None, ...]) -> Setting:
    decoder = DecoderConfig(n_layers=n_layers, n_heads=4, n_kv_heads=2, d_model=16, positions=scheme)
    return Setting(decoder, windows)


def _stacks(trial: Trial, reach: int) -> list[tuple[int, int]]:
    """(layers, window) with layers · (window − 1) = reach, those first that fit where things go wrong."""
    if reach == 0:
        return [(2, 1)]
    declared = trial.hooks.window
    found = [(n, reach // n + 1) for n in (2, 3, 1, 4) if reach % n == 0 and (declared in (None, reach // n + 1))]
    first = _first_bad(trial, ONES)
    found.sort(key=lambda pair: min((abs(pair[1] - bad) for bad in first), default=0) if first else 0)
    return found[:2] or [(1, reach + 1)]


def _first_bad(trial: Trial, split: str) -> list[int]:
    bad = np.flatnonzero(trial.signature.get(("differs", split, BASE), np.zeros(1, dtype=bool)))
    return [int(bad[0])] if bad.size else []


def _windows(trial: Trial) -> list[int]:
    """Windows that a model of mixed layers may have, judged by where its runs first differ."""
    firsts = sorted({bad for split in trial.splits for bad in _first_bad(trial, split)} - {0, 1})
    return firsts[:1]


def vocabulary(trial: Trial) -> Battery:
    """The battery with the caller's ids numbered from 0, for a decoder with a vocabulary of its own."""
    made = trial.battery
    numbers = running.one_of([token for tokens in made.sequences.values() for token in tokens])
    sequences = {name: tuple(numbers[token] % 32 for token in tokens) for name, tokens in made.sequences.items()}
    return Battery(sequences, made.splits, made.runs, made.edited)


def diagnose(trial: Trial) -> list[Suspect]:
    """Suspects of different classes, the likeliest first; empty where nothing differs."""
    made = vocabulary(trial)
    runs = dict(made.runs)
    cheap = [(split, (BASE,)) for split in (UNEQUAL, PREFILL) if split in runs] or [(s, (BASE,)) for s in list(runs)[:2]]
    first: list[Candidate] = []
    for setting, windows_only in settings(trial):
        for fault in FAULTS.values():
            if fault.needs(setting) or (windows_only and not fault.needs(_without_windows(setting))):
                continue
            if setting.decoder.positions == "alibi" and not fault.needs(_as_rotary(setting)):
                continue  # tried under rotary positions already
            simulation = Simulation(fault, setting)
            signature = simulation.signature(made, cheap)
            first.append(Candidate(fault, setting, signature, distance(trial.signature, signature)))
    first.sort(key=lambda candidate: candidate.distance)
    finalists = []
    for candidate in first[:FINALISTS]:
        signature = Simulation(candidate.fault, candidate.setting).signature(made, made.runs)
        finalists.append(
            Candidate(candidate.fault, candidate.setting, signature, distance(trial.signature, signature))
        )
    finalists.sort(key=lambda candidate: candidate.distance)
    return list(_ranked(finalists))


def _without_windows(setting: Setting) -> Setting:
    return Setting(setting.decoder, (None,))


def _as_rotary(setting: Setting) -> Setting:
    return _setting("rotary", setting.decoder.n_layers, setting.windows)


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
