"""The engine's own faults under the same battery: what each would have left as evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvcore.cache import KVCache, LayerCache
from kvcore.faults import Fault
from kvcore.faults.fault import restricted
from kvcore.model import LabDecoder
from kvcore.rules import ByLayer
from kvcore.setting import Setting
from kvcore.verification.contents import Layer, flags, in_time, to_array
from kvcore.verification.evidence import Battery, Found, Responses, Runs, Signature
from kvcore.verification.hypotheses import Calls, every_call
from kvcore.verification.plan import BASE, ONE_CALL, ONES

BEYOND = 1e-9
"""The engine's rows, float64, differ by 1e-15 where they are right and by far more where they are not."""

SHARPER = 2.0


class Simulation:
    """One decoder in one setting, on which faults are tried; the right rows are computed once."""

    def __init__(self, setting: Setting, battery: Battery) -> None:
        self.setting, self.battery = setting, battery
        self.decoder = _sharpened(LabDecoder(setting.decoder))
        self.reference = self._full(setting.rules)
        self._known: dict[tuple, tuple[Signature, Responses]] = {}

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
            rules = self._rules(fault, calls)
            tokens = np.array([self.battery.sequences[name] for name in names])
            rows = self._run(tokens, self.battery.splits[split], rules)
            found.rows |= {(split, name): row for name, row in zip(names, rows, strict=True)}
        return found

    def shown(self, fault: Fault, calls: Calls, wanted: Sequence[tuple[str, str]]) -> Signature:
        """What layers and inspect would show: of ("layer", split) and ("contents", "first layer" or "last layer")."""
        found: Signature = {}
        for kind, what in wanted:
            if kind == "layer" and what in self.battery.splits:
                right = self._last(self.setting.rules, what)[0]
                wrong = self._last(self._rules(fault, calls), what)[0]
                found[kind, what, BASE] = np.abs(wrong - right).max(axis=-1) > BEYOND
        if any(kind == "contents" for kind, _ in wanted) and {ONES, ONE_CALL} <= self.battery.splits.keys():
            length = len(self.battery.sequences[BASE])
            caches = [self._last(self._rules(fault, calls), split)[1] for split in (ONES, ONE_CALL)]
            after_ones, after_one_call = ([_contents(layer) for layer in cache.layers] for cache in caches)
            for index, name in ((0, "first layer"), (-1, "last layer")):
                held = flags(after_ones[index], after_one_call[index], length, BEYOND)
                found["contents", name, BASE] = held
        return found

    def _rules(self, fault: Fault, calls: Calls) -> ByLayer:
        """Anew for every run, for some faults remember."""
        wrong = fault.deviate(self.setting)
        return wrong if calls is every_call else restricted(wrong, self.setting.rules, calls)

    def _last(self, rules: ByLayer, split: str) -> tuple[np.ndarray, KVCache]:
        """The first layer's rows (T, d_model) of the base sequence, and the cache at its end."""
        cache, at, rows = None, 0, []
        for size in self.battery.splits[split]:
            step = self.decoder.step(self.battery.sequences[BASE][at : at + size], cache, rules)
            cache, at = step.cache, at + size
            rows.append(step.layers[0].hidden[0].numpy())
        return np.concatenate(rows), cache

    def _run(self, token_ids: np.ndarray, sizes: Sequence[int], rules: ByLayer) -> np.ndarray:
        """Rows (batch, T, d_model) of token ids (batch, T), all sequences of a split as one batch."""
        cache, at, rows = None, 0, []
        for size in sizes:
            step = self.decoder.step(token_ids[:, at : at + size], cache, rules)
            cache, at = step.cache, at + size
            rows.append(step.hidden.numpy())
        return np.concatenate(rows, axis=1)


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
