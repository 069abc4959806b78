"""One sequence under a fault's rules or the right ones, in the scenario in which the fault can show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.crop import crop
from kvcore.faults import Fault
from kvcore.model import LabDecoder
from kvcore.prefix import RIGHT_REUSE, PrefixStore, key_of
from kvcore.setting import Setting
from kvcore.studies.fault_sight import Seen, Watch

PLAIN = "one sequence"
GO_BACK = "going back"
REUSE = "a stored prefix"
TWO = "two sequences and a branch"

N_DRAFTED = 3
"""Tokens that are run and then rejected, where a fault lies in going back."""


def scenario(fault: Fault) -> str:
    """Where a fault can show; most do in one sequence."""
    if fault.crop is not crop:
        return GO_BACK
    if fault.reuse is not RIGHT_REUSE:
        return REUSE
    return TWO if fault.across_sequences else PLAIN


@dataclass(frozen=True, eq=False)
class Side:
    """The calls of one run, and how far its rows are from its full path.

    difference (n_layers, T), NaN at positions that were taken from a store; n_reused of them.
    """

    calls: tuple[Seen, ...]
    difference: np.ndarray
    n_reused: int = 0


@dataclass(frozen=True)
class Play:
    """What is run: token_ids (T,) in calls of `sizes`; before call `event` something happens, by scenario."""

    decoder: LabDecoder
    setting: Setting
    fault: Fault
    token_ids: np.ndarray
    sizes: tuple[int, ...]
    event: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        ends = np.cumsum(self.sizes).tolist()
        return [(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    @property
    def other_ids(self) -> np.ndarray:
        """What is drafted, branched to, or runs before: each token plus one."""
        return (self.token_ids + 1) % self.decoder.config.vocab_size

    def run(self, wrong: bool) -> Side:
        """The right step, or the wrong one. Raises ValueError where a rule refuses the call."""
        watch = Watch(self.decoder, self.fault.deviate(self.setting) if wrong else self.setting.rules)
        if scenario(self.fault) == REUSE:
            calls, n_reused = self._behind_a_prefix(watch, wrong)
        else:
            calls, n_reused = self._in_calls(watch, wrong), 0
        return Side(tuple(calls), self._difference(calls, wrong), n_reused)

    def _in_calls(self, watch: Watch, wrong: bool) -> list[Seen]:
        kind, spans = scenario(self.fault), self.spans
        cache = before = None
        if kind == TWO:
            for start, stop in spans:
                cache = watch.step(self.other_ids[start:stop], cache).cache
            cache = None
        calls = []
        for index, (start, stop) in enumerate(spans):
            if index and index == self.event:
                if kind == GO_BACK:
                    drafted = watch.step(self.other_ids[start : start + N_DRAFTED], cache).cache
                    cache = (self.fault.crop if wrong else crop)(drafted, start, self.setting.rules)
                elif kind == TWO:
                    watch.step(self.other_ids[spans[index - 1][0] : start], before)
            first = 0 if cache is None else cache.n_processed
            step = watch.step(self.token_ids[start:stop], cache)
            calls.append(watch.see(step, np.arange(start, stop), first + np.arange(stop - start)))
            before, cache = cache, step.cache
        return calls

    @property
    def stored_ids(self) -> np.ndarray:
        """The stored prefix: another token where call `event` starts; the same tokens for an exact repeat."""
        if self.fault.reuse.least_anew == 0:
            return self.token_ids
        start, stop = self.spans[self.event]
        return np.concatenate(
            [self.token_ids[:start], self.other_ids[start : start + 1], self.token_ids[start + 1 : stop]]
        )

    def _behind_a_prefix(self, watch: Watch, wrong: bool) -> tuple[list[Seen], int]:
        key, length = key_of(self.decoder, self.setting), len(self.token_ids)
        store = PrefixStore(self.fault.reuse if wrong else RIGHT_REUSE)
        store.put(key, self.stored_ids, watch.step(self.stored_ids, None).cache)
        hit = store.find(key, self.token_ids, self.setting)
        n_reused = 0 if hit is None else hit.n_reused
        place = np.arange(min(n_reused, length - 1), length)
        step = watch.step(self.token_ids[place], None if hit is None else hit.cache)
        return [watch.see(step, place, n_reused + np.arange(len(place)))], n_reused

    def _difference(self, calls: list[Seen], wrong: bool) -> np.ndarray:
        as_wrong = wrong and self.fault.wrong_reference
        rules = self.fault.deviate(self.setting) if as_wrong else self.setting.rules
        full = np.stack(
            [layer.hidden[0].double().numpy() for layer in self.decoder.step(self.token_ids, rules=rules).layers]
        )
        found = np.full(full.shape[:2], np.nan)
        for call in calls:
            found[:, call.place] = difference_by_position(call.rows, full[:, call.place])
        return found
