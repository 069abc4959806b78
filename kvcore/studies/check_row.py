"""One fault, many seeded models: the share of them in which each way of checking notices it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.config import DTYPES, TOLERANCE, check_choice, check_int, lab_token_ids
from kvcore.faults import FAULTS
from kvcore.faults.fault import Pattern
from kvcore.model import LabDecoder
from kvcore.setting import Setting
from kvcore.studies.fault_settings import Shape, fitting
from kvcore.verification.plan import EQUAL, ONE_CALL, ONES, PREFILL, UNEQUAL, Sizes, equal, unequal

RIGHT_STEP = "right step"
"""Stands for no fault: what a check notices here is a false alarm."""

SPLITS = (ONES, ONE_CALL, EQUAL, UNEQUAL, PREFILL)
CHECKS = ("shape and finiteness", "last token's argmax", "every argmax", "last position", "every position")
"""From the weakest to the strongest; the first two kinds say nothing of the size of a difference."""

MAX_MODELS = 20
MIN_LENGTH, MAX_LENGTH = 6, 24
EQUAL_SIZE = 4


@dataclass(frozen=True)
class Config:
    """One row of the matrix: `n_models` decoders of two layers with seeds 0, 1, …, and `length` tokens each."""

    fault: str = RIGHT_STEP
    n_models: int = 8
    length: int = 12
    window: int = 4
    dtype: str = "float64"

    def __post_init__(self) -> None:
        check_choice("fault", self.fault, (RIGHT_STEP, *FAULTS))
        check_int("models", self.n_models, 1, MAX_MODELS)
        check_int("tokens", self.length, MIN_LENGTH, MAX_LENGTH)
        check_int("window", self.window, 1, MAX_LENGTH)
        check_choice("dtype", self.dtype, DTYPES)

    @property
    def shape(self) -> Shape:
        """The simplest setting in which the fault is in force."""
        return SIMPLE if self.fault == RIGHT_STEP else fitting(FAULTS[self.fault], window=self.window)

    def setting(self, seed: int) -> Setting:
        return self.shape.setting(self.window, seed=seed, dtype=self.dtype)


SIMPLE = Shape("sinusoidal", "all", 1, 1, 0)


def splits(length: int) -> dict[str, Sizes]:
    """The calls of each split."""
    half = length // 2
    return {
        ONES: (1,) * length,
        ONE_CALL: (length,),
        EQUAL: equal(length, EQUAL_SIZE),
        UNEQUAL: unequal(length),
        PREFILL: (half,) + (1,) * (length - half),
    }


def run(config: Config) -> np.ndarray:
    """In how many of the models each check noticed the fault under each split: (checks, splits)."""
    noticed = np.zeros((len(CHECKS), len(SPLITS)), dtype=np.int64)
    token_ids = lab_token_ids(config.length)
    for seed in range(config.n_models):
        setting = config.setting(seed)
        decoder = LabDecoder(setting.decoder)
        table = decoder.table.double().numpy()
        reference = decoder.step(token_ids, rules=_rules(config, setting, of_full_path=True)).hidden.double().numpy()
        for column, sizes in enumerate(splits(config.length).values()):
            rows = rows_in_calls(decoder, token_ids, sizes, _rules(config, setting))
            noticed[:, column] += checked(rows, reference, table, TOLERANCE[config.dtype])
    return noticed


def _rules(config: Config, setting: Setting, of_full_path: bool = False) -> Pattern:
    """Anew for every run, since some faults remember."""
    if config.fault == RIGHT_STEP:
        return setting.rules
    fault = FAULTS[config.fault]
    return setting.rules if of_full_path and not fault.wrong_reference else fault.deviate(setting)


def rows_in_calls(decoder: LabDecoder, token_ids: np.ndarray, sizes: Sizes, rules: Pattern) -> np.ndarray:
    """Hidden states (T, d_model) of the tokens, run in calls of these sizes, as float64."""
    cache, at, rows = None, 0, []
    for size in sizes:
        step = decoder.step(token_ids[at : at + size], cache, rules)
        cache, at = step.cache, at + size
        rows.append(step.hidden.double().numpy())
    return np.concatenate(rows)


def checked(rows: np.ndarray, reference: np.ndarray, table: np.ndarray, tolerance: float) -> np.ndarray:
    """Whether each of CHECKS notices that rows (T, d_model) are not the reference's, (checks,) of bool.

    The argmax is over the logits of a tied unembedding, hidden · tableᵀ, with table (vocab_size, d_model).
    """
    if rows.shape != reference.shape or not np.isfinite(rows).all():
        return np.ones(len(CHECKS), dtype=bool)
    chosen = (rows @ table.T).argmax(axis=-1) != (reference @ table.T).argmax(axis=-1)
    beyond = ~(difference_by_position(rows, reference) <= tolerance)
    return np.array([False, chosen[-1], chosen.any(), beyond[-1], beyond.any()])
