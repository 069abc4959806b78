"""The prefix-reuse study in words: each sentence is made from one result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvcore.cells import named
from kvcore.compare import Comparison
from kvcore.units import plural

if TYPE_CHECKING:
    from kvcore.studies.prefix_result import Result

DIGEST = 12
"""Characters of a digest that are shown."""


def key_value(name: str, value: object) -> str:
    """A field of a key as it is shown."""
    if name == "weights":
        return f"{value[:DIGEST]}…"
    if name == "heads":
        return f"{value[0]} query, {value[1]} KV"
    if name == "windows":
        return ", ".join("none" if window is None else str(window) for window in value)
    return "none" if value is None else str(value)


def listed(names: Sequence[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def in_words(condition: str) -> str:
    return condition.replace("-", " ")


def experiment(result: Result) -> str:
    """What holds over all seeds and conditions, and whatever did not go as it should."""
    return " ".join(_experiment(result))


def _experiment(result: Result) -> Iterator[str]:
    rows, limit = result.experiment, result.tolerance
    seeds, conditions = dict.fromkeys(row["seed"] for row in rows), dict.fromkeys(row["condition"] for row in rows)
    worst = max(rows, key=lambda row: row["keyed_error"])
    keyed = f"Over {plural(len(seeds), 'seed')} and {plural(len(conditions), 'condition')}, keyed reuse"
    if worst["keyed_error"] <= limit:
        yield f"{keyed} stays within {worst['keyed_error']:.2g} of fresh computation (float64, tolerance {limit:g})."
    else:
        yield (
            f"{keyed} is off by {worst['keyed_error']:.2g} under “{in_words(worst['condition'])}” with seed {worst['seed']}, beyond"
            f" {limit:g}, so the engine is at fault."
        )
    for reused, what in ((True, "It uses the stored prefix under"), (False, "It computes anew under")):
        those = [row for row in rows if row["reused"] is reused]
        counts = listed([str(n) for n in sorted({row["projected_rows"] for row in those})]) or "no"
        yield f"{what} {_conditions(those)}: {counts} projected rows."
    wrong = [row for row in rows if not row["unchecked_error"] <= limit]
    if wrong:
        least, most = (pick(wrong, key=lambda row: row["unchecked_error"]) for pick in (min, max))
        yield (
            f"Unchecked, a deliberate mistake, the stored prefix is off by {least['unchecked_error']:.2g}"
            f" ({in_words(least['condition'])}, seed {least['seed']}) to {most['unchecked_error']:.2g} ({in_words(most['condition'])}, seed"
            f" {most['seed']}) under {_conditions(wrong)}, where something that decides keys and values differs, and"
            " right under the others."
        )


def _conditions(rows: Sequence[dict[str, object]]) -> str:
    return listed(list(dict.fromkeys(f"“{in_words(row['condition'])}”" for row in rows))) or "no condition"


def scope(result: Result) -> str:
    """Why another scope must miss though the numbers are the same."""
    rows = {row["condition"]: row for row in result.experiment}
    same = max(row["unchecked_error"] for row in result.experiment if row["condition"] == "different-scope")
    hit, miss = rows["same-prefix"]["projected_rows"], rows["different-scope"]["projected_rows"]
    equal = f"differ by no more than {same:.2g}" if same else "are exactly the same"
    return (
        f"Under another scope the rows {equal}, and the store must refuse all the same: the scope says whose prefix it"
        f" is. A hit leaves {hit} rows to project instead of {miss}, and who asks may notice that in the time to the"
        " answer. So with one store for all, a user could try prefixes and learn which ones another has sent."
    )


def play(result: Result) -> str:
    """May the stored prefix be used, how far, what does using it anyway do, and why."""
    return " ".join([_verdict(result), _rows(result), *_outcomes(result)])


def _verdict(result: Result) -> str:
    n_stored, n_all, n_common = len(result.stored_ids), len(result.asked_ids), result.n_common
    anew = f"all {n_all} tokens are computed anew"
    edit = ""
    if n_common < n_stored:
        edit = (
            f"position {n_common} holds token {result.asked_ids[n_common]} where {result.stored_ids[n_common]} was"
            " stored"
        )
    if result.differing:
        also = f" (and {edit})" if edit else ""
        return f"The stored prefix may not be used: the key differs in {listed(result.differing)}{also}, so {anew}."
    if not edit:
        return (
            f"The stored prefix may be used: the key is the same and all {n_stored} stored tokens begin the request, so"
            f" {n_stored} tokens are reused and {n_all - n_stored} computed."
        )
    if n_common == 0:
        return f"The stored prefix may not be used: the key is the same, but {edit}, so {anew}."
    before = f"the {plural(n_common, 'token')} before it"
    if result.evicted_too_much:
        gone = named("position", np.flatnonzero(~result.entries.held.all(axis=0)))
        return (
            f"The key is the same and {edit}, but {before} cannot be reused either: the stored cache has evicted {gone},"
            f" of which the token at position {n_common} reads some. So {anew}."
        )
    return (
        f"The stored prefix may be used in part: the key is the same, but {edit}, so only {before}"
        f" {'is' if n_common == 1 else 'are'} reused and {n_all - n_common} are computed."
    )


def _rows(result: Result) -> str:
    ways = result.ways
    return (
        f"Projected rows, counted: {ways.fresh.projected_rows} fresh, {ways.keyed.projected_rows} by the key,"
        f" {ways.unchecked.projected_rows} unchecked; counts are not a speed-up."
    )


def _outcomes(result: Result) -> Iterator[str]:
    keyed, unchecked = result.compared(result.ways.keyed), result.compared(result.ways.unchecked)
    fault = "" if keyed.equal else " This must not be, so the engine is at fault."
    yield f"Difference from fresh computation at the suffix positions, by the key: {_in_words(keyed)}.{fault}"
    if not result.changed:
        yield f"Unchecked the same entries are used, right only because nothing differs: {_in_words(unchecked)}."
        return
    yield f"Unchecked, a deliberate mistake: {_in_words(unchecked)}."
    if unchecked.equal and result.differing == ("scope",) and result.n_common == len(result.stored_ids):
        yield "Another scope changes no number; it must miss all the same, for it says whose prefix it is."
    elif unchecked.equal:
        yield (
            f"What differs does not reach these rows beyond {result.tolerance:g} here. The key cannot know that: it may"
            " cost rows, but never makes one wrong."
        )
    else:
        yield _stale(result)


def _stale(result: Result) -> str:
    """How many stored entries are not those of the request, by layer."""
    held = result.entries.held
    counts = [f"{n} in layer {layer}" for layer, n in enumerate(result.stale.sum(axis=1), start=1)]
    gone = int((~held).sum())
    missing = f" {plural(gone, 'entry')} had been evicted.".replace("entrys", "entries") if gone else ""
    return (
        f"Of the {held.shape[1]} positions stored, so many keys and values are not those of this request:"
        f" {listed(counts)}.{missing}"
    )


def _in_words(found: Comparison) -> str:
    if found.largest == 0:
        return "exactly 0"
    if found.equal:
        return f"at most {found.largest:.2g}, equal within {found.tolerance:g}"
    size = f"up to {found.largest:.2g}" if np.isfinite(found.largest) else "not finite"
    return (
        f"{size}, {len(found.beyond)} of {len(found.position)} positions beyond {found.tolerance:g}, the first is"
        f" position {found.first_beyond}"
    )
