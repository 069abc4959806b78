"""What the study of published models found: sizes at once, and the other views when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kvcore.published.decoding import Bound, Step
from kvcore.published.layer import Description
from kvcore.published.presets import stored
from kvcore.published.reader import short
from kvcore.published.sizes import CONVENTIONS, Size, bytes_per_token
from kvcore.published.strip import runs
from kvcore.published.work import Work
from kvcore.size_command import to_json
from kvcore.studies import published_curves as curves
from kvcore.studies import published_words as words
from kvcore.studies import published_work as working
from kvcore.studies.published_fit import GIB, Fits, fit, sequences_at, weight_bytes
from kvcore.studies.published_work import WAYS
from kvcore.units import both_units

if TYPE_CHECKING:
    from kvcore.studies.published_models import Config


@dataclass(frozen=True, eq=False)
class Result:
    """The models under names that differ, and the size of each; n models, c contexts of the curves."""

    config: Config
    models: tuple[Description, ...]
    sizes: tuple[Size, ...]

    @cached_property
    def contexts(self) -> list[int]:
        """Contexts of the curves, in tokens."""
        return curves.contexts(self.models, self.config.ask)

    def payload(self) -> list[list[int]]:
        """Bytes of each model at each context."""
        return [curves.grown(model, self.config.ask, self.contexts) for model in self.models]

    @cached_property
    def fits(self) -> list[Fits]:
        """What fits beside each model's weights."""
        config = self.config
        weights = [weight_bytes(each, config.weight_bits, config.devices) for each in config.millions]
        return [
            fit(model, config.ask, config.memory * GIB, each) for model, each in zip(self.models, weights, strict=True)
        ]

    def sequences(self) -> list[list[int]]:
        """Sequences of each model that fit, at each context."""
        return [
            sequences_at(model, self.config.ask, found, self.contexts)
            for model, found in zip(self.models, self.fits, strict=True)
        ]

    def works(self) -> list[Work]:
        """Prompt and new tokens with the cache and by prefix recomputation."""
        return working.works(self.models, self.config)

    def steps(self) -> list[tuple[Step, Bound | None]]:
        """A decode step of each at the chosen context, and what bounds it, where that can be said."""
        return working.steps(self.models, self.config)

    @property
    def answer(self) -> str:
        """What decides each model's cache."""
        return words.answer(self)

    @property
    def beside(self) -> str:
        """What the bytes do not hold, or nothing."""
        return words.beside(self)

    @property
    def growth_reading(self) -> str:
        return words.growth(self)

    @property
    def work_reading(self) -> str:
        return working.saved(self)

    @property
    def step_reading(self) -> str:
        return working.bounded(self)

    @property
    def layers_reading(self) -> str:
        return "\n\n".join(map(words.layers, self.models, self.sizes))

    @property
    def fits_reading(self) -> str:
        return words.fits(self)

    @property
    def conventions_reading(self) -> str:
        return "\n\n".join(words.conventions(model, self) for model in self.models)

    @property
    def reading(self) -> str:
        said = [self.answer, self.beside, self.growth_reading, self.layers_reading, self.work_reading]
        return "\n\n".join(filter(None, [*said, self.step_reading, self.fits_reading, self.conventions_reading]))

    def to_json(self) -> list[dict[str, Any]]:
        """Everything that is said of each model's size, as plain data."""
        return list(map(to_json, self.models, self.sizes))

    def tables(self) -> dict[str, pd.DataFrame]:
        """One frame a view."""
        return {
            "side by side": self.side_by_side(),
            "payload": self.over_contexts(self.payload()),
            "layers": self.layers(),
            "work": self.work(),
            "decode step": self.decode_steps(),
            "fits": self.what_fits(),
            "sequences": self.over_contexts(self.sequences()),
            "conventions": self.conventions(),
            "rules": self.rules(),
        }

    def side_by_side(self) -> pd.DataFrame:
        """One row a model: the cache in words and exact, what a token costs, and what it would be otherwise."""
        ask = self.config.ask
        rows = []
        for model, taken in zip(self.models, self.sizes, strict=True):
            state = taken.fixed_state_bytes
            first, now = bytes_per_token(model, ask.format, ask.convention), curves.one_more(model, ask)
            full = curves.if_all_full(model, ask)
            rows.append(
                {
                    "model": model.name,
                    "cache": both_units(taken.bytes),
                    "a token, no window full": both_units(first),
                    "one more token now": both_units(now),
                    "if all layers were full": both_units(full) if full else "no layer keeps tokens",
                    "fixed state beside": "not known" if state is None else both_units(state) if state else "none",
                    "on one device": both_units(taken.bytes_per_device),
                    "layers": model.n_layers,
                    "cache bytes": taken.bytes,
                    "bytes a token": first,
                    "bytes of one more token": now,
                    "bytes if all were full": full,
                }
            )
        return _whole(pd.DataFrame(rows))

    def over_contexts(self, lines: Sequence[Sequence[int]]) -> pd.DataFrame:
        named = {model.name: line for model, line in zip(self.models, lines, strict=True)}
        return _whole(pd.DataFrame({"context": self.contexts} | named))

    def layers(self) -> pd.DataFrame:
        """One row a run of equal layers."""
        rows = [
            {"model": model.name, "layers": run.span, "keeps": run.words, "tokens": run.tokens, "bytes": run.bytes}
            for model, taken in zip(self.models, self.sizes, strict=True)
            for run in runs(model, taken)
        ]
        return _whole(pd.DataFrame(rows))

    def work(self) -> pd.DataFrame:
        """One row a model and way; counts as text, since they may be larger than int64 holds."""
        done = zip(self.models, self.works(), strict=True)
        return pd.DataFrame(
            working.row(model.name, said, getattr(each, way)) for model, each in done for way, said in WAYS.items()
        )

    def decode_steps(self) -> pd.DataFrame:
        """One row a model: what one decode step reads and makes, and the least times that follow."""
        return pd.DataFrame(
            working.step_row(model.name, *each) for model, each in zip(self.models, self.steps(), strict=True)
        )

    def what_fits(self) -> pd.DataFrame:
        rows = []
        for model, found in zip(self.models, self.fits, strict=True):
            row = {"model": model.name, "memory": both_units(found.memory), "weights": both_units(found.weights)}
            if found.sequences is None:
                row |= {"sequences": 0, "they take": "nothing fits", "longest context": 0}
            else:
                row |= {
                    "sequences": found.sequences.number,
                    "they take": both_units(found.sequences.bytes),
                    "longest context": found.longest.number,
                }
            rows.append(row)
        return _whole(pd.DataFrame(rows))

    def conventions(self) -> pd.DataFrame:
        """One row a model and convention."""
        rows = []
        for model in self.models:
            totals = {name: curves.by_convention(model, self.config.ask, name)[0] for name in CONVENTIONS}
            for name, total in totals.items():
                times = f"{total / totals['live']:.4g} times live" if totals["live"] else "nothing grows"
                rows.append(
                    {
                        "model": model.name,
                        "convention": name,
                        "cache": both_units(total),
                        "against live": times,
                        "bytes": total,
                        "counts": CONVENTIONS[name],
                    }
                )
        return _whole(pd.DataFrame(rows))

    def conventions_side_by_side(self) -> pd.DataFrame:
        """One row a model, one column a convention."""
        wide = self.conventions().pivot(index="model", columns="convention", values="cache")
        return wide.loc[[model.name for model in self.models], list(CONVENTIONS)].reset_index()

    def rules(self) -> pd.DataFrame:
        """One row a rule that fired."""
        rows = [
            {"model": model.name, "fact": rule.fact, "value": short(rule.value), "how": rule.how, "why": rule.why}
            for model in self.models
            for rule in model.rules
        ]
        return pd.DataFrame(rows)

    def unconfirmed(self, model: Description) -> list[str]:
        """Facts of a stored model that no source confirms."""
        entry = stored().get(model.name.split(" · ")[0]) if model.source else None
        return (entry or {}).get("unverified") or []

    def arrays(self) -> dict[str, np.ndarray]:
        """contexts (c,), payload_bytes and sequences (n, c), layer_tokens and layer_bytes of each model."""
        found = {
            "contexts": np.array(self.contexts),
            "payload_bytes": _array(self.payload()),
            "sequences": _array(self.sequences()),
            "cache_bytes": _array([taken.bytes for taken in self.sizes]),
        }
        for number, taken in enumerate(self.sizes, start=1):
            found[f"model_{number}_layer_tokens"] = _array([layer.tokens for layer in taken.layers])
            found[f"model_{number}_layer_bytes"] = _array([layer.bytes for layer in taken.layers])
        return found


def _array(values: Sequence) -> np.ndarray:
    """int64, or float64 where a count is larger than that holds."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array(values, dtype=np.float64)


def _whole(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of counts beyond int64 as text, exact, which no table could show otherwise."""
    for name in frame.columns:
        if frame[name].dtype == object and all(isinstance(each, int) for each in frame[name]):
            frame[name] = frame[name].map(str)
    return frame
