"""What the fault bench found: facts, both steps of one call, and differences by position and layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kvcore.compare import Comparison
from kvcore.studies import fault_facts
from kvcore.studies import fault_words as words
from kvcore.studies.fault_compare import ASPECTS, DISTANCE, HEADS, Pair

if TYPE_CHECKING:
    from kvcore.studies.fault_bench import Config
    from kvcore.studies.fault_runs import Side


@dataclass(frozen=True, eq=False)
class Result:
    """`lacks` says what the setting lacks for the fault to be in force; nothing was run then.

    right, wrong: both runs; pair: the steps of call `call` (from 0) in layer `layer` (from 0) beside each
    other; first: the first call and layer in which they differ, None where they never do.
    """

    config: Config
    lacks: str
    right: Side | None = None
    wrong: Side | None = None
    pair: Pair | None = None
    call: int = 0
    layer: int = 0
    first: tuple[int, int] | None = None

    @property
    def tolerance(self) -> float:
        return self.config.setting.decoder.tolerance

    @property
    def changed(self) -> tuple[str, ...]:
        """What the fault changes in the step that is looked at."""
        return () if self.pair is None else self.pair.changed

    @property
    def same(self) -> tuple[str, ...]:
        """The other aspects that such a step has."""
        positions, n_heads = self.config.setting.decoder.positions, self.config.setting.decoder.n_heads
        absent = [HEADS] if n_heads == 1 else []
        absent += [] if positions == "alibi" else [DISTANCE]
        return tuple(aspect for aspect in ASPECTS if aspect not in self.changed and aspect not in absent)

    @property
    def starts(self) -> list[int]:
        """Where the calls after the first begin, as places in the sequence."""
        return [] if self.right is None else [int(call.place[0]) for call in self.right.calls[1:]]

    def compared(self, side: Side, layer: int = -1) -> Comparison:
        """One run against its full path, where it computed rows."""
        difference = side.difference[layer]
        there = ~np.isnan(difference)
        return Comparison(np.flatnonzero(there), difference[there], self.tolerance)

    @property
    def answer(self) -> str:
        """How far both runs are from the full path, and from where on."""
        return words.answer(self)

    @property
    def step_reading(self) -> str:
        """What the fault changes in the step that is looked at, and what stays the same."""
        return words.step(self)

    @property
    def reading(self) -> str:
        return " ".join(filter(None, [fault_facts.sentence(self.config.mistake), self.answer, self.step_reading]))

    def tables(self) -> dict[str, pd.DataFrame]:
        """One frame a figure, and the facts."""
        found = {"facts": fault_facts.facts(self.config.mistake)}
        if self.pair is None:
            return found
        return found | {
            "differences": self._differences(),
            "layers": self._layers(),
            "mask": self._mask(),
            "entries": self._entries(),
            "tokens": self._tokens(),
            "heads": self._heads(),
        }

    def _differences(self) -> pd.DataFrame:
        columns = {"position": np.arange(self.config.length), "right step": self.right.difference[-1]}
        for layer, difference in enumerate(self.wrong.difference, start=1):
            columns[f"wrong step, layer {layer}"] = difference
        return pd.DataFrame(columns)

    def _layers(self) -> pd.DataFrame:
        rows = []
        for layer in range(self.config.n_layers):
            right, wrong = self.compared(self.right, layer), self.compared(self.wrong, layer)
            first = wrong.first_beyond
            rows.append(
                {
                    "layer": layer + 1,
                    "right step, largest": right.largest,
                    "wrong step, largest": wrong.largest,
                    "positions beyond": len(wrong.beyond),
                    "first bad position": "none" if first is None else str(first),
                }
            )
        return pd.DataFrame(rows)

    def _mask(self) -> pd.DataFrame:
        """A row a cell: how many entries of a position a token reads."""
        n_rows, n_columns = self.pair.right_reads.shape
        query = np.repeat(self.pair.place, n_columns)
        key = np.tile([*map(str, range(n_columns - 1)), "other"], n_rows)
        return pd.DataFrame(
            {
                "query": query,
                "key": key,
                "right reads": self.pair.right_reads.ravel(),
                "wrong reads": self.pair.wrong_reads.ravel(),
            }
        )

    def _entries(self) -> pd.DataFrame:
        pair, n_columns = self.pair, len(self.pair.needed)
        return pd.DataFrame(
            {
                "position": [*map(str, range(n_columns)), "other"],
                "right keeps": pair.kept_right,
                "wrong keeps": pair.kept_wrong,
                "the next token reads it": [*np.where(pair.needed, "yes", "no"), "no"],
                "kept differs by": np.append(pair.kept_gap, np.nan),
                "key read differs by": np.append(pair.key_gap, np.nan),
                "value read differs by": np.append(pair.value_gap, np.nan),
                "right ALiBi distance, last row": np.append(pair.right_distance[-1], np.nan),
                "wrong ALiBi distance, last row": np.append(pair.wrong_distance[-1], np.nan),
            }
        ).dropna(axis=1, how="all")

    def _tokens(self) -> pd.DataFrame:
        pair = self.pair
        return pd.DataFrame(
            {"place in the sequence": pair.place, "right enters at": pair.right_entered,
             "wrong enters at": pair.wrong_entered}
        )  # fmt: skip

    def _heads(self) -> pd.DataFrame:
        heads = np.arange(len(self.pair.right.heads))
        return pd.DataFrame(
            {"query head": heads, "right reads KV head": self.pair.right.heads,
             "wrong reads KV head": self.pair.wrong.heads}
        )  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        if self.pair is None:
            return {"token_ids": self.config.tokens}
        return {
            "token_ids": self.config.tokens,
            "right_difference": self.right.difference,
            "wrong_difference": self.wrong.difference,
            "place": self.pair.place,
            "right_reads": self.pair.right_reads,
            "wrong_reads": self.pair.wrong_reads,
            "right_entered": self.pair.right_entered,
            "wrong_entered": self.pair.wrong_entered,
            "kept_right": self.pair.kept_right,
            "kept_wrong": self.pair.kept_wrong,
            "needed": self.pair.needed,
        }
