"""How much work does the cache save, counted and not timed? Closed forms beside what the engine counts as it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore import paths, work
from kvcore.config import DecoderConfig, check_int, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.studies.work_cells import cells
from kvcore.studies.work_paths import WorkPath, work_paths
from kvcore.studies.work_result import Case, PathCount, Result
from kvcore.studies.work_runs import DRAWN, Allowance, recorded, sketched

MAX_LENGTH = 1_000_000
MAX_LAYERS = 6
D_MODELS = (8, 16, 32, 64, 128)
DTYPE = {8: "float64", 4: "float32", 2: "bfloat16"}
"""Bytes a number -> the format that is run."""
GROWTH_TO = 1024
"""How far the growth curves go at least."""


@dataclass(frozen=True)
class Config:
    """T tokens through L layers; `prompt` tokens go in with the first call of the chunk cache, the others singly."""

    length: int = 24
    n_layers: int = 2
    d_model: int = 16
    n_heads: int = 1
    n_kv_heads: int = 1
    itemsize: int = 8
    window: int | None = 4
    prompt: int = 5

    def __post_init__(self) -> None:
        check_int("length", self.length, 1, MAX_LENGTH)
        check_int("n_layers", self.n_layers, 1, MAX_LAYERS)
        check_int("d_model", self.d_model, 2, max(D_MODELS))
        check_int("itemsize", self.itemsize, min(DTYPE), max(DTYPE))
        if self.itemsize not in DTYPE:
            raise ValueError(f"{self.itemsize} bytes a number is no format here; it must be 8, 4 or 2")
        if self.window is not None:
            check_int("window", self.window, 1, MAX_LENGTH)
        check_int("prompt", self.prompt, 1, MAX_LENGTH)
        if self.prompt > self.length:
            raise ValueError(
                f"a prompt of P = {self.prompt:,} does not fit into T = {self.length:,};"
                " choose a P no larger than T, or a larger T"
            )
        _ = self.decoder

    @property
    def decoder(self) -> DecoderConfig:
        """The lab's weights in this shape; counts do not depend on their values."""
        return DecoderConfig(
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            dtype=DTYPE[self.itemsize],
        )

    @property
    def paths(self) -> list[WorkPath]:
        return work_paths(self.n_layers, self.prompt, self.window)


def run(config: Config) -> Result:
    """Every path by its closed form and, where it is not too large, counted as it runs."""
    allowance = Allowance(config.decoder, config.paths, config.length)
    # Where the budget does not last for all, the two that the sentence compares come first, then the cases.
    compared = [path for path in config.paths if path.name in ("token cache", "prefix recomputation")]
    granted = {path.name for path in compared if allowance.grants(path, config.length)}
    cases = _cases(config, allowance.grants_cases(config.prompt))
    others = [path for path in config.paths if path not in compared]
    granted |= {path.name for path in others if allowance.grants(path, config.length)}
    tokens = growth_lengths(config.length, config.prompt)
    counts = tuple(_count(config, path, path.name in granted, tokens) for path in config.paths)
    return Result(config, counts, cases)


def growth_lengths(length: int, prompt: int) -> np.ndarray:
    """Lengths evenly spread on a log axis from 1 to GROWTH_TO or beyond; length, prompt and prompt + 1 among them."""
    spread = np.geomspace(1, max(GROWTH_TO, length), 32).round().astype(np.int64)
    return np.union1d(spread, [prompt, prompt + 1, length])


def _count(config: Config, path: WorkPath, granted: bool, tokens: np.ndarray) -> PathCount:
    decoder = config.decoder

    def expected(length: int) -> tuple[int, int, int]:
        entries = decoder.n_layers, path.kept(length), decoder.n_kv_heads, decoder.head_dim
        return (*path.work(length), work.payload_bytes(*entries, config.itemsize))

    calls = recorded(decoder, path, config.length) if granted else ()
    end = np.array([call.cache_position[-1] + 1 for call in calls], dtype=np.int64)
    counted = np.array([(*call.work, call.payload_bytes) for call in calls], dtype=np.int64).reshape(-1, 3)
    counted[:, :2] = counted[:, :2].cumsum(axis=0)
    drawn = min(config.length, DRAWN)
    shown = calls if granted else sketched(decoder, path, drawn)
    reached = tokens[tokens >= path.first]
    return PathCount(
        name=path.name,
        formulas=path.formulas,
        formula=np.array(expected(config.length), dtype=np.int64),
        end=end,
        counted=counted,
        expected=np.array([expected(t) for t in end.tolist()], dtype=np.int64).reshape(-1, 3),
        cells=cells(shown[:DRAWN], drawn),
        single_call=path.single_call,
        tokens=reached,
        cumulative=np.array([expected(t) for t in reached.tolist()], dtype=np.int64),
        per_step=np.array([path.step_work(t) for t in reached.tolist()], dtype=np.int64),
    )


def _cases(config: Config, granted: bool) -> tuple[Case, ...]:
    """Prefill only, one token after the prompt, and both together: with the cache and without."""
    n_layers, prompt = config.n_layers, config.prompt
    prefill, both = (work.prompt_then_tokens(n_layers, prompt, n) for n in (prompt, prompt + 1))
    token = np.subtract(both, prefill)
    expected = [[prefill, work.full(n_layers, prompt)], *([w, work.full(n_layers, prompt + 1)] for w in (token, both))]
    counted = [None] * 3
    if granted:
        decoder, ids = LabDecoder(config.decoder), lab_token_ids(prompt + 1)
        cached, anew = paths.cached(decoder, ids, (prompt, 1)), paths.full(decoder, ids).work
        counted = [
            [cached.calls[0].work, paths.full(decoder, ids[:-1]).work],
            [cached.calls[1].work, anew],
            [cached.work, anew],
        ]
    names = ("prefill only", "one token after the prompt", "prompt and one token")
    return tuple(
        Case(name, np.array(formula, dtype=np.int64), None if run is None else np.array(run, dtype=np.int64))
        for name, formula, run in zip(names, expected, counted, strict=True)
    )
