"""What does a published model's cache cost, and what decides it? Up to four models beside each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcore.config import check_int
from kvcore.published.file import MOST_BYTES
from kvcore.published.layer import Description
from kvcore.published.sizes import Ask, size
from kvcore.studies.published_input import described
from kvcore.studies.published_result import Result

MOST_CONTEXT, MOST_BATCH, MOST_DEVICES = 1 << 30, 1_000_000, 1_024
MOST_MEMORY, MOST_PARAMETERS = 1 << 20, 100_000_000
WEIGHT_BITS = (32, 16, 8, 4)


@dataclass(frozen=True)
class Config:
    """Models and what is asked of them.

    model, second, third, fourth: a stored model's name, a typed architecture such as "layers=32, kv_heads=8", or
    the content of a config.json; empty for none. memory: GiB of one device. parameters: millions, 0 where the
    weights are not counted. peak_tflops and bandwidth (GB/s) are the visitor's hardware, 0 where not given.
    """

    model: str = "Gemma-3-27B"
    second: str = ""
    third: str = ""
    fourth: str = ""
    context: int = 131_072
    batch: int = 1
    format: str = "bf16"
    convention: str = "live"
    devices: int = 1
    prompt: int = 1_024
    new_tokens: int = 256
    memory: int = 80
    weight_bits: int = 16
    parameters: int = 0
    second_parameters: int = 0
    third_parameters: int = 0
    fourth_parameters: int = 0
    peak_tflops: int = 312
    bandwidth: int = 1_500

    def __post_init__(self) -> None:
        check_int("context", self.context, 1, MOST_CONTEXT)
        check_int("batch", self.batch, 1, MOST_BATCH)
        check_int("devices", self.devices, 1, MOST_DEVICES)
        check_int("prompt", self.prompt, 1, MOST_CONTEXT)
        check_int("new tokens", self.new_tokens, 1, MOST_CONTEXT)
        check_int("memory", self.memory, 1, MOST_MEMORY)
        if self.weight_bits not in WEIGHT_BITS:
            raise ValueError(f"{self.weight_bits} bits a weight is no choice here; it must be 32, 16, 8 or 4")
        for name in ("parameters", "second_parameters", "third_parameters", "fourth_parameters"):
            check_int(name.replace("_", " "), getattr(self, name), 0, MOST_PARAMETERS)
        check_int("peak TFLOP/s", self.peak_tflops, 0, 1_000_000)
        check_int("bandwidth", self.bandwidth, 0, 1_000_000_000)
        _ = self.ask
        check_models(self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """What the models are given as, empty ones left out."""
        return tuple(text for text in (self.model, self.second, self.third, self.fourth) if text.strip())

    @property
    def millions(self) -> tuple[int, ...]:
        """Millions of parameters of the same models."""
        given = (self.parameters, self.second_parameters, self.third_parameters, self.fourth_parameters)
        texts = (self.model, self.second, self.third, self.fourth)
        return tuple(each for text, each in zip(texts, given, strict=True) if text.strip())

    @property
    def ask(self) -> Ask:
        return Ask(self.context, self.batch, self.format, self.convention, self.devices)


def check_models(texts: tuple[str, ...]) -> None:
    """At least one, none too long, all understood."""
    if not texts:
        raise ValueError("no model is given; name one, type an architecture or paste a config.json")
    for text in texts:
        if len(text) > MOST_BYTES:
            raise ValueError(f"a config.json of {len(text):,} characters is too long; at most {MOST_BYTES:,} are read")
        described(text)


def models(texts: tuple[str, ...]) -> tuple[Description, ...]:
    """The models under names that differ."""
    found: list[Description] = []
    for text in texts:
        model = described(text)
        taken = sum(other.name.split(" · ")[0] == model.name for other in found)
        found.append(replace(model, name=f"{model.name} · {taken + 1}") if taken else model)
    return tuple(found)


def run(config: Config) -> Result:
    """Every model with its size under what is asked; what other views show is computed when they ask for it."""
    shown = models(config.texts)
    return Result(config, shown, tuple(size(model, config.ask) for model in shown))
