"""Is my cache right, and if not, what is probably wrong? `verify` on a decoder of the lab that stands in for yours."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kvcore.config import POSITIONS, DecoderConfig, check_choice, check_int, lab_token_ids
from kvcore.faults import FAULTS, Fault
from kvcore.setting import Setting
from kvcore.studies import own_words as words
from kvcore.verification import lab
from kvcore.verification.report import Report
from kvcore.verification.saving import save_outputs
from kvcore.verification.verify import verify

NONE = "none"
"""Stands for no mistake at all."""

MIN_LENGTH, MAX_LENGTH = 6, 24
MAX_WINDOW = 16


def _shows(fault: Fault) -> bool:
    """Whether it can show here: faults of going back and of reuse need more than full and step, others need sinks."""
    decoders = [_decoder(0, positions) for positions in POSITIONS]
    settings = [Setting(decoder, windows) for decoder in decoders for windows in ((4,), (4, None))]
    return fault.deviate is not Fault.deviate and not all(map(fault.needs, settings))


def _decoder(seed: int, positions: str) -> DecoderConfig:
    return DecoderConfig(seed=seed, n_heads=4, n_kv_heads=2, positions=positions)


MISTAKES = (NONE, *(name for name, fault in FAULTS.items() if _shows(fault)))


@dataclass(frozen=True)
class Config:
    """`fault` is one of MISTAKES; `window` holds in every layer, or, where the fault needs that, in every other one."""

    fault: str = "causal_mask_top_left"
    positions: str = "rotary"
    window: int | None = 4
    length: int = 16
    seed: int = 7

    def __post_init__(self) -> None:
        check_choice("fault", self.fault, MISTAKES)
        check_choice("positions", self.positions, POSITIONS)
        if self.window is not None:
            check_int("window", self.window, 1, MAX_WINDOW)
        check_int("tokens", self.length, MIN_LENGTH, MAX_LENGTH)
        check_int("seed", self.seed, 0)
        if self.mistake is not None and (missing := self.mistake.needs(self.setting)):
            raise ValueError(f"the mistake {self.fault} {missing}; change the decoder or choose another mistake")

    @property
    def mistake(self) -> Fault | None:
        return FAULTS.get(self.fault)

    @property
    def setting(self) -> Setting:
        decoder = _decoder(self.seed, self.positions)
        everywhere, every_other = Setting(decoder, (self.window,)), Setting(decoder, (self.window, None))
        alternating = self.mistake is not None and self.mistake.needs(everywhere)
        return every_other if alternating and not self.mistake.needs(every_other) else everywhere

    @property
    def model(self) -> lab.Model:
        """`full` and `step`, as one's own model would give them, and the token ids."""
        tokens = lab_token_ids(self.length).tolist()
        return lab.model(self.setting, self.mistake, hooks=False) | {"token_ids": tokens}


@dataclass(frozen=True, eq=False)
class Result:
    config: Config
    report: Report

    @property
    def reading(self) -> str:
        """What was planted, the verdict, and the first suspects."""
        return words.reading(self)

    def tables(self) -> dict[str, pd.DataFrame]:
        return tables(self.report)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"token_ids": np.array(self.config.model["token_ids"])} | arrays(self.report)


COLUMNS = {"name": "check", "first_bad": "first bad", "n_bad": "positions bad", "n_positions": "of"}
"""What the columns of a check are called in tables."""


def tables(report: Report) -> dict[str, pd.DataFrame]:
    """A report's differences by position and split, its ranking and its checks, as frames."""
    position = pd.DataFrame({"position": np.arange(report.n_tokens)})
    shown = ["rank", "fault_class", "fault", "advice"]
    ranking = pd.DataFrame([[getattr(s, name) for name in shown] for s in report.diagnosis], columns=shown)
    return {
        "differences": position.assign(**report.differences),
        "ranking": ranking,
        "checks": report.to_frame().astype({"first_bad": "Int64"}).rename(columns=COLUMNS),
    }


def arrays(report: Report) -> dict[str, np.ndarray]:
    """The differences (T,) of each split, under names that a file can have."""
    return {name.replace(", ", "_").replace(" ", "_"): gap for name, gap in report.differences.items()}


def example(config: Config) -> bytes:
    """The outputs of this decoder as an NPZ that can be uploaded: what it holds is as wrong as the decoder is."""
    buffer, model = io.BytesIO(), config.model
    save_outputs(buffer, model["full"], model["step"], model["token_ids"])
    return buffer.getvalue()


def run(config: Config) -> Result:
    """`verify` with full, step and token ids alone."""
    return Result(config, verify(**config.model))
