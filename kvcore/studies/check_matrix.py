"""Which check notices which mistake? Every fault, five checks, five splits into calls, many seeded models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kvcore.faults import FAULTS
from kvcore.parse import names
from kvcore.studies import check_row
from kvcore.studies import check_words as words
from kvcore.studies.check_row import CHECKS, RIGHT_STEP, SPLITS
from kvcore.studies.fault_facts import CLASSES
from kvcore.studies.fault_runs import PLAIN, scenario

USED_CLASSES = tuple(name for name in CLASSES if any(fault.fault_class == name for fault in FAULTS.values()))
"""Classes that the engine has faults of."""


@dataclass(frozen=True)
class Config:
    """`classes` are classes of faults with commas between, all where it is empty."""

    classes: str = ""
    n_models: int = 8
    length: int = 12
    window: int = 4
    dtype: str = "float64"

    def __post_init__(self) -> None:
        names(self.classes, "class of faults", USED_CLASSES)
        _ = self.rows

    @property
    def faults(self) -> tuple[str, ...]:
        """In the order of their classes."""
        chosen = names(self.classes, "class of faults", USED_CLASSES) or USED_CLASSES
        found = [name for name, fault in FAULTS.items() if fault.fault_class in chosen]
        return tuple(sorted(found, key=lambda name: USED_CLASSES.index(FAULTS[name].fault_class)))

    @property
    def rows(self) -> tuple[check_row.Config, ...]:
        """One a fault; the last is the right step, in which nothing must be noticed."""
        return tuple(
            check_row.Config(name, self.n_models, self.length, self.window, self.dtype)
            for name in (*self.faults, RIGHT_STEP)
        )


@dataclass(frozen=True, eq=False)
class Result:
    """noticed (faults, checks, splits): in how many of the models; false_alarms (checks, splits): of the right step."""

    config: Config
    noticed: np.ndarray
    false_alarms: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Of the models, 0 to 1, (faults, checks, splits)."""
        return self.noticed / self.config.n_models

    @property
    def always(self) -> np.ndarray:
        """How many faults each check notices in every model under each split, (checks, splits)."""
        return (self.noticed == self.config.n_models).sum(axis=0)

    @property
    def plain(self) -> np.ndarray:
        """Faults that can show in one sequence that only goes on, (faults,) of bool."""
        return np.array([scenario(FAULTS[name]) == PLAIN for name in self.config.faults])

    @property
    def reading(self) -> str:
        return words.reading(self)

    def tables(self) -> dict[str, pd.DataFrame]:
        """`summary`: faults noticed in every model, a row a check; `matrix`: models, a row a fault and check."""
        summary = pd.DataFrame({"check": CHECKS} | {split: self.always[:, at] for at, split in enumerate(SPLITS)})
        rows = []
        for name, found in zip((*self.config.faults, RIGHT_STEP), [*self.noticed, self.false_alarms], strict=True):
            fault_class = FAULTS[name].fault_class if name in FAULTS else ""
            for check, models in zip(CHECKS, found.tolist(), strict=True):
                rows.append(
                    {"class": fault_class, "fault": name, "check": check} | dict(zip(SPLITS, models, strict=True))
                )
        return {"summary": summary, "matrix": pd.DataFrame(rows)}

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "faults": np.array(self.config.faults),
            "checks": np.array(CHECKS),
            "splits": np.array(SPLITS),
            "noticed": self.noticed,
            "false_alarms": self.false_alarms,
            "n_models": np.array(self.config.n_models),
        }


def assemble(config: Config, rows: Sequence[np.ndarray]) -> Result:
    """The result from what `check_row.run` gave for each of `config.rows`."""
    return Result(config, np.array(rows[:-1]), rows[-1])


def run(
    config: Config,
    row: Callable[[check_row.Config], np.ndarray] = check_row.run,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """All rows, one after the other; `row` may be a cached way to run one, `progress` hears how many are done."""
    found = []
    for done, wanted in enumerate(config.rows, start=1):
        found.append(row(wanted))
        progress(done, len(config.rows))
    return assemble(config, found)
