"""Checks that need more than full and step: going back, reuse, outputs by layer, contents of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification import plan
from kvcore.verification.checks import Check, judged, not_tested
from kvcore.verification.contents import flags, in_time, in_words, layers_of, to_array
from kvcore.verification.outputs import last_rows_of
from kvcore.verification.plan import BASE
from kvcore.verification.subject import find_copy, said

if TYPE_CHECKING:
    from kvcore.verification.trial import Trial


def check_all(trial: Trial) -> None:
    """Each check whose hook was given; the others are listed as not tested."""
    for name, check, what in (
        ("crop", check_crop, "going back after rejected tokens"),
        ("reuse", check_reuse, "use of a stored prefix"),
        ("layers", check_layers, "the first layer that goes wrong"),
        ("inspect", check_contents, "what lies in the cache"),
    ):
        if getattr(trial.hooks, name) is None:
            trial.checks.append(not_tested(name, f"{what}: give {name}"))
        else:
            check(trial)


def check_crop(trial: Trial) -> None:
    """Run on with tokens that are then rejected, go back, and continue with the right ones."""
    length, tokens = trial.length, trial.sequences[BASE]
    half = max(1, length // 2)
    for ahead in sorted({1, 2, length - half} - {0}):
        kept, drafted = half, min(half + ahead, length)
        draft = next((edit.token_ids for edit in trial.edits if edit.position == kept), tokens)
        sizes = plan.limited((kept,), trial.hooks.max_chunk) + (1,) * (drafted - kept)
        begun = trial.subject.run(draft[:drafted], sizes)
        name = f"back from {drafted} to {kept} tokens"
        if begun.failure is not None:
            trial.checks.append(not_tested(name, begun.failure.in_words()))
            continue
        try:
            shorter = trial.hooks.crop(begun.cache, kept)
        except Exception as error:  # a cache may refuse to go back; that is right where entries are gone
            trial.checks.append(not_tested(name, f"crop refused: {said(error)}"))
            continue
        done = trial.subject.run(tokens, (1,) * (length - kept), shorter, first=kept)
        if done.failure is not None:
            trial.checks.append(Check(name, BASE, "failed", note=done.failure.in_words()))
            bad = np.ones(length - kept, dtype=bool)
        else:
            difference = difference_by_position(done.rows, trial.found.reference[BASE][kept:])
            trial.checks.append(judged(name, BASE, difference, trial.tolerance, kept))
            bad = difference > trial.tolerance.rounding
        trial.signature["crop", name, BASE] = np.concatenate([np.zeros(kept, dtype=bool), bad])


def reuse_requests(trial: Trial) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """(cached ids, asked ids): the whole again, an edit in the middle, a shorter one, a longer one."""
    tokens = trial.sequences[BASE]
    half = max(1, trial.length // 2)
    requests = {
        "reuse, exact repeat": (tokens, tokens),
        "reuse, longer request": (tokens[:half], tokens),
        "reuse, shorter request": (tokens, tokens[: half + 1]),
    }
    edit = next((edit for edit in trial.edits if edit.position == min(3, trial.length - 2)), None)
    if edit is not None:
        requests["reuse, prefix edited"] = (tokens, edit.token_ids)
    return requests


def check_reuse(trial: Trial) -> None:
    """Each request answered with the help of a cache, beside the full forward of what was asked."""
    for name, (cached, asked) in reuse_requests(trial).items():
        begun = trial.subject.run(cached, plan.limited((len(cached),), trial.hooks.max_chunk))
        if begun.failure is not None:
            trial.checks.append(not_tested(name, begun.failure.in_words()))
            continue
        copy = find_copy(trial.hooks.copy, begun.cache) or (lambda cache: cache)
        like = trial.subject.ids.like
        try:
            outputs, _ = trial.hooks.reuse(like(asked), copy(begun.cache), like(cached))
        except Exception as error:
            trial.checks.append(Check(name, BASE, "failed", note=f"reuse raised {said(error)}"))
            continue
        rows, right = last_rows_of(outputs, len(asked), "reuse"), trial.subject.full(asked)
        if rows.shape[1] != right.shape[1]:
            raise ValueError(
                f"reuse gave {rows.shape[1]} features a token, full {right.shape[1]}; both must give the same"
            )
        first = len(asked) - len(rows)
        difference = difference_by_position(rows, right[first:])
        trial.checks.append(judged(name, BASE, difference, trial.tolerance, first))
        bad = np.zeros(len(asked), dtype=bool)
        bad[first:] = difference > trial.tolerance.rounding
        trial.signature["reuse", name, BASE] = bad


def check_layers(trial: Trial) -> None:
    """Outputs after each layer, for the first split that goes wrong, or else for prefill and then ones."""
    full, step = trial.hooks.layers
    wrong = [s for s in trial.splits if (s, BASE) in trial.found.rows and _bad(trial, s).any()]
    split = wrong[0] if wrong else plan.PREFILL if plan.PREFILL in trial.splits else plan.ONES
    sizes, tokens, like = trial.splits[split], trial.sequences[BASE], trial.subject.ids.like
    try:
        reference = _by_layer(full(like(tokens)))
        cache, parts, at = None, [], 0
        for size in sizes:
            outputs, cache = step(like(tokens[at : at + size]), cache)
            parts.append(_by_layer(outputs))
            at += size
        rows = np.concatenate(parts, axis=1)
    except Exception as error:
        trial.checks.append(not_tested("layers", said(error)))
        return
    if rows.shape != reference.shape:
        raise ValueError(
            f"layers gave {rows.shape} through its step and {reference.shape} through its full;"
            " both must be (n_layers, tokens, features)"
        )
    for layer, (mine, right) in enumerate(zip(rows, reference, strict=True)):
        gap = difference_by_position(mine, right)
        trial.checks.append(judged(f"after layer {layer}, {split}", BASE, gap, trial.tolerance))
        if layer == 0:
            trial.signature["layer", split, BASE] = gap > trial.tolerance.rounding


def _by_layer(outputs: Any) -> np.ndarray:
    """(n_layers, n, features) from one array or tensor, or from a sequence of them."""
    return to_array(outputs) if hasattr(outputs, "detach") else np.stack([to_array(layer) for layer in outputs])


def _bad(trial: Trial, split: str) -> np.ndarray:
    return trial.found.difference(split, BASE) > trial.tolerance.rounding


def check_contents(trial: Trial) -> None:
    """What each layer holds after single tokens, beside what it holds after one call."""
    held = {}
    for split in (plan.ONE_CALL, plan.ONES):
        if split not in trial.splits or split in trial.failures:
            continue
        done = trial.subject.run(trial.sequences[BASE], trial.splits[split])
        if done.failure is not None:
            continue
        try:
            held[split] = [in_time(layer) for layer in layers_of(trial.hooks.inspect(done.cache))]
        except Exception as error:  # whatever a stranger's inspect raises
            trial.checks.append(not_tested("inspect", said(error)))
            return
    if plan.ONES not in held:
        trial.checks.append(not_tested("inspect", "no run token by token to look into"))
        return
    once = held.get(plan.ONE_CALL) or [None] * len(held[plan.ONES])
    if len(once) != len(held[plan.ONES]):
        note = f"inspect gave {len(held[plan.ONES])} layers after single tokens and {len(once)} after one call"
        trial.checks.append(not_tested("inspect", note))
        return
    for index, (layer, other) in enumerate(zip(held[plan.ONES], once, strict=True)):
        found = flags(layer, other, trial.length, trial.tolerance.rounding)
        verdict = "note" if found.any() else "equal"
        trial.checks.append(Check(f"contents of layer {index}", BASE, verdict, note=in_words(found)))
        for name in ["first layer"] * (index == 0) + ["last layer"] * (index == len(held[plan.ONES]) - 1):
            trial.signature["contents", name, BASE] = found
