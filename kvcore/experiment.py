"""The recorded experiment: every decode path and deliberate mistake for each seed, with its figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kvcore import paths
from kvcore.measures import (
    FAILURES,
    FIGURES,
    Figure,
    Number,
    agrees,
    closed_form,
    differences,
    verdict,
)
from kvcore.model import LabDecoder
from kvcore.protocol import Protocol
from kvcore.reading import read_experiment
from kvcore.recorded import recorded_figures
from kvcore.rules import UNMASKED, reset_position, sliding, windowed, wrong_chunk_mask


@dataclass(frozen=True, eq=False)
class SeedRun:
    """One seed's figures, keyed as in `measures.KEYS`, and its arrays, named as in `measures.array_shapes`."""

    seed: int
    figures: dict[str, Number]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Experiment:
    """What every seed gave. Counts among the figures were counted as the paths ran; `closed_form` is their formula."""

    protocol: Protocol
    runs: tuple[SeedRun, ...]

    @property
    def closed_form(self) -> dict[str, int]:
        return closed_form(self.protocol)

    @property
    def passed(self) -> bool:
        """Every right path within tolerance, the causal edit exactly 0, every count as its formula."""
        return not any(word in FAILURES for _, _, word in self.verdicts())

    @property
    def reading(self) -> str:
        """What came out, in sentences made from these figures."""
        return read_experiment(self.protocol, self.results())

    def verdicts(self) -> Iterator[tuple[int, Figure, str]]:
        """Seed, figure and its verdict, for every seed and figure."""
        for run in self.runs:
            for figure in FIGURES:
                yield run.seed, figure, verdict(figure, run.figures[figure.key], self.protocol)

    def results(self) -> list[dict[str, Number]]:
        """One object a seed, with the keys of the recorded file."""
        return [{"seed": run.seed, **run.figures} for run in self.runs]

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of every seed, named `s7_full` and so on."""
        return {f"s{run.seed}_{name}": array for run in self.runs for name, array in run.arrays.items()}

    def to_frame(self) -> pd.DataFrame:
        """One row a seed and figure: computed, formula of a count, verdict; recorded and agreement where known."""
        figures, recorded = {run.seed: run.figures for run in self.runs}, recorded_figures(self.protocol)
        formula = self.closed_form
        rows = []
        for seed, figure, word in self.verdicts():
            computed, then = figures[seed][figure.key], recorded.get(seed, {}).get(figure.key)
            rows.append(
                {
                    "seed": seed,
                    "figure": figure.key,
                    "kind": figure.kind,
                    "computed": computed,
                    "formula": formula.get(figure.key),
                    "verdict": word,
                    "recorded": then,
                    "agrees": None if then is None else agrees(figure, computed, then),
                }
            )
        return pd.DataFrame(rows).astype({"computed": object, "formula": "Int64", "recorded": object})

    def tables(self) -> dict[str, pd.DataFrame]:
        return {"figures": self.to_frame()}


def run(protocol: Protocol = Protocol()) -> Experiment:
    """Run all paths for every seed; the default takes about 0.3 s on one core."""
    return Experiment(protocol, tuple(_run_seed(protocol, seed) for seed in protocol.seeds))


def _run_seed(protocol: Protocol, seed: int) -> SeedRun:
    decoder = LabDecoder(protocol.decoder(seed))
    tokens, edited, window = protocol.token_ids, protocol.edited_token_ids, protocol.window
    second = protocol.second_chunk
    full = paths.full(decoder, tokens, record_attention=True)
    prefix = paths.prefix_recomputation(decoder, tokens)
    cached = paths.cached(decoder, tokens)
    chunked = paths.cached(decoder, tokens, protocol.chunk_sizes)
    wrong = paths.cached(decoder, tokens[: second.stop], protocol.chunk_sizes[:2], wrong_chunk_mask())
    sliding_cached = paths.cached(decoder, tokens, rules=sliding(window))
    arrays = {
        "tokens": tokens,
        "full": full.hidden,
        "masked": paths.full(decoder, edited).hidden,
        "unmasked": paths.full(decoder, tokens, UNMASKED).hidden,
        "perturbed_unmasked": paths.full(decoder, edited, UNMASKED).hidden,
        "prefix": prefix.hidden,
        "cached": cached.hidden,
        "chunked": chunked.hidden,
        "wrong": wrong.hidden[second],
        "good": chunked.hidden[second],
        "sliding": paths.full(decoder, tokens, windowed(window)).hidden,
        "sliding_cached": sliding_cached.hidden,
        "reset": paths.cached(decoder, tokens, rules=reset_position(sliding(window))).hidden,
        "cropped": paths.cropped_recomputation(decoder, tokens, window, windowed(window)).hidden,
        "attention": full.calls[0].attention[0, 0, 0],
        "cache_bytes": np.array([(call.cache_position[-1] + 1, call.payload_bytes) for call in cached.calls]),
    }
    counted = {
        "prefix_projected_rows": prefix.work.projected_rows,
        "cached_projected_rows": cached.work.projected_rows,
        "prefix_score_elements": prefix.work.score_elements,
        "cached_score_elements": cached.work.score_elements,
        "full_kv_bytes": cached.payload_bytes,
        "window_kv_bytes": sliding_cached.payload_bytes,
    }
    return SeedRun(seed, differences(protocol, arrays) | counted, arrays)
