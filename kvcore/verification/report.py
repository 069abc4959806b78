"""The report of one verification: verdict, checks, tolerance, what is probably wrong; text, table, JSON, figure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from kvcore.verification.checks import Check
from kvcore.verification.suspects import Suspect
from kvcore.verification.tolerance import Tolerance

SHOWN = 40
"""Check lines that are printed; the frame and the JSON hold all."""

PRINTED_SUSPECTS = 5


@dataclass(frozen=True, eq=False)
class Report:
    """What `verify` found.

    `ok` is False where a row differs by more than rounding or a call broke off. `diagnosis` ranks what
    is probably wrong, 1 the likeliest; entries that the evidence cannot tell apart share a rank.
    `differences` holds for each split of the caller's tokens the largest difference at every position (T,),
    absolute. `model_seconds` were spent inside full and step, `own_seconds` beside them.
    """

    ok: bool
    n_tokens: int
    tolerance: Tolerance
    checks: tuple[Check, ...]
    diagnosis: tuple[Suspect, ...]
    notes: tuple[str, ...]
    differences: dict[str, np.ndarray]
    model_calls: int
    model_seconds: float
    own_seconds: float

    @property
    def verdict(self) -> str:
        """One sentence."""
        tested = [check for check in self.checks if check.verdict not in ("not tested", "note")]
        worst = max((check.largest for check in tested if check.largest is not None), default=0.0)
        wrong = [check for check in tested if check.faulty]
        if wrong:
            first = next((check for check in wrong if check.first_bad is not None), None)
            at = "" if first is None else f", the first at position {first.first_bad} under {first.name!r}"
            return f"FAULT: {len(wrong)} of {len(tested)} checks fail{at}; largest difference {worst:.3g}"
        if any(check.verdict == "rounding" for check in tested):
            return (
                f"equal but for rounding: largest difference {worst:.3g} in {len(tested)} checks,"
                f" {worst / self.tolerance.scale:.1g} of the output scale"
            )
        return f"equal at every position: largest difference {worst:.3g} in {len(tested)} checks"

    def __str__(self) -> str:
        lines = [self.verdict + ".", f"Tolerance {self.tolerance.equal:.3g} ({self.tolerance.source})."]
        if self.tolerance.rounding > self.tolerance.equal:
            lines.append(f"Up to {self.tolerance.rounding:.3g} counts as rounding and not as a fault.")
        lines += ["", _table(self.checks)]
        untested = [check for check in self.checks if check.verdict == "not tested"]
        lines += [""] + [f"not tested: {check.name}: {check.note}" for check in untested] if untested else []
        lines += [f"note: {note}" for note in self.notes]
        if self.diagnosis:
            seen = self.diagnosis[0].evidence.removesuffix(self.diagnosis[0].advice).strip()
            lines += ["", f"Seen: {seen}", "What is probably wrong:"]
            for suspect in self.diagnosis[:PRINTED_SUSPECTS]:
                lines.append(f"  {suspect.rank}. {suspect.fault_class} {suspect.fault}: {suspect.advice}")
        return "\n".join(lines)

    def to_frame(self) -> pd.DataFrame:
        """A row a check."""
        return pd.DataFrame([asdict(check) for check in self.checks])

    def to_json(self) -> str:
        """Everything but the differences by position of each check."""
        found = {
            "ok": self.ok,
            "verdict": self.verdict,
            "n_tokens": self.n_tokens,
            "tolerance": asdict(self.tolerance),
            "checks": [asdict(check) for check in self.checks],
            "diagnosis": [asdict(suspect) for suspect in self.diagnosis],
            "notes": list(self.notes),
            "differences": {name: gap.tolist() for name, gap in self.differences.items()},
            "model_calls": self.model_calls,
            "model_seconds": self.model_seconds,
            "own_seconds": self.own_seconds,
        }
        return json.dumps(_finite(found), indent=1)

    def figure(self) -> Any:
        """The differences by position and split as a plotly Figure; plotly is imported here."""
        from kvcore.figures.report import figure

        return figure(self)


def _finite(value: Any) -> Any:
    """JSON has no infinity: such a number is given as text."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _table(checks: tuple[Check, ...]) -> str:
    """The checks in columns; where there are many, those that fail come first and the rest is counted."""
    told = [check for check in checks if check.verdict != "not tested"]
    rest = 0
    if len(told) > SHOWN:
        keep = {id(check) for check in sorted(told, key=lambda check: not check.faulty)[:SHOWN]}
        rest = len(told) - len(keep)
        told = [check for check in told if id(check) in keep]
    rows = [("check", "tokens", "verdict", "largest", "first bad", "positions bad", "")]
    for check in told:
        largest = "" if check.largest is None else f"{check.largest:.2e}"
        first = "" if check.first_bad is None else str(check.first_bad)
        bad = f"{check.n_bad} of {check.n_positions}" if check.n_positions else ""
        rows.append((check.name, check.tokens, check.verdict, largest, first, bad, check.note))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[6]]).rstrip() for row in rows
    ]
    return "\n".join([*lines, f"… and {rest} more checks that hold"] if rest else lines)
