"""What the work-counts study found: one record a path, the honest cases, and both in words and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kvcore.budget import over_budget
from kvcore.studies.work_cells import STATES
from kvcore.studies.work_paths import MAX_RUN, QUANTITIES
from kvcore.studies.work_runs import BUDGET
from kvcore.units import bytes_in_words, plural, times_fewer

if TYPE_CHECKING:
    from kvcore.studies.work_counts import Config


@dataclass(frozen=True, eq=False)
class PathCount:
    """One path; the last axis of the int64 arrays is QUANTITIES.

    formula (3,), of all T tokens, and `formulas` the same in symbols. end (calls,), tokens processed
    after each call of the run, counted and expected (calls, 3) up to there; all three empty where
    the path was too large to run. cells (steps, positions), states of `work_cells`. tokens (n,), at
    which cumulative (n, 3) and per_step (n, 2) give the growth in closed form.
    """

    name: str
    formulas: tuple[str, str, str]
    formula: np.ndarray
    end: np.ndarray
    counted: np.ndarray
    expected: np.ndarray
    cells: np.ndarray
    single_call: bool
    tokens: np.ndarray
    cumulative: np.ndarray
    per_step: np.ndarray

    @property
    def ran(self) -> bool:
        return self.end.size > 0

    @property
    def equal(self) -> np.ndarray:
        """(3,), whether counted and formula agree after every call; all False where nothing was run."""
        return (self.counted == self.expected).all(axis=0) & self.ran

    @property
    def best(self) -> np.ndarray:
        """(3,), counted where it was run, else by formula."""
        return self.counted[-1] if self.ran else self.formula

    def n_cells(self, state: int) -> int:
        return int((self.cells == state).sum())

    def agreement(self, quantity: int) -> str:
        if not self.ran:
            return "only the formula: too large to run"
        return "equal" if self.equal[quantity] else "DIFFERENT"

    def rows(self) -> Iterator[dict[str, str | int | None]]:
        """One line a quantity."""
        for i, quantity in enumerate(QUANTITIES):
            yield {
                "quantity": quantity,
                "path": self.name,
                "formula": self.formulas[i],
                "by formula": int(self.formula[i]),
                "counted": int(self.counted[-1, i]) if self.ran else None,
                "agreement": self.agreement(i),
            }


@dataclass(frozen=True, eq=False)
class Case:
    """Projected rows and score elements with the cache and without: formula and counted (2, 2), or None if not run."""

    name: str
    formula: np.ndarray
    counted: np.ndarray | None

    @property
    def best(self) -> np.ndarray:
        return self.formula if self.counted is None else self.counted

    @property
    def agreement(self) -> str:
        if self.counted is None:
            return "only the formula: too large to run"
        return "equal" if (self.counted == self.formula).all() else "DIFFERENT"

    @property
    def reading(self) -> str:
        (rows, scores), (rows_without, scores_without) = self.best.tolist()
        if (rows, scores) == (rows_without, scores_without):
            verdict = "no difference"
        else:
            verdict = f"{times_fewer(rows_without, rows)} rows and {times_fewer(scores_without, scores)} score elements"
        how = "by formula" if self.counted is None else "counted"
        return (
            f"{rows:,} projected rows and {scores:,} score elements with the cache, {rows_without:,} and"
            f" {scores_without:,} without: {verdict}, {how}."
        )


@dataclass(frozen=True, eq=False)
class Result:
    """Every path in the order of the design, and the honest cases."""

    config: Config
    counts: tuple[PathCount, ...]
    cases: tuple[Case, ...]

    def path(self, name: str) -> PathCount | None:
        return next((count for count in self.counts if count.name == name), None)

    @property
    def reading(self) -> str:
        return " ".join([self._read_work(), self._read_payload(), *self._read_agreement()])

    def _read_work(self) -> str:
        prefix, token = self.path("prefix recomputation"), self.path("token cache")
        (rows, scores), (few_rows, few_scores) = prefix.best[:2].tolist(), token.best[:2].tolist()
        how = "counted" if prefix.ran and token.ran else "by formula"
        start = (
            f"For {plural(self.config.length, 'token')} and {plural(self.config.n_layers, 'layer')}, prefix"
            f" recomputation projects {plural(rows, 'row')} and allocates {plural(scores, 'score element')} a query"
            f" head; the token cache {few_rows:,} and {few_scores:,}"
        )
        if (rows, scores) == (few_rows, few_scores):
            return f"{start}: the same, {how}, for the first token has no past."
        return (
            f"{start}: {times_fewer(rows, few_rows)} rows and {times_fewer(scores, few_scores)} score elements, {how}."
        )

    def _read_payload(self) -> str:
        full, windowed = self.path("token cache"), self.path("sliding cache")
        kept = f"It then keeps {bytes_in_words(int(full.best[2]))} of keys and values"
        if windowed is None:
            return f"{kept}."
        window = f"a window of {self.config.window:,}"
        if self.config.window >= self.config.length:
            return f"{kept}; {window} holds all of it."
        return f"{kept}; {window} keeps {bytes_in_words(int(windowed.best[2]))}."

    def _read_agreement(self) -> Iterator[str]:
        ran = [count for count in self.counts if count.ran]
        different = [count.name for count in ran if not count.equal.all()]
        if different:
            yield f"Counted and formula DIFFER for {', '.join(different)}."
        elif len(ran) == len(self.counts):
            yield f"Counted while running, all {len(ran)} paths equal their formulas after every call."
        elif ran:
            yield f"Counted while running, {plural(len(ran), 'path')} of {len(self.counts)} equal their formulas."
        if self.config.length > MAX_RUN:
            yield f"Only formulas are shown: at most {MAX_RUN} tokens are run here."
        elif len(ran) < len(self.counts):
            missing = [count.name for count in self.counts if not count.ran]
            shown = "Its formula is" if len(missing) == 1 else "Their formulas are"
            yield f"{over_budget(missing, BUDGET)} {shown} shown."

    def tables(self) -> dict[str, pd.DataFrame]:
        counts = pd.DataFrame([row for count in self.counts for row in count.rows()])
        counts["counted"] = counts["counted"].astype("Int64")
        order = {quantity: i for i, quantity in enumerate(QUANTITIES)}
        return {
            "counts": counts.sort_values("quantity", key=lambda column: column.map(order), kind="stable"),
            "cases": pd.DataFrame(
                [
                    {
                        "case": case.name,
                        "quantity": quantity,
                        "with the cache": int(case.best[0, i]),
                        "without": int(case.best[1, i]),
                        "formula and counted": case.agreement,
                    }
                    for case in self.cases
                    for i, quantity in enumerate(QUANTITIES[:2])
                ]
            ),
            "steps": pd.DataFrame(
                [
                    {"path": count.name, "step": step}
                    | {name: int((row == state).sum()) for state, name in STATES.items()}
                    for count in self.counts
                    for step, row in enumerate(count.cells, start=1)
                ]
            ),
            "growth": pd.DataFrame(
                [
                    {"path": count.name, "tokens": tokens}
                    | dict(zip((f"{quantity} in this step" for quantity in QUANTITIES[:2]), step, strict=True))
                    | dict(zip(QUANTITIES, total, strict=True))
                    for count in self.counts
                    for tokens, step, total in zip(
                        count.tokens.tolist(), count.per_step.tolist(), count.cumulative.tolist(), strict=True
                    )
                ]
            ),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        found = {f"case_{case.name.replace(' ', '_')}": case.best for case in self.cases}
        for count in self.counts:
            for field in ("formula", "end", "counted", "expected", "cells", "tokens", "cumulative", "per_step"):
                found[f"{count.name.replace(' ', '_')}_{field}"] = getattr(count, field)
        return found
