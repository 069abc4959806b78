"""Do all ways of decoding give the same hidden state at every position? One model, one token sequence, many paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd

from kvcore import paths
from kvcore.budget import WORK_BUDGET, over_budget
from kvcore.compare import difference_by_position
from kvcore.config import DTYPES, DecoderConfig, check_choice, check_int, check_token_ids, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.multihead import MultiHeadConfig, run_multihead
from kvcore.parse import chunk_sizes, integers, names
from kvcore.paths import PathRun
from kvcore.rules import RIGHT, windowed
from kvcore.studies.outcome import Outcome, read_right, read_wrong
from kvcore.studies.path_plan import CONTROLS, PATHS, Plan, path_plans

MODELS = ("lab decoder", "multi-head layer")
MAX_LENGTH = 256
MAX_LAYERS = 6
D_MODELS = (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Config:
    """`token_ids` empty means the lab's tokens, `length` of them; paths and controls are names with commas."""

    model: str = "lab decoder"
    seed: int = 7
    n_layers: int = 2
    n_heads: int = 1
    n_kv_heads: int = 1
    d_model: int = 16
    dtype: str = "float64"
    length: int = 24
    token_ids: str = ""
    chunks: str = "5,3,7,9..."
    window: int = 4
    paths: str = ",".join(PATHS)
    controls: str = ",".join(CONTROLS)
    layer_seed: int = 42

    def __post_init__(self) -> None:
        check_choice("model", self.model, MODELS)
        check_int("seed", self.seed, 0)
        check_int("layer_seed", self.layer_seed, 0)
        check_int("n_layers", self.n_layers, 1, MAX_LAYERS)
        check_int("d_model", self.d_model, 2, max(D_MODELS))
        check_choice("dtype", self.dtype, DTYPES)
        check_int("length", self.length, 2, MAX_LENGTH)
        check_int("window", self.window, 1, MAX_LENGTH)
        _ = self.decoder
        chunk_sizes(self.chunks, len(self.tokens))
        if not self.chosen_paths and not self.chosen_controls:
            raise ValueError(f"no path is chosen; choose at least one of {', '.join(PATHS + CONTROLS)}")

    @property
    def decoder(self) -> DecoderConfig:
        return DecoderConfig(
            seed=self.seed,
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            dtype=self.dtype,
        )

    @property
    def tokens(self) -> np.ndarray:
        """Token ids (T,)."""
        vocab_size = self.decoder.vocab_size
        if not self.token_ids.strip():
            return lab_token_ids(self.length, vocab_size)
        typed = integers(self.token_ids, "token ids", "3,10,17", at_most=MAX_LENGTH)
        if len(typed) < 2:
            raise ValueError(f"one token id leaves nothing to decode; give 2 to {MAX_LENGTH}")
        return check_token_ids(typed, vocab_size)

    @property
    def sizes(self) -> tuple[int, ...]:
        return chunk_sizes(self.chunks, len(self.tokens))

    @property
    def chosen_paths(self) -> tuple[str, ...]:
        return names(self.paths, "path", PATHS)

    @property
    def chosen_controls(self) -> tuple[str, ...]:
        return names(self.controls, "deliberate mistake", CONTROLS)


@dataclass(frozen=True, eq=False)
class Result:
    """What ran, what did not and why, and the sizes of the chunks."""

    config: Config
    tolerance: float
    length: int
    sizes: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    not_run: tuple[str, ...] = ()
    full_from_exact: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def reading(self) -> str:
        right = [o for o in self.outcomes if not o.deliberate]
        wrong = [o for o in self.outcomes if o.deliberate]
        return " ".join([*read_right(right), *read_wrong(wrong), *self._read_precision(), *self.not_run])

    def _read_precision(self) -> Iterator[str]:
        right = [o for o in self.outcomes if o.from_exact is not None and not o.deliberate]
        if not right:
            return
        full, dtype = self.full_from_exact["full"].max(), self.config.dtype
        distances = [o.from_exact.max() for o in right]
        yield (
            f"Against the float64 run of the same parameters the full path itself is off by {full:.2g} and the right"
            f" paths by {min(distances):.2g} to {max(distances):.2g}"
        )
        far = [o.name for o in right if not o.only_rounding]
        yield f"— {', '.join(far)} by more than {dtype} explains." if far else f"— that is {dtype}, not the cache."

    def notes(self) -> Iterator[str]:
        """How the picture is to be read: mistakes, chunk borders, and which lines cover some positions only."""
        if any(outcome.deliberate for outcome in self.outcomes):
            yield "Dotted lines are deliberate mistakes."
        yield "Upright lines are borders of chunks."
        for outcome in self.outcomes:
            if len(outcome.position) < self.length:
                first, last = outcome.position[[0, -1]].tolist()
                yield f"“{outcome.name}” is compared at positions {first}–{last}, with {outcome.against}."

    def tables(self) -> dict[str, pd.DataFrame]:
        return {
            "paths": pd.DataFrame([outcome.row() for outcome in self.outcomes]),
            "differences": pd.DataFrame([row for outcome in self.outcomes for row in outcome.rows_by_layer()]),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        found = {"token_ids": self.config.tokens, "chunk_sizes": np.array(self.sizes)}
        for outcome in self.outcomes:
            found |= outcome.arrays()
        return found | {f"{name.replace(' ', '_')}_from_float64": d for name, d in self.full_from_exact.items()}


def run(config: Config) -> Result:
    """Every chosen path against its reference: the windowed full path for those with a window, else full."""
    return _run_multihead(config) if config.model == "multi-head layer" else _run_decoder(config)


def _run_multihead(config: Config) -> Result:
    setting = MultiHeadConfig(seed=config.layer_seed)
    found = run_multihead(setting)
    gap = np.abs(found.cached - found.uncached).max(axis=0)
    sizes = setting.chunk_sizes
    outcome = Outcome(
        name="preallocated cache",
        against="one call without a cache",
        deliberate=False,
        expected_equal=True,
        position=found.comparison.position,
        gap=gap,
        by_layer=found.comparison.difference[None],
        from_exact=None,
        reference_from_exact=None,
        tolerance=setting.tolerance,
        work=found.work,
        payload_bytes=found.payload_bytes,
    )
    return Result(config, setting.tolerance, sum(sizes), sizes, (outcome,))


def _run_decoder(config: Config) -> Result:
    decoder, tokens = LabDecoder(config.decoder), config.tokens
    references = {"full": RIGHT, "windowed full": windowed(config.window)}
    plans = path_plans(decoder, tokens, config.sizes, config.window)
    exact = decoder.in_float64() if config.dtype != "float64" else None

    @cache
    def reference(name: str) -> PathRun:
        return paths.full(decoder, tokens, references[name])

    @cache
    def exact_reference(name: str) -> PathRun:
        return paths.full(exact, tokens, references[name])

    outcomes, impossible, too_much, spent = {}, [], [], 0
    for plan in plans:
        if plan.name not in config.chosen_paths + config.chosen_controls:
            continue
        if plan.impossible:
            impossible.append(plan.impossible)
        elif spent + plan.cost > WORK_BUDGET:
            too_much.append(plan.name)
        else:
            spent += plan.cost
            outcomes[plan.name] = _outcome(config, plan, reference, exact, exact_reference)
    used = [name for name in references if name == "full" or any(o.against == name for o in outcomes.values())]
    from_exact = {
        name: difference_by_position(reference(name).hidden, exact_reference(name).hidden)
        for name in (used if exact else [])
    }
    not_run = (*impossible, *([over_budget(too_much)] if too_much else []))
    ordered = tuple(outcomes[name] for name in PATHS + CONTROLS if name in outcomes)
    return Result(config, decoder.config.tolerance, len(tokens), config.sizes, ordered, not_run, from_exact)


def _outcome(
    config: Config,
    plan: Plan,
    reference: Callable[[str], PathRun],
    exact: LabDecoder | None,
    exact_reference: Callable[[str], PathRun],
) -> Outcome:
    found = plan.run()
    beside = plan.reference() if plan.reference else reference(plan.against)
    mine, theirs = found.by_layer[:, plan.rows], beside.by_layer[:, plan.rows]
    from_exact, reference_from_exact = None, None
    if exact is not None:
        hidden = (plan.exact(exact) if plan.exact else exact_reference(plan.against)).hidden[plan.rows]
        from_exact = difference_by_position(mine[-1], hidden)
        reference_from_exact = float(difference_by_position(theirs[-1], hidden).max())
    return Outcome(
        name=plan.name,
        against=plan.against,
        deliberate=plan.name in CONTROLS,
        expected_equal=plan.expected_equal,
        position=found.position[plan.rows],
        gap=np.abs(mine[-1] - theirs[-1]),
        by_layer=difference_by_position(mine, theirs),
        from_exact=from_exact,
        reference_from_exact=reference_from_exact,
        tolerance=config.decoder.tolerance,
        work=found.work,
        payload_bytes=found.payload_bytes,
    )
