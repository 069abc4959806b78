"""The prefix-reuse study in words: each sentence is made from one result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvcore.cells import named
from kvcore.compare import Comparison
from kvcore.prefix_experiment import DECIDING, HITS
from kvcore.units import listed, plural

if TYPE_CHECKING:
    from kvcore.studies.prefix_result import Result

DIGEST = 12
"""Characters of a digest that are shown."""

AT_FAULT = "the engine is at fault"
"""What must not happen."""


def key_value(name: str, value: object) -> str:
    """A field of a key as it is shown."""
    if name == "weights":
        return f"{value[:DIGEST]}…"
    if name == "heads":
        return f"{value[0]} query, {value[1]} KV"
    if name == "windows":
        return ", ".join("none" if window is None else str(window) for window in value)
    return "none" if value is None else str(value)


def in_words(condition: str) -> str:
    return condition.replace("-", " ")


def experiment(result: Result) -> str:
    """What holds over all seeds and conditions, and whatever did not go as it should."""
    return " ".join(_experiment(result))


def _experiment(result: Result) -> Iterator[str]:
    rows, limit = result.experiment, result.tolerance
    seeds, conditions = (len({row[name] for row in rows}) for name in ("seed", "condition"))
    keyed = f"Over {plural(seeds, 'seed')} and {plural(conditions, 'condition')}, keyed reuse"
    beyond = [row for row in rows if not row["keyed_error"] <= limit]
    worst = max(beyond or rows, key=lambda row: row["keyed_error"])
    if not beyond:
        yield f"{keyed} stays within {worst['keyed_error']:.2g} of fresh computation (float64, tolerance {limit:g})."
    else:
        yield f"{keyed} is off by {_size(worst, 'keyed_error')}, beyond {limit:g}: {AT_FAULT}."
    for reused, what in ((True, "It uses the stored prefix under"), (False, "It computes anew under")):
        those = [row for row in rows if row["reused"] is reused]
        counts = listed([str(n) for n in sorted({row["projected_rows"] for row in those})]) or "no"
        yield f"{what} {_conditions(those)}: {counts} projected rows."
    if {row["condition"] for row in rows if row["reused"]} != set(HITS):
        yield f"It should use it under {listed([f'“{in_words(name)}”' for name in HITS])} alone: {AT_FAULT}."
    wrong = [row for row in rows if not row["unchecked_error"] <= limit]
    if not wrong:
        yield f"Unchecked reuse shows nowhere, though it is a mistake: {AT_FAULT}."
        return
    least, most = (pick(wrong, key=lambda row: row["unchecked_error"]) for pick in (min, max))
    yield (
        f"Unchecked, a deliberate mistake, the stored prefix is off by {_size(least, 'unchecked_error')} to"
        f" {_size(most, 'unchecked_error')} under {_conditions(wrong)} and right under the others."
    )
    if {row["condition"] for row in wrong} == set(DECIDING):
        yield "Those are the conditions in which something that decides keys and values differs."


def _size(row: Mapping[str, object], error: str) -> str:
    return f"{row[error]:.2g} ({in_words(row['condition'])}, seed {row['seed']})"


def _conditions(rows: Sequence[Mapping[str, object]]) -> str:
    return listed(list(dict.fromkeys(f"“{in_words(row['condition'])}”" for row in rows))) or "no condition"


def scope(result: Result) -> str:
    """Why another scope must miss though the numbers are the same."""
    rows = {row["condition"]: row for row in result.experiment}
    same = max(row["unchecked_error"] for row in result.experiment if row["condition"] == "different-scope")
    hit, miss = rows["same-prefix"]["projected_rows"], rows["different-scope"]["projected_rows"]
    equal = f"differ from fresh ones by no more than {same:.2g}" if same else "are exactly the fresh ones"
    return (
        f"Under another scope the unchecked rows {equal}, and the store must refuse all the same: the scope says whose"
        f" prefix it is. A hit leaves {hit} rows to project instead of {miss}, and who asks may notice that in the time"
        " to the answer. So with one store for all, a user could try prefixes and learn which ones another has sent."
    )


def verdict(result: Result) -> str:
    """May the stored prefix be used, how far, why not, and how many rows each way projects."""
    return f"{_may_be_used(result)} {_rows(result)}"


def outcome(result: Result) -> str:
    """What using it by the key, and unchecked, does."""
    return " ".join(_outcomes(result))


def _may_be_used(result: Result) -> str:
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
            f"The key is the same and {edit}, but {before} cannot be reused either: the stored cache has evicted"
            f" {gone}, of which the token at position {n_common} reads some. So {anew}."
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
    fault = "" if keyed.equal else f" This must not be: {AT_FAULT}."
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
    missing = f" {gone} {'entry' if gone == 1 else 'entries'} had been evicted." if gone else ""
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
