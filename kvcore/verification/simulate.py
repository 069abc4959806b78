"""The engine's own faults under the same battery: what each would have left as evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvcore.faults import Fault
from kvcore.faults.fault import Pattern, restricted
from kvcore.model import LabDecoder
from kvcore.setting import Setting
from kvcore.verification.evidence import Battery, Found
from kvcore.verification.hypotheses import Calls, every_call

BEYOND = 1e-9
"""The engine's rows, float64, differ by 1e-15 where they are right and by far more where they are not."""


SHARPER = 2.0


class Simulation:
    """One fault in one setting, run as the battery asks, all sequences of a split as one batch."""

    def __init__(self, fault: Fault, setting: Setting, when: Calls = every_call) -> None:
        self.decoder = _sharpened(LabDecoder(setting.decoder))
        self.fault, self.setting, self.when = fault, setting, when
        self.remembered = self._rules()
        self.reference_rules = self.remembered if fault.wrong_reference else setting.rules

    def _rules(self) -> Pattern:
        wrong = self.fault.deviate(self.setting)
        return wrong if self.when is every_call else restricted(wrong, self.setting.rules, self.when)

    def full(self, token_ids: np.ndarray) -> np.ndarray:
        return self.decoder.step(token_ids, rules=self.reference_rules).hidden.numpy()

    def run(self, token_ids: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        """Rows (batch, T, d_model) of token ids (batch, T)."""
        rules = self.remembered if self.fault.across_sequences else self._rules()
        cache, at, rows = None, 0, []
        for size in sizes:
            step = self.decoder.step(token_ids[:, at : at + size], cache, rules)
            cache, at = step.cache, at + size
            rows.append(step.hidden.numpy())
        return np.concatenate(rows, axis=1)

    def found(self, battery: Battery, runs: Sequence[tuple[str, tuple[str, ...]]]) -> Found:
        """The rows of these runs of the battery."""
        found = Found()
        names = list(dict.fromkeys(name for _, sequences in runs for name in sequences))
        for length in {len(battery.sequences[name]) for name in names}:
            alike = [name for name in names if len(battery.sequences[name]) == length]
            full = self.full(np.array([battery.sequences[name] for name in alike]))
            found.reference |= dict(zip(alike, full, strict=True))
        for split, sequences in runs:
            rows = self.run(np.array([battery.sequences[name] for name in sequences]), battery.splits[split])
            for name, row in zip(sequences, rows, strict=True):
                found.rows[split, name] = row
        return found


def _sharpened(decoder: LabDecoder) -> LabDecoder:
    """The decoder with queries and keys SHARPER times as large: trained models attend less evenly than the lab's."""
    n_queries_and_keys = (decoder.config.n_heads + decoder.config.n_kv_heads) * decoder.config.head_dim
    for projection in decoder.projections:
        projection[:, :n_queries_and_keys] *= SHARPER
    return decoder
