"""The ranking: one entry a class by its most alike fault, equals under one rank, and what would tell those apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvcore.faults import Fault
from kvcore.verification.hypotheses import Calls
from kvcore.verification.match import same
from kvcore.verification.plan import PREFILL
from kvcore.verification.simulate import Simulation
from kvcore.verification.suspects import Suspect, observed
from kvcore.verification.trial import Trial

SEPARATING = {"layers": [("layer", PREFILL)], "inspect": [("contents", "first layer"), ("contents", "last layer")]}
"""Hooks that may tell tied faults apart, with what each of them shows."""

APART = 0.02
"""Distances that differ by less are not told apart."""

Certain = tuple[str, tuple[Fault, ...]]
"""A class that one observation is enough for, and its faults that leave the same, one or several."""


@dataclass(eq=False)
class Candidate:
    """A fault that was tried, and how unlike the evidence is to what it leaves."""

    fault: Fault
    simulation: Simulation
    calls: Calls
    distance: float


@dataclass(eq=False)
class _Entry:
    """A class with the fault that stands for it; without a candidate it is certain, and `others` leave the same."""

    code: str
    fault: Fault
    distance: float = 0.0
    candidate: Candidate | None = None
    others: tuple[Fault, ...] = ()


def ranked(trial: Trial, certain: Sequence[Certain], finalists: Sequence[Candidate]) -> Iterator[Suspect]:
    """One entry a class, by its most alike fault; what is certain comes first. Finalists are the most alike first."""
    entries = {code: _Entry(code, faults[0], others=faults[1:]) for code, faults in certain}
    for candidate in finalists:
        for code in (candidate.fault.fault_class, *candidate.fault.also):
            entries.setdefault(code, _Entry(code, candidate.fault, candidate.distance, candidate))
    absent = tuple(hook for hook in SEPARATING if getattr(trial.hooks, hook) is None)
    seen = observed(trial)
    for rank, group in enumerate(_groups(list(entries.values())), start=1):
        hint = _hint(group, absent)
        for entry in group:
            words = f"{_in_words(entry)} {hint(entry.code)}".rstrip()
            yield Suspect(rank, entry.code, entry.fault.name, f"{seen}. {words}", words, entry.distance)


def _groups(entries: Sequence[_Entry]) -> list[list[_Entry]]:
    """Entries that share a rank: no further than APART from the first of them, and not the certain with the likely."""
    groups: list[list[_Entry]] = []
    for entry in entries:
        first = groups[-1][0] if groups else None
        kindred = first is not None and (first.candidate is None) == (entry.candidate is None)
        if kindred and entry.distance <= first.distance + APART:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def _in_words(entry: _Entry) -> str:
    words = f"{entry.fault.sentence} Expected {entry.fault.right}; this does {entry.fault.wrong}."
    if entry.others:
        words += f" What was seen is left as well by: {' '.join(other.sentence for other in entry.others)}"
    return words


def _hint(group: Sequence[_Entry], absent: Sequence[str]):
    """Of a class in this group: what is said of those that share its rank."""
    codes = [entry.code for entry in group]
    tied = [entry.candidate for entry in group if entry.candidate is not None]
    if len({entry.fault.name for entry in group}) == 1:
        said = "The same fault is listed under {others} too."
    else:
        said = separating(tied, absent) if tied else "There is evidence of {others} as well."

    def of(code: str) -> str:
        return said.format(others=", ".join(other for other in codes if other != code)) if len(codes) > 1 else ""

    return of


def separating(tied: Sequence[Candidate], absent: Sequence[str]) -> str:
    """A sentence on faults that share a rank: which of the `absent` hooks would tell them apart."""
    said = "The evidence at hand does not tell it from {others}"
    for hook in absent:
        keys = SEPARATING[hook]
        shown = [candidate.simulation.shown(candidate.fault, candidate.calls, keys) for candidate in tied]
        if any(not same(shown[0], other) for other in shown[1:]):
            return f"{said}; give {hook} to separate them."
    return f"{said}, and no other hook would."
