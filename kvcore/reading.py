"""The experiment in sentences, from its figures alone: `run` and `audit` say the same of the same figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvcore.measures import (
    BEYOND,
    CAUGHT,
    DIFFERENCES,
    EXPECTED_EQUAL,
    FIGURES,
    MISCOUNTED,
    MISSED,
    NOT_ZERO,
    Figure,
    Number,
    verdict,
)
from kvcore.protocol import Protocol
from kvcore.units import plural

Found = tuple[Figure, int, Number]
"""A figure, the seed where it is largest (or smallest), and its value there."""


def read_experiment(protocol: Protocol, results: Sequence[Mapping[str, Number]]) -> str:
    """Whether right paths are equal, how far off the mistakes are, and whatever did not go as it should."""
    where = f"Over {plural(len(results), 'seed')} and {plural(protocol.length, 'position')}"
    sentences = [f"{where}, {_read_right(protocol, results)}{_read_caught(protocol, results)}."]
    return " ".join([*sentences, *_read_rest(protocol, results)])


def _extreme(figures: Sequence[Figure], results: Sequence[Mapping[str, Number]], pick=max) -> Found:
    """The largest (or, with pick=min, the smallest) of these figures over all seeds."""
    found = [(figure, int(result["seed"]), result[figure.key]) for figure in figures for result in results]
    return pick(found, key=lambda entry: entry[2])


def _with_verdict(word: str, protocol: Protocol, results: Sequence[Mapping[str, Number]]) -> list[Figure]:
    """Figures that get this verdict for at least one seed."""
    return [f for f in FIGURES if any(verdict(f, result[f.key], protocol) == word for result in results)]


def _read_right(protocol: Protocol, results: Sequence[Mapping[str, Number]]) -> str:
    right = [figure for figure in DIFFERENCES if figure.kind == "rounding"]
    _, _, largest = _extreme(right, results)
    beyond = [figure for figure in _with_verdict(BEYOND, protocol, results) if figure.kind == "rounding"]
    if beyond:
        worst, seed, largest = _extreme(beyond, results)
        return (
            f"{len(beyond)} of {len(right)} correct paths {'goes' if len(beyond) == 1 else 'go'} beyond the tolerance"
            f" {protocol.tolerance:g}: {worst.label} is furthest from its reference, by {largest:.2g} for seed {seed}"
        )
    if largest == 0:
        return "every correct path equals its reference exactly"
    return f"every correct path stays within {largest:.2g} of its reference (tolerance {protocol.tolerance:g})"


def _read_caught(protocol: Protocol, results: Sequence[Mapping[str, Number]]) -> str:
    controls = [figure for figure in DIFFERENCES if figure.kind == "control"]
    caught = [
        (figure, result["seed"], result[figure.key])
        for figure in controls
        for result in results
        if verdict(figure, result[figure.key], protocol) == CAUGHT
    ]
    if not caught:
        return ""
    figure, seed, least = min(caught, key=lambda entry: entry[2])
    among = "the smallest deliberate mistake" + (" that shows" if _with_verdict(MISSED, protocol, results) else "")
    return f", while {among}, {figure.label} for seed {seed}, is off by {least:.2g}"


def _read_rest(protocol: Protocol, results: Sequence[Mapping[str, Number]]) -> Iterator[str]:
    for figure in _with_verdict(MISSED, protocol, results):
        _, seed, least = _extreme([figure], results, min)
        yield (
            f"{_capital(figure.label)} is a mistake that the tolerance {protocol.tolerance:g} misses:"
            f" it is off by only {least:.2g} for seed {seed}."
        )
    for figure in _with_verdict(EXPECTED_EQUAL, protocol, results):
        yield f"{_capital(figure.label)} is right in this setting: expected equal, and equal."
    for figure in _with_verdict(BEYOND, protocol, results):
        if figure.kind == "control":
            _, seed, worst = _extreme([figure], results)
            yield f"{_capital(figure.label)} should be equal in this setting but is off by {worst:.2g} for seed {seed}."
    for figure in _with_verdict(NOT_ZERO, protocol, results):
        _, seed, worst = _extreme([figure], results)
        yield f"The {figure.label} must change earlier rows by exactly 0; it does by {worst:.2g} for seed {seed}."
    miscounted = _with_verdict(MISCOUNTED, protocol, results)
    if miscounted:
        yield f"Counted while running, these differ from their formulas: {', '.join(f.label for f in miscounted)}."
    else:
        yield "Every count of work and bytes equals its formula."


def _capital(label: str) -> str:
    return label[0].upper() + label[1:]
