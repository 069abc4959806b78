"""What the prefix-reuse study found: the recorded conditions, and one request answered three ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from kvcore.compare import Comparison
from kvcore.prefix import Key, common_prefix, differing
from kvcore.prefix_experiment import EDIT_AT, EDIT_TO, OTHER_SUFFIX, PREFIX, SUFFIX, WINDOW, Reuse, Way
from kvcore.studies import prefix_words as words

if TYPE_CHECKING:
    from kvcore.studies.prefix_reuse import Config

CHANGED = {
    "same-prefix": "nothing",
    "edited-prefix": f"prefix id {PREFIX[EDIT_AT]} → {EDIT_TO}, at position {EDIT_AT}",
    "different-weights": "0.5 added to the first element of the first layer's W_K",
    "different-window": f"window none → {WINDOW}",
    "different-scope": "whom the prefix belongs to",
    "new-suffix": f"suffix {SUFFIX[0]}–{SUFFIX[-1]} → {OTHER_SUFFIX[0]}–{OTHER_SUFFIX[-1]}",
}
"""Condition -> what the request has other than what was stored."""

IN_WORDS = {"windows": "window", "n_sinks": "attention sinks"}
"""Fields of a key whose names are no words."""


class Entries(NamedTuple):
    """Stored entries beside those that the request needs, (n_layers, prefix) each."""

    difference: np.ndarray  # the larger of a key's and a value's largest difference
    held: np.ndarray  # whether the stored cache still has the entry


@dataclass(frozen=True, eq=False)
class Result:
    """`experiment` holds the rows of `reuse_experiment`; the rest belongs to the chosen request.

    stored_ids (prefix,), asked_ids (prefix + suffix,).
    """

    config: Config
    experiment: tuple[dict[str, object], ...]
    stored_key: Key
    asked_key: Key
    stored_ids: np.ndarray
    asked_ids: np.ndarray
    ways: Reuse
    entries: Entries

    tolerance = 1e-12
    """Of float64, in which everything here is computed."""

    @property
    def suffix_position(self) -> np.ndarray:
        """Absolute positions of the compared rows, (suffix,)."""
        return np.arange(len(self.stored_ids), len(self.asked_ids))

    @property
    def differing(self) -> tuple[str, ...]:
        """The fields of the key that differ, in words."""
        return tuple(IN_WORDS.get(name, name) for name in differing(self.stored_key, self.asked_key))

    @property
    def n_common(self) -> int:
        """Tokens that the stored prefix and the request both begin with."""
        return common_prefix(self.stored_ids.tolist(), self.asked_ids.tolist())

    @property
    def changed(self) -> bool:
        """Whether the whole stored prefix is something else than what the request begins with."""
        return bool(self.differing) or self.n_common < len(self.stored_ids)

    @property
    def evicted_too_much(self) -> bool:
        """The key is the same and tokens are common, but the stored cache cannot be cut back to them."""
        return not self.differing and self.n_common > 0 and self.ways.keyed.n_reused == 0

    @property
    def stale(self) -> np.ndarray:
        """Stored entries that are not those of the request, (n_layers, prefix)."""
        return self.entries.held & ~(self.entries.difference <= self.tolerance)

    def compared(self, way: Way) -> Comparison:
        return Comparison(self.suffix_position, self.ways.difference(way), self.tolerance)

    def formula(self, way: Way) -> int:
        """3·L·(T − reused), the projected rows of a way."""
        return 3 * self.config.n_layers * (len(self.asked_ids) - way.n_reused)

    @property
    def experiment_reading(self) -> str:
        return words.experiment(self)

    @property
    def scope_reading(self) -> str:
        """Why another scope is numerically the same and must still miss."""
        return words.scope(self)

    @property
    def verdict(self) -> str:
        """Whether and how far the stored prefix may be used for the chosen request, and the rows projected."""
        return words.verdict(self)

    @property
    def outcome(self) -> str:
        """What using it by the key, and unchecked, does."""
        return words.outcome(self)

    @property
    def reading(self) -> str:
        return " ".join([self.experiment_reading, self.scope_reading, self.verdict, self.outcome])

    def tables(self) -> dict[str, pd.DataFrame]:
        """One frame a figure."""
        return {
            "experiment": self._experiment_table(),
            "differences": pd.DataFrame(
                {
                    "position": self.suffix_position,
                    "token id": self.asked_ids[len(self.stored_ids) :],
                    "keyed": self.ways.difference(self.ways.keyed),
                    "unchecked": self.ways.difference(self.ways.unchecked),
                }
            ),
            "ways": self._way_table(),
            "key": self._key_table(),
            "entries": self._entry_table(),
        }

    def _experiment_table(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "seed": [row["seed"] for row in self.experiment],
                "condition": [row["condition"] for row in self.experiment],
                "stored prefix": ["used" if row["reused"] else "not used" for row in self.experiment],
                "projected rows": [row["projected_rows"] for row in self.experiment],
                "unchecked": [row["unchecked_error"] for row in self.experiment],
                "keyed": [row["keyed_error"] for row in self.experiment],
                "what is different": [CHANGED[row["condition"]] for row in self.experiment],
            }
        )

    def _way_table(self) -> pd.DataFrame:
        ways = self.ways._asdict()
        return pd.DataFrame(
            {
                "way": list(ways),
                "projected rows": [way.projected_rows for way in ways.values()],
                "tokens reused": [way.n_reused for way in ways.values()],
                "tokens computed": [len(self.asked_ids) - way.n_reused for way in ways.values()],
                "3·L·(T − reused)": [self.formula(way) for way in ways.values()],
                "largest difference": [self.compared(way).largest for way in ways.values()],
                f"within {self.tolerance:g}": ["yes" if self.compared(way).equal else "no" for way in ways.values()],
            }
        )

    def _key_table(self) -> pd.DataFrame:
        """What decides whether the prefix may be used: the tokens, then the fields of the key."""
        n_stored = len(self.stored_ids)
        rows = [("tokens", *(" ".join(map(str, ids[:n_stored])) for ids in (self.stored_ids, self.asked_ids)))]
        for name, *values in zip(Key._fields, self.stored_key, self.asked_key, strict=True):
            rows.append((IN_WORDS.get(name, name), *(words.key_value(name, value) for value in values)))
        table = pd.DataFrame(rows, columns=["field", "stored", "asked for"])
        same = ["yes" if one == other else "no" for _, one, other in rows]
        if same[0] == "no":
            same[0] = f"the first {self.n_common}" if self.n_common else "no"
        return table.assign(same=same)

    def _entry_table(self) -> pd.DataFrame:
        table = {
            "position": np.arange(len(self.stored_ids)),
            "stored token": self.stored_ids,
            "asked token": self.asked_ids[: len(self.stored_ids)],
        }
        for layer, (gap, held) in enumerate(zip(*self.entries, strict=True), start=1):
            table[f"layer {layer} differs by"] = gap
            table[f"layer {layer} holds it"] = np.where(held, "yes", "evicted")
        return pd.DataFrame(table)

    def arrays(self) -> dict[str, np.ndarray]:
        columns, ways = list(self.experiment[0]), self.ways._asdict().items()
        return {
            "stored_token_ids": self.stored_ids,
            "asked_token_ids": self.asked_ids,
            "suffix_position": self.suffix_position,
            "keyed_difference": self.ways.difference(self.ways.keyed),
            "unchecked_difference": self.ways.difference(self.ways.unchecked),
            "entry_difference": self.entries.difference,
            "entry_held": self.entries.held,
            **{f"{name}_rows": way.hidden for name, way in ways},
            **{f"{name}_projected_rows": np.array(way.projected_rows) for name, way in ways},
            **{f"experiment_{name}": np.array([row[name] for row in self.experiment]) for name in columns},
        }
