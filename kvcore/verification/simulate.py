"""The engine's own faults under the same battery: what each would have left as evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kvcore.cache import KVCache, LayerCache
from kvcore.faults import Fault
from kvcore.faults.fault import restricted
from kvcore.model import LabDecoder, Step
from kvcore.rules import ByLayer
from kvcore.setting import Setting
from kvcore.verification.contents import Layer, flags, in_time, to_array
from kvcore.verification.evidence import Battery, Found, Responses, Runs, Signature
from kvcore.verification.hypotheses import Calls, every_call
from kvcore.verification.plan import BASE, ONE_CALL, ONES, positions_of

BEYOND = 1e-9
"""The engine's rows, float64, differ by 1e-15 where they are right and by far more where they are not."""

SHARPER = 2.0

ROOM = 4
"""Slots a token in the caches of simulated runs: room for any fault, so that nothing is copied as they grow."""


class Simulation:
    """One decoder in one setting, on which faults are tried; the right rows are computed once."""

    def __init__(self, setting: Setting, battery: Battery) -> None:
        self.setting, self.battery = setting, battery
        self.decoder = _sharpened(LabDecoder(setting.decoder))
        self.reference = self._full(setting.rules)
        self._known: dict[tuple, tuple[Signature, Responses]] = {}
        self._known_rows: dict[tuple, np.ndarray] = {}
        self._known_alone: dict[tuple, tuple[np.ndarray, list[Layer]]] = {}
        self._known_right: dict[tuple, list[Step]] = {}

    def _full(self, rules: ByLayer) -> dict[str, np.ndarray]:
        """Rows of every sequence in one call, those of one length as one batch."""
        found: dict[str, np.ndarray] = {}
        sequences = self.battery.sequences
        for length in {len(tokens) for tokens in sequences.values()}:
            names = [name for name, tokens in sequences.items() if len(tokens) == length]
            rows = self.decoder.step([sequences[name] for name in names], rules=rules).hidden.numpy()
            found |= dict(zip(names, rows, strict=True))
        return found

    def evidence(self, fault: Fault, calls: Calls, runs: Runs) -> tuple[Signature, Responses]:
        """What these runs leave where the fault is in force in these calls; computed once."""
        key = (fault.name, calls, tuple(runs))
        if key not in self._known:
            found = self._found(fault, calls, runs)
            self._known[key] = found.signature(self.battery, BEYOND), found.responses(self.battery, BEYOND)
        return self._known[key]

    def _found(self, fault: Fault, calls: Calls, runs: Runs) -> Found:
        """The rows that these runs give."""
        found = Found(self.reference)
        if fault.wrong_reference:
            found.reference = self._full(fault.deviate(self.setting))
        for split, names in runs:
            known = (fault.name, calls, split, names)
            if known not in self._known_rows:
                self._known_rows[known] = self._run(split, names, fault, calls)
            rows = self._known_rows[known]
            found.rows |= {(split, name): row for name, row in zip(names, rows, strict=True)}
        return found

    def shown(self, fault: Fault, calls: Calls, wanted: Sequence[tuple[str, str]]) -> Signature:
        """What layers and inspect would show: of ("layer", split) and ("contents", "first layer" or "last layer")."""
        found: Signature = {}
        for kind, what in wanted:
            if kind == "layer" and what in self.battery.splits:
                right, wrong = (self._base_alone(one, calls, what)[0] for one in (None, fault))
                found[kind, what, BASE] = np.abs(wrong - right).max(axis=-1) > BEYOND
        if any(kind == "contents" for kind, _ in wanted) and {ONES, ONE_CALL} <= self.battery.splits.keys():
            length = len(self.battery.sequences[BASE])
            after_ones, after_one_call = (self._base_alone(fault, calls, split)[1] for split in (ONES, ONE_CALL))
            for index, name in ((0, "first layer"), (-1, "last layer")):
                held = flags(after_ones[index], after_one_call[index], length, BEYOND)
                found["contents", name, BASE] = held
        return found

    def _base_alone(self, fault: Fault | None, calls: Calls, split: str) -> tuple[np.ndarray, list[Layer]]:
        """The first layer's rows (T, d_model) of the base sequence, and what the cache holds at its end."""
        known = (fault.name if fault else "", calls, split)
        if known not in self._known_alone:
            rules = self._rules(fault, calls) if fault else self.setting.rules
            steps = list(self._steps((BASE,), positions_of(self.battery.splits[split]), rules))
            rows = np.concatenate([step.layers[0].hidden[0].numpy() for step in steps])
            self._known_alone[known] = rows, [_contents(layer) for layer in steps[-1].cache.layers]
        return self._known_alone[known]

    def _rules(self, fault: Fault, calls: Calls) -> ByLayer:
        """Anew for every run, for some faults remember."""
        wrong = fault.deviate(self.setting)
        return wrong if calls is every_call else restricted(wrong, self.setting.rules, calls)

    def _run(self, split: str, names: tuple[str, ...], fault: Fault, calls: Calls) -> np.ndarray:
        """Rows (batch, T, d_model) of these sequences as one batch; what is right before the fault is not run again."""
        positions = positions_of(self.battery.splits[split])
        n_right = next((index for index, position in enumerate(positions) if calls(position)), len(positions))
        steps = self._right(split, names)[:n_right] if n_right else []
        if n_right < len(positions):
            cache = steps[-1].cache if steps else None
            steps = [*steps, *self._steps(names, positions[n_right:], self._rules(fault, calls), cache)]
        return np.concatenate([step.hidden.numpy() for step in steps], axis=1)

    def _right(self, split: str, names: tuple[str, ...]) -> list[Step]:
        """The calls of the right run of these sequences."""
        if (split, names) not in self._known_right:
            steps = self._steps(names, positions_of(self.battery.splits[split]), self.setting.rules)
            self._known_right[split, names] = list(steps)
        return self._known_right[split, names]

    def _steps(
        self, names: tuple[str, ...], positions: list[np.ndarray], rules: ByLayer, cache: KVCache | None = None
    ) -> Iterator[Step]:
        """One call after the other of these sequences as one batch; a new cache need not grow, whatever the fault."""
        tokens = np.array([self.battery.sequences[name] for name in names])
        cache = cache or KVCache.empty(self.setting.decoder.n_layers, ROOM * tokens.shape[-1])
        for position in positions:
            step = self.decoder.step(tokens[:, position], cache, rules)
            cache = step.cache
            yield step


class Simulations:
    """Simulations that were made before: of many reports on the same tokens, the first pays for the others."""

    def __init__(self) -> None:
        self._made: dict[tuple, Simulation] = {}

    def of(self, setting: Setting, battery: Battery) -> Simulation:
        key = (setting, battery.key)
        if key not in self._made:
            self._made[key] = Simulation(setting, battery)
        return self._made[key]


def _contents(layer: LayerCache) -> Layer:
    return in_time((to_array(layer.key[0]), to_array(layer.value[0]), layer.position))


def _sharpened(decoder: LabDecoder) -> LabDecoder:
    """The decoder with queries and keys SHARPER times as large: trained models attend less evenly than the lab's."""
    n_queries_and_keys = (decoder.config.n_heads + decoder.config.n_kv_heads) * decoder.config.head_dim
    for projection in decoder.projections:
        projection[:, :n_queries_and_keys] *= SHARPER
    return decoder
