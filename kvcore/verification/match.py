"""How alike two patterns of evidence are, kind by kind."""

from __future__ import annotations

import numpy as np

from kvcore.verification.evidence import Responses, Signature
from kvcore.verification.plan import BASE

WEIGHT = {
    "differs": 1.0,
    "misses": 0.5,
    "leaks": 0.5,
    "ahead": 1.0,
    "repeat": 4.0,
    "branch": 2.0,
    "crop": 2.0,
    "reuse": 2.0,
}
"""What a kind of evidence counts; runs of other sequences than the caller's own count half."""


def distance(found: Signature, expected: Signature) -> float:
    """0 where the same positions are marked in everything that both have, 1 where none agree."""
    total, weights = 0.0, 0.0
    for key, bad in found.items():
        other = expected.get(key)
        if other is None or other.shape != bad.shape:
            continue
        kind, _, sequence = key
        weight = WEIGHT.get(kind, 1.0) * (0.5 if kind == "differs" and sequence != BASE else 1.0)
        both, either = int((bad & other).sum()), int((bad | other).sum())
        if not either and kind in ("misses", "leaks", "ahead"):
            weight *= 0.25  # that nothing was missed says little
        total += weight * (1 - both / either if either else 0.0)
        weights += weight
    return total / weights if weights else 1.0


def same(one: Signature, other: Signature) -> bool:
    """Whether two faults leave the very same evidence."""
    return one.keys() == other.keys() and all(np.array_equal(bad, other[key]) for key, bad in one.items())


def response_distance(found: Responses, expected: Responses) -> float:
    """0 where edits move new rows by as much more or less on the average, with as much scatter; 1 where not at all.

    Only what survives other weights is compared: over the edits of the prompt the mean and the spread of
    the logarithms, the first token apart, and the row's own token.
    """
    total, count = 0.0, 0
    for key, ratios in found.items():
        other = expected.get(key)
        if other is None or len(other) != len(ratios) or len(ratios) < 3:
            continue
        for one, two in zip(_features(ratios), _features(other), strict=True):
            total += min(1.0, abs(one - two))
            count += 1
    return total / count if count else 0.0


def _features(ratios: np.ndarray) -> tuple[float, float, float, float]:
    first, middle, own = ratios[0], ratios[1:-1], ratios[-1]
    return float(first), float(middle.mean()), float(middle.std()), float(own)
