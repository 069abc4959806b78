"""What the mask explorer found: masks, movement, weights and leaks, in arrays, tables and words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kvcore.cells import in_ranges, mask_text, named, parse_cells

if TYPE_CHECKING:
    from kvcore.studies.mask_explorer import Config


@dataclass(frozen=True, eq=False)
class Result:
    """Masks are (n_new, length), True where a key is visible; differences are (length,), one a position.

    `right`, `unedited` and `visible`: the right mask, the chosen one, and the chosen one with its
    cells flipped, which is run. `moved` and `from_right`: how far that run is from the runs under the
    other two. `weights` (n_layers, n_heads, n_new, length). The `_change` fields say how far each
    position moves when later tokens are edited: all tokens under the causal mask, all without it, and
    the new tokens under the mask that is run. All are None where `refusal` says why nothing was run.
    """

    config: Config
    right: np.ndarray
    unedited: np.ndarray
    visible: np.ndarray
    causal_change: np.ndarray
    unmasked_change: np.ndarray
    moved: np.ndarray | None = None
    from_right: np.ndarray | None = None
    weights: np.ndarray | None = None
    mask_change: np.ndarray | None = None
    refusal: str | None = None

    @property
    def query_position(self) -> np.ndarray:
        """Absolute positions of the mask's rows, (n_new,)."""
        return np.arange(self.config.n_cached, self.config.length)

    @property
    def key_position(self) -> np.ndarray:
        """Absolute positions of the mask's columns, (length,)."""
        return np.arange(self.config.length)

    @property
    def wrongly_hidden(self) -> np.ndarray:
        return self.right & ~self.visible

    @property
    def wrongly_shown(self) -> np.ndarray:
        return self.visible & ~self.right

    @property
    def is_right(self) -> bool:
        return bool((self.visible == self.right).all())

    @property
    def flipped(self) -> np.ndarray:
        """Cells flipped by hand, as a mask."""
        return self.visible != self.unedited

    @property
    def n_dropped(self) -> int:
        """Flipped cells that lie outside the mask."""
        return len(parse_cells(self.config.flipped)) - len(self.config.cells)

    @property
    def text(self) -> str:
        """One line a query: `q5: 1 1 1 1 1 1 0 0`."""
        return mask_text(self.query_position, self.visible)

    @property
    def shown_weights(self) -> np.ndarray | None:
        """Weights of the chosen layer and head (n_new, length); NaN where masked, which is not 0."""
        if self.weights is None:
            return None
        return np.where(self.visible, self.weights[self.config.layer - 1, self.config.head - 1], np.nan)

    def row_sentence(self, query: int) -> str:
        """Which keys one query reads, and which it should."""
        index = query - self.config.n_cached
        read, rightly = (np.flatnonzero(mask[index]) for mask in (self.visible, self.right))
        sentence = f"Query {query} reads {named('key', read)}"
        if np.array_equal(read, rightly):
            return f"{sentence}, as it should."
        wrong = [
            f"{named('key', np.flatnonzero(cells[index]))} {'is' if cells[index].sum() == 1 else 'are'} wrongly {word}"
            for word, cells in (("hidden", self.wrongly_hidden), ("shown", self.wrongly_shown))
            if cells[index].any()
        ]
        return f"{sentence}; it should read {named('key', rightly)}: {' and '.join(wrong)}."

    @property
    def reading(self) -> str:
        refusal = [f"{self.refusal[0].upper()}{self.refusal[1:]}."] if self.refusal else []
        return " ".join([self.mask_reading, *refusal, self.leak_reading])

    @property
    def mask_reading(self) -> str:
        """The chosen row, the counts, and what the mask does to the hidden states."""
        row = self.row_sentence(self.config.shown_row)
        return " ".join([row, self._read_counts(), *self._read_sinks(), *self._read_movement()])

    def _read_counts(self) -> str:
        hidden, shown, visible = (int(cells.sum()) for cells in (self.wrongly_hidden, self.wrongly_shown, self.visible))
        counts = f"Of {_count(self.visible.size, 'cell')}, {visible} {_is(visible)} visible"
        if not hidden + shown:
            return f"{counts}; none is wrongly hidden or shown."
        return f"{counts}; {hidden} {_is(hidden)} wrongly hidden and {shown} wrongly shown."

    def _read_sinks(self) -> Iterator[str]:
        if self.config.n_sinks and self.config.window is None:
            sinks = _count(self.config.n_sinks, "attention sink")
            yield f"Without a window the {sinks} {'has' if self.config.n_sinks == 1 else 'have'} no effect."

    def _read_movement(self) -> Iterator[str]:
        n_flipped = int(self.flipped.sum())
        if self.n_dropped:
            yield f"{_count(self.n_dropped, 'flipped cell')} outside this mask {_is(self.n_dropped)} dropped."
        if self.refusal:
            return
        flips = f"{_count(n_flipped, 'cell')} {_is(n_flipped)} flipped by hand"
        if self.is_right:
            yield f"{flips}, and the mask is the right one." if n_flipped else "This is the right mask."
            return
        if n_flipped and (self.unedited == self.right).all():
            yield f"{flips}: against the right mask, {self._which_move(self.from_right)}."
            return
        if n_flipped:
            yield f"{flips}: by that alone, {self._which_move(self.moved)}."
        yield f"Against the right mask, {self._which_move(self.from_right)}."

    def _which_move(self, difference: np.ndarray) -> str:
        tolerance = self.config.decoder.tolerance
        moved = np.flatnonzero(difference > tolerance)
        if not moved.size:
            return f"no position moves by more than {tolerance:g}"
        verb = "moves" if moved.size == 1 else "move"
        worst = int(difference.argmax())
        where = "" if moved.size == 1 else f" at position {worst}"
        return f"{named('position', moved)} {verb}, by up to {difference[worst]:.2g}{where}"

    @property
    def leak_reading(self) -> str:
        """What editing later tokens does to earlier positions; exactly nothing under a causal mask."""
        first = self.config.first_edited
        if first == 0:
            return "The edit starts at position 0, so there is no earlier position to look at."
        causal, unmasked = (_by(change[:first].max()) for change in (self.causal_change, self.unmasked_change))
        sentence = (
            f"Editing the tokens from position {first} on moves earlier positions {causal} with the causal mask"
            f" and {unmasked} without it"
        )
        if self.mask_change is None or self.is_right:
            return f"{sentence}."
        leaked = self.mask_change[:first].max()
        if leaked == 0:
            return f"{sentence}; with the mask above {_by(leaked)}: this check does not see that it is wrong."
        return f"{sentence}; with the mask above {_by(leaked)}."

    def tables(self) -> dict[str, pd.DataFrame]:
        tables = {"rows": self._row_table(), "cells": self._cell_table(), "future edit": self._leak_table()}
        if self.refusal is None:
            tables["movement"] = self._movement_table()
            tables["weights"] = self._weight_table()
        return tables

    def _row_table(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "query": self.query_position,
                "reads keys": [in_ranges(np.flatnonzero(row)) for row in self.visible],
                "should read keys": [in_ranges(np.flatnonzero(row)) for row in self.right],
                "visible": self.visible.sum(axis=1),
                "wrongly hidden": self.wrongly_hidden.sum(axis=1),
                "wrongly shown": self.wrongly_shown.sum(axis=1),
            }
        )

    def _cell_table(self) -> pd.DataFrame:
        query, key = np.meshgrid(self.query_position, self.key_position, indexing="ij")
        columns = {
            "query": query,
            "key": key,
            "visible": self.visible,
            "right": self.right,
            "flipped by hand": self.flipped,
        }
        return pd.DataFrame({name: values.ravel().astype(int) for name, values in columns.items()})

    def _movement_table(self) -> pd.DataFrame:
        return pd.DataFrame(
            {
                "position": self.key_position,
                "moved by the flipped cells": self.moved,
                "from the right mask": self.from_right,
            }
        )

    def _weight_table(self) -> pd.DataFrame:
        """Weights of the chosen layer and head; empty where masked."""
        frame = pd.DataFrame(self.shown_weights, columns=[f"key {key}" for key in self.key_position])
        frame.insert(0, "query", self.query_position)
        return frame

    def _leak_table(self) -> pd.DataFrame:
        columns = {"position": self.key_position, "causal": self.causal_change, "unmasked": self.unmasked_change}
        if self.mask_change is not None:
            columns["mask above"] = self.mask_change
        return pd.DataFrame(columns)

    def arrays(self) -> dict[str, np.ndarray]:
        names = (
            "query_position", "key_position", "right", "unedited", "visible", "moved", "from_right", "weights",
            "causal_change", "unmasked_change", "mask_change",
        )  # fmt: skip
        return {name: array for name in names if (array := getattr(self, name)) is not None}


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _by(difference: float) -> str:
    return "by exactly 0" if difference == 0 else f"by up to {difference:.2g}"
