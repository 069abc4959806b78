"""The fault bench in words: each sentence is made from one result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kvcore.cells import in_ranges, named
from kvcore.compare import Comparison
from kvcore.studies.fault_compare import CONTENTS, DISTANCE, ENTERED, HEADS, KEPT, MASK, Pair
from kvcore.studies.fault_runs import GO_BACK, N_DRAFTED, REUSE, TWO, scenario
from kvcore.studies.fault_settings import NO_WINDOW
from kvcore.units import listed, plural

if TYPE_CHECKING:
    from kvcore.studies.fault_bench import Config
    from kvcore.studies.fault_result import Result

TABLE = {ENTERED: "tokens", HEADS: "heads", MASK: "mask"}
"""The table of the result that holds an aspect's numbers; the other aspects are in `entries`."""


def chosen(config: Config) -> str:
    """The setting in which both steps are run."""
    decoder, setting = config.setting.decoder, config.setting
    windows = "no window"
    if config.shape.pattern != NO_WINDOW:
        windows = f"window {config.window} ({'every layer' if config.shape.pattern == 'all' else config.shape.pattern})"
    sinks = f", {plural(setting.n_sinks, 'sink')}" if setting.n_sinks else ""
    heads = f"{plural(decoder.n_heads, 'head')} on {plural(decoder.n_kv_heads, 'KV head')}"
    positions = {"none": "no positions", "alibi": "ALiBi"}.get(decoder.positions, f"{decoder.positions} positions")
    positions = positions[0].upper() + positions[1:]
    return f"{positions}, {windows}{sinks}, {heads}, {plural(decoder.n_layers, 'layer')}, {decoder.dtype}"


def staged(config: Config) -> str:
    """What happens besides the calls themselves, in the faults that show in no single sequence."""
    kind, event = scenario(config.mistake), config.event
    calls = "calls of " + ", ".join(map(str, config.sizes))
    start = sum(config.sizes[:event])
    if kind == REUSE:
        stored = f"the same {config.length} tokens"
        if config.mistake.reuse.least_anew:
            stored = f"{plural(start + config.sizes[event], 'token')}, another one at position {start}"
        return f"A prefix lies in the store: {stored}. One call computes what is not reused."
    if event == 0:
        return f"The tokens come in {calls}; with a single call nothing can happen before it."
    if kind == GO_BACK:
        n_drafted = min(N_DRAFTED, config.length - start)
        return (
            f"The tokens come in {calls}. Before call {event}, {plural(n_drafted, 'drafted token')}"
            f" {'is' if n_drafted == 1 else 'are'} run, rejected, and the cache goes back to {plural(start, 'token')}."
        )
    if kind == TWO:
        before = start - config.sizes[event - 1]
        return (
            f"Another sequence runs first. Then the tokens come in {calls}; before call {event}, a second branch puts"
            f" other tokens at {named('position', np.arange(before, start))} from the same older cache."
        )
    return f"The tokens come in {calls}."


def lacking(result: Result) -> str:
    """What must be chosen otherwise for the fault to be in force."""
    return (
        f"“{result.config.mistake.title}” {result.lacks} to be in force; choose that, or leave the setting at"
        " “as the fault needs”"
    )


def answer(result: Result) -> str:
    """Both runs against the full path."""
    if result.lacks:
        return f"{lacking(result)}."
    right, wrong = result.compared(result.right), result.compared(result.wrong)
    return " ".join([f"Right step: {apart(right)}.", f"Wrong step: {apart(wrong)}.", *_where(result)])


def apart(found: Comparison) -> str:
    """How far one run is from its full path; of a single position that is said so."""
    if len(found.position) > 1:
        return found.in_words()
    within = "within" if found.equal else "beyond"
    return (
        f"{found.largest:.2g} off at position {found.position[0]}, the only one computed: {within} {found.tolerance:g}"
    )


def _where(result: Result) -> Iterator[str]:
    firsts = [result.compared(result.wrong, layer).first_beyond for layer in range(result.config.n_layers)]
    if all(first is None for first in firsts):
        yield f"The fault does not show here; what hides it: {result.config.mistake.hidden_by}."
        return
    layer = next(index for index, first in enumerate(firsts) if first is not None)
    if len(firsts) > 1:
        yield f"It enters after layer {layer + 1}, first at position {firsts[layer]}."
    if result.config.mistake.wrong_reference:
        yield "The full path that the wrong step is compared with has the same rule."
    if result.wrong.n_reused or result.right.n_reused:
        yield (
            f"The right step reuses {plural(result.right.n_reused, 'stored token')}, the wrong one"
            f" {result.wrong.n_reused}; only what is computed anew can be compared."
        )


def step(result: Result) -> str:
    """What is changed in the call and layer that are looked at."""
    if result.pair is None:
        return ""
    place = result.right.calls[result.call].place
    where = f"Call {result.call} ({named('position', place)}), layer {result.layer + 1}"
    if result.first is None:
        return f"{where}: both steps are the same here, as in every other call and layer."
    if not result.changed:
        return f"{where}: both steps are the same here; the first that differs is {_named(result.first)}."
    if result.first == (result.call, result.layer):
        where += ", is the first in which the steps differ. The fault"
    else:
        where += f". By here (the first that differs is {_named(result.first)}) the fault"
    details = "; ".join(_detail(result.pair, aspect) for aspect in result.changed)
    same = f" The same on both sides: {listed(result.same)}." if result.same else ""
    return f"{where} changes {details}.{same}"


def _named(at: tuple[int, int]) -> str:
    return f"call {at[0]}, layer {at[1] + 1}"


def _detail(pair: Pair, aspect: str) -> str:
    """An aspect with how much of it is changed."""
    if aspect == MASK:
        hidden, shown = (pair.wrong_reads < pair.right_reads).sum(), (pair.wrong_reads > pair.right_reads).sum()
        found = [f"{n} wrongly {how}" for n, how in ((hidden, "hidden"), (shown, "shown")) if n]
        return f"{aspect} (cells: {' and '.join(found)})"
    if aspect == ENTERED:
        become = "becomes" if len(pair.place) == 1 else "become"
        return f"{aspect} ({in_ranges(pair.right_entered)} {become} {in_ranges(np.unique(pair.wrong_entered))})"
    if aspect == CONTENTS:
        return f"{aspect} ({named('position', np.flatnonzero(pair.read_otherwise))})"
    if aspect == HEADS:
        return f"{aspect} ({plural(int((pair.right.heads != pair.wrong.heads).sum()), 'head')})"
    if aspect == DISTANCE:
        return aspect
    assert aspect == KEPT
    found = []
    if pair.missing.any():
        found.append(f"{named('position', np.flatnonzero(pair.missing))} missing")
    if pair.surplus[:-1].any():
        found.append(f"{named('position', np.flatnonzero(pair.surplus[:-1]))} kept once too often")
    if pair.surplus[-1]:
        found.append(f"{pair.kept_wrong[-1]} entries of no position of this sequence")
    if pair.kept_otherwise.any():
        found.append(f"other numbers at {named('position', np.flatnonzero(pair.kept_otherwise))}")
    return f"{aspect} ({', '.join(found)})"
