"""The sliding-window study in words: each sentence is made from one result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kvcore.cells import in_ranges, named
from kvcore.units import plural

if TYPE_CHECKING:
    from kvcore.studies.sliding_result import Result


def answer(result: Result) -> str:
    """The three ways beside the windowed full path, and why."""
    return " ".join([*_differences(result), _why(result)])


def _differences(result: Result) -> Iterator[str]:
    config, cropped = result.config, result.compared(result.cropped)
    yield f"Sliding cache of {plural(config.window, 'slot')}: {result.compared(result.sliding).in_words()}."
    recomputed = f"Recomputing the last {plural(config.recomputed, 'raw token')}"
    if result.cropping_is_right:
        yield f"{recomputed}, expected equal: {cropped.in_words()}."
    elif cropped.equal:
        yield f"{recomputed} leaves out tokens that count, but too little to see: {cropped.in_words()}."
    else:
        yield f"{recomputed}: {cropped.in_words()}."
    reset = result.compared(result.reset)
    off = f"off by up to {reset.largest:.2g}, first at position {reset.first_beyond}"
    yield f"Positions reset in every call: {f'within {result.tolerance:g} here' if reset.equal else off}."


def _why(result: Result) -> str:
    """Why so many slots and so many raw tokens are, or are not, the same."""
    window, n_layers, length = result.config.window, result.config.n_layers, result.config.length
    if window == 1:
        return (
            "With W = 1 every position reads itself alone in every layer, so one raw token is enough with any number"
            " of layers."
        )
    if window >= length:
        return (
            f"The window of {window} is not shorter than the {length} tokens: nothing is hidden and nothing evicted, so"
            f" this is an ordinary cache, and recomputing is right only from all {length} tokens."
        )
    if n_layers == 1:
        return (
            f"With one layer a slot's key and value are made from its own raw token alone, so {window} slots hold"
            f" exactly what the last {window} raw tokens hold: C = W is enough."
        )
    all_there = "" if result.needed <= length else f", here all {length} there are"
    return (
        f"From the second layer on, a slot is made of hidden states that could read slots evicted since, so {window}"
        f" slots know {n_layers}·({window} − 1) + 1 = {result.needed} raw tokens{all_there}."
    )


def slots(result: Result) -> str:
    """What the step attends over and evicts, and what its slots have seen."""
    config, held = result.config, result.slots
    kept = held.after >= 0
    seen = np.flatnonzero(held.seen[-1][kept].any(axis=0))
    gone = held.position[~kept]
    if gone.size:
        evicts = f"then evicts position {gone[0]}, which its mask already hides"
    else:
        evicts = f"evicts nothing: {_count(len(kept), 'entry fits', 'entries fit')} in {plural(config.window, 'slot')}"
    entries = "the 1 kept entry has" if kept.sum() == 1 else f"the {kept.sum()} kept entries together have"
    return (
        f"The step at position {config.step} attends over {named('position', held.position)} and {evicts}. In layer"
        f" {config.n_layers} {entries} seen {plural(len(seen), 'raw token')}: {in_ranges(seen)}."
    )


def reach(result: Result) -> str:
    """Which raw tokens move the step's output, against the law."""
    config = result.config
    through, recomputed = np.flatnonzero(result.moved_by_cache), np.flatnonzero(result.moved_by_crop)
    law = f"p − L(W − 1) = {config.step} − {config.n_layers}·({config.window} − 1) = {_signed(config.earliest)}"
    if config.earliest < 0:
        law += ", before the first token, so that all count"
    both = np.union1d(through, recomputed)
    if both.size and both[0] < config.earliest:
        agrees = f"Token {both[0]} reaches further than the law allows, so the engine is at fault: {law}"
    elif not through.size:
        agrees = f"No token moves the output through the sliding cache, though the law has some that do: {law}"
    elif through[0] == max(0, config.earliest):
        agrees = f"The law gives the same first token: {law}"
    else:
        agrees = f"The law's first token is {law}; the tokens between move the output by less than rounding keeps"
    return (
        f"Each raw token was edited in turn. Through the sliding cache {named('token', through)}"
        f" {'moves' if len(through) <= 1 else 'move'} the output of position {config.step}; where the last"
        f" {_count(config.recomputed, 'token is', 'tokens are')} recomputed, {named('token', recomputed)}"
        f" {'does' if len(recomputed) <= 1 else 'do'}. {agrees}."
    )


def sweep(result: Result) -> str:
    """From how many raw tokens on recomputing is right, measured and by the law."""
    config, largest = result.config, result.sweep.max(axis=1)
    law = f"L(W − 1) + 1 = {result.needed}"
    if result.needed > config.length:
        law += f", which is more than the {config.length} tokens there are"
    fewer = []
    if config.enough > 1:
        fewer.append(f"{largest[0]:.2g} with 1 raw token")
    if config.enough > 2:
        fewer.append(f"{largest[config.enough - 2]:.2g} with {config.enough - 1}")
    floor = float(largest[config.enough - 1 :].max())
    right = "exactly 0" if floor == 0 else f"at most {floor:.2g}"
    if not floor <= result.tolerance:
        right = f"up to {floor:.2g}, not within {result.tolerance:g} as the law has it, so the engine is at fault,"
    within = np.flatnonzero(largest[: config.enough - 1] <= result.tolerance)
    early = f" From {within[0] + 1} on it is already within {result.tolerance:g}." if within.size else ""
    return (
        f"Largest difference over all {config.length} positions: {', '.join(fewer)}{'; ' if fewer else ''}{right} from"
        f" {config.enough} on. {law}.{early}"
    )


def _count(n: int, one: str, many: str) -> str:
    """A number with words in the right number."""
    return f"{n} {one if n == 1 else many}"


def _signed(n: int) -> str:
    return str(n).replace("-", "−")
