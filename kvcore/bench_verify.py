"""What `verify` costs beside the model's own calls: a 3-layer model of width 32 with 12 tokens, right and faulty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.faults import FAULTS
from kvcore.setting import Setting
from kvcore.verification.lab import model
from kvcore.verification.verify import verify

TARGET_SECONDS = 1.0
FAULT = "causal_mask_top_left"


@dataclass(frozen=True)
class Cost:
    """`verify` spends `ratio` times as long on itself as in the model's calls: the median of `runs` runs.

    own_seconds and model_seconds are medians too; the target is on own_seconds.
    """

    name: str
    setting: str
    ratio: float
    against: str
    runs: int
    own_seconds: float
    model_seconds: float
    target_seconds: float = TARGET_SECONDS

    @property
    def line(self) -> str:
        return (
            f"{self.name} takes {self.ratio:.2f} times as long on itself as in {self.against} ({self.setting};"
            f" {self.own_seconds:.2f} s beside {self.model_seconds:.2f} s; {self.runs} runs;"
            f" target at most {self.target_seconds:g} s beside them)"
        )

    def to_json(self) -> dict[str, str | int | float]:
        return asdict(self)


def costs(runs: int) -> Iterator[Cost]:
    """A right model, and one with a fault, which must be diagnosed too."""
    decoder = DecoderConfig(n_layers=3, d_model=32, n_heads=4, n_kv_heads=2, positions="rotary")
    tokens = lab_token_ids(12).tolist()
    for name, fault in (("verify of a right model", None), ("verify of a faulty model", FAULTS[FAULT])):
        own, models = [], []
        for _ in range(runs):
            report = verify(token_ids=tokens, **model(Setting(decoder), fault, hooks=False))
            own.append(report.own_seconds)
            models.append(report.model_seconds)
        ratio = median(a / b for a, b in zip(own, models, strict=True))
        setting = "3 layers, d_model 32, 12 tokens, full, step and ids only"
        yield Cost(name, setting, ratio, "the model's own calls", runs, median(own), median(models))
