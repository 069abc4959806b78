"""One path beside its reference, and what that says in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kvcore.compare import Comparison
from kvcore.work import Work

ROUNDING_FACTOR = 4
"""Two paths of one format may be so many times as far from float64 as each other by rounding alone."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One path beside its reference, at every position where both have a row.

    position (rows,); gap (rows, d_model), absolute differences after the last layer; by_layer
    (n_layers, rows), the largest at each position after each layer; from_exact (rows,) the distance
    from the float64 run of the same cast parameters, or None in float64.
    """

    name: str
    against: str
    deliberate: bool
    expected_equal: bool
    position: np.ndarray
    gap: np.ndarray
    by_layer: np.ndarray
    from_exact: np.ndarray | None
    reference_from_exact: float | None
    tolerance: float
    work: Work
    payload_bytes: int

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.position, self.by_layer[-1], self.tolerance)

    @property
    def verdict(self) -> str:
        if not self.deliberate and not self.comparison.equal:
            return "rounding" if self.only_rounding else "BEYOND TOLERANCE"
        if not self.deliberate:
            return "equal"
        if self.expected_equal:
            return "expected equal" if self.comparison.equal else "BEYOND TOLERANCE"
        return "missed" if self.comparison.equal else "caught"

    @property
    def only_rounding(self) -> bool:
        """No further from float64 than a few times what its reference is: the number format, not the path."""
        if self.from_exact is None or self.reference_from_exact is None:
            return False
        return bool(self.from_exact.max() <= ROUNDING_FACTOR * self.reference_from_exact)

    @property
    def where(self) -> str:
        """A sentence: after which layer and at which position the difference first passes the tolerance."""
        beyond = self.by_layer > self.tolerance
        if not beyond.any():
            return "It is within the tolerance after every layer."
        layer = int(beyond.any(axis=1).argmax())
        position = int(self.position[beyond[layer].argmax()])
        return f"It first passes the tolerance after layer {layer + 1}, there at position {position}."

    @property
    def last_position_would_miss(self) -> bool:
        """Beyond tolerance somewhere, but not at the last row."""
        return not self.comparison.equal and bool(self.by_layer[-1][-1] <= self.tolerance)

    def row(self) -> dict[str, str | int | float]:
        """One line of the table by path."""
        found = self.comparison
        row = {
            "path": self.name,
            "verdict": self.verdict,
            "largest difference": found.largest,
            "at position": found.worst_position,
            "first beyond tolerance": "none" if found.first_beyond is None else str(found.first_beyond),
            "positions beyond": f"{len(found.beyond)} of {len(found.position)}",
            "compared with": self.against,
            "deliberately wrong": "yes" if self.deliberate else "no",
            "tolerance": self.tolerance,
        }
        if self.from_exact is not None:
            row["from float64"] = float(self.from_exact.max())
        return row | {
            "projected rows": self.work.projected_rows,
            "score elements": self.work.score_elements,
            "K/V payload bytes": self.payload_bytes,
        }

    def rows_by_layer(self) -> Iterator[dict[str, str | int | float]]:
        """The largest difference at each position after each layer."""
        for layer, differences in enumerate(self.by_layer, start=1):
            for position, difference in zip(self.position.tolist(), differences.tolist(), strict=True):
                yield {"path": self.name, "after layer": layer, "position": position, "largest difference": difference}

    def arrays(self) -> dict[str, np.ndarray]:
        name = self.name.replace(" ", "_")
        found = {f"{name}_position": self.position, f"{name}_gap": self.gap, f"{name}_by_layer": self.by_layer}
        return found if self.from_exact is None else found | {f"{name}_from_float64": self.from_exact}


def read_right(right: Sequence[Outcome]) -> Iterator[str]:
    if not right:
        return
    worst = max(right, key=lambda o: o.comparison.largest)
    names_ = f"{worst.name}" if len(right) == 1 else f"the furthest of {len(right)} right paths, {worst.name}"
    yield f"{names_[0].upper()}{names_[1:]}, against {worst.against}: {worst.comparison.in_words()}."
    if rounding := [o.name for o in right if o.verdict == "rounding"]:
        yield (
            f"Beyond the tolerance but about as far from float64 as its reference, so rounding: {', '.join(rounding)}."
        )


def read_wrong(wrong: Sequence[Outcome]) -> Iterator[str]:
    caught = [o for o in wrong if not o.comparison.equal]
    if caught:
        least = min(caught, key=lambda o: o.comparison.largest)
        first = least.comparison.first_beyond
        yield (
            f"{len(caught)} deliberate mistake{'s show' if len(caught) > 1 else ' shows'}: the smallest,"
            f" {least.name}, is off by {least.comparison.largest:.2g}, first at position {first}."
        )
    for outcome in wrong:
        if outcome.last_position_would_miss:
            yield f"Looking at the last position alone would miss {outcome.name}."
        if outcome.comparison.equal and outcome.expected_equal:
            yield f"{outcome.name[0].upper()}{outcome.name[1:]} is right in this setting: expected equal, and equal."
        elif outcome.comparison.equal:
            yield f"{outcome.name[0].upper()}{outcome.name[1:]} stays within the tolerance here and is missed."
