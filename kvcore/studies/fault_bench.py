"""One fault switched on: the right step and the wrong one side by side, and how far they are from the full path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore.budget import estimate
from kvcore.config import POSITIONS, check_choice, check_int, lab_token_ids
from kvcore.faults import FAULTS, Fault
from kvcore.model import LabDecoder
from kvcore.parse import chunk_sizes
from kvcore.setting import Setting
from kvcore.studies.fault_compare import Pair, pair
from kvcore.studies.fault_result import Result
from kvcore.studies.fault_runs import REUSE, Play, Side, scenario
from kvcore.studies.fault_settings import PATTERNS, Shape, fitting

MAX_LENGTH = 32
MAX_LAYERS = 4
MAX_SINKS = 4
HEADS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Config:
    """`positions`, `pattern`, heads and sinks that are None are as the fault needs them.

    `pattern` names the layers that have the window; `call` (from 0) and `layer` (from 1) are what is looked at,
    None for the first that differ.
    """

    fault: str = "causal_mask_top_left"
    positions: str | None = None
    pattern: str | None = None
    window: int = 4
    n_layers: int = 2
    n_heads: int | None = None
    n_kv_heads: int | None = None
    n_sinks: int | None = None
    length: int = 18
    chunks: str = "5,3,1,2,1,6,..."
    seed: int = 7
    call: int | None = None
    layer: int | None = None

    def __post_init__(self) -> None:
        check_choice("fault", self.fault, tuple(FAULTS))
        check_int("window", self.window, 1, MAX_LENGTH)
        check_int("layers", self.n_layers, 1, MAX_LAYERS)
        check_int("tokens", self.length, 2, MAX_LENGTH)
        check_int("seed", self.seed, 0)
        if self.positions is not None:
            check_choice("positions", self.positions, POSITIONS)
        if self.pattern is not None:
            check_choice("pattern", self.pattern, tuple(PATTERNS))
        for name in ("n_heads", "n_kv_heads"):
            if (given := getattr(self, name)) is not None and given not in HEADS:
                raise ValueError(f"{name} is {given}; it must be one of {', '.join(map(str, HEADS))}")
        if self.n_sinks is not None:
            check_int("sinks", self.n_sinks, 0, MAX_SINKS)
        _ = self.setting, self.sizes
        if self.call is not None:
            check_int("call", self.call, 0, self.n_calls - 1)
        if self.layer is not None:
            check_int("layer", self.layer, 1, self.n_layers)

    @property
    def mistake(self) -> Fault:
        return FAULTS[self.fault]

    @property
    def shape(self) -> Shape:
        """What was chosen, completed by what the fault needs."""
        chosen = Shape(self.positions, self.pattern, self.n_heads, self.n_kv_heads, self.n_sinks)
        return fitting(self.mistake, chosen, self.window, seed=self.seed, n_layers=self.n_layers)

    @property
    def setting(self) -> Setting:
        return self.shape.setting(self.window, seed=self.seed, n_layers=self.n_layers)

    @property
    def tokens(self) -> np.ndarray:
        """Token ids (T,), the lab's."""
        return lab_token_ids(self.length, self.setting.decoder.vocab_size)

    @property
    def sizes(self) -> tuple[int, ...]:
        return chunk_sizes(self.chunks, self.length)

    @property
    def n_calls(self) -> int:
        """Behind a reused prefix one call computes all that is left."""
        return 1 if scenario(self.mistake) == REUSE else len(self.sizes)

    @property
    def event(self) -> int:
        """The call before which something happens where one sequence alone shows nothing: the middle one."""
        return len(self.sizes) // 2


def cost(config: Config) -> int:
    """Weighted multiply-adds of one `run`, watching left out."""
    ones = [(t, t + 1) for t in range(config.length)]
    return 5 * estimate(config.setting.decoder, ones, with_cache=True)


def run(config: Config) -> Result:
    """Both runs; only the facts, and what is lacking, where the setting leaves the fault without force."""
    setting = config.setting
    lacks = config.mistake.needs(setting)
    if lacks:
        return Result(config, lacks)
    play = Play(LabDecoder(setting.decoder), setting, config.mistake, config.tokens, config.sizes, config.event)
    right, wrong = play.run(wrong=False), play.run(wrong=True)
    pairs = _pairs(right, wrong, setting)
    first = next((at for at, found in pairs.items() if found.changed), None)
    call, layer = first or (0, 0)
    if config.call is not None:
        call = config.call
        if config.layer is None:
            layer = next((at for of, at in pairs if of == call and pairs[of, at].changed), 0)
    if config.layer is not None:
        layer = config.layer - 1
        if config.call is None:
            call = next((of for of, at in pairs if at == layer and pairs[of, at].changed), call)
    return Result(config, "", right, wrong, pairs[call, layer], call, layer, first)


def _pairs(right: Side, wrong: Side, setting: Setting) -> dict[tuple[int, int], Pair]:
    """Every call and layer, in the order in which they are computed."""
    return {
        (call, layer): pair(one, other, layer, setting.rules[layer].visible, setting.decoder.tolerance)
        for call, (one, other) in enumerate(zip(right.calls, wrong.calls, strict=True))
        for layer in range(setting.decoder.n_layers)
    }
