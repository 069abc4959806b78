"""Checks that need more than full and step: going back, reuse, outputs by layer, contents of the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvcore.compare import difference_by_position
from kvcore.verification import plan
from kvcore.verification.checks import Check, judged, not_tested
from kvcore.verification.outputs import rows_of
from kvcore.verification.plan import BASE
from kvcore.verification.subject import find_copy

if TYPE_CHECKING:
    from kvcore.verification.battery import Trial


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
            trial.checks.append(not_tested(name, f"crop refused: {type(error).__name__}: {str(error)[:120]}"))
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
            note = f"reuse raised {type(error).__name__}: {str(error)[:120]}"
            trial.checks.append(Check(name, BASE, "failed", note=note))
            continue
        n_rows = len(outputs)
        rows, _ = rows_of(outputs, n_rows, "reuse")
        first = len(asked) - n_rows
        difference = difference_by_position(rows, trial.subject.full(asked)[first:])
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
        trial.checks.append(not_tested("layers", f"{type(error).__name__}: {str(error)[:120]}"))
        return
    for layer, (mine, right) in enumerate(zip(rows, reference, strict=True)):
        gap = difference_by_position(mine, right)
        trial.checks.append(judged(f"after layer {layer}, {split}", BASE, gap, trial.tolerance))
        trial.signature["layer", f"{layer} of {len(rows)} {split}", BASE] = gap > trial.tolerance.rounding


def _by_layer(outputs: object) -> np.ndarray:
    if hasattr(outputs, "detach"):
        outputs = outputs.detach().cpu().double().numpy()
    rows = np.stack([layer if isinstance(layer, np.ndarray) else _by_layer_one(layer) for layer in outputs])
    return rows.astype(np.float64)


def _by_layer_one(layer: object) -> np.ndarray:
    return layer.detach().cpu().double().numpy() if hasattr(layer, "detach") else np.asarray(layer, dtype=np.float64)


def _bad(trial: Trial, split: str) -> np.ndarray:
    return trial.found.difference(split, BASE) > trial.tolerance.rounding


def contents(inspected: object) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Keys and values (…, entries, numbers) and positions (entries,) or None, a layer."""
    found = []
    for layer in inspected:
        key, value, *rest = layer
        position = None if not rest or rest[0] is None else np.asarray(_by_layer_one(rest[0]), dtype=np.int64).ravel()
        found.append((_by_layer_one(key), _by_layer_one(value), position))
    return found


def check_contents(trial: Trial) -> None:
    """How many entries each layer holds after all tokens, at which positions, and whether two splits agree on them."""
    tokens = trial.sequences[BASE]
    held = {}
    for split in (plan.ONE_CALL, plan.ONES):
        if split not in trial.splits or split in trial.failures:
            continue
        done = trial.subject.run(tokens, trial.splits[split])
        if done.failure is not None:
            continue
        try:
            held[split] = contents(trial.hooks.inspect(done.cache))
        except Exception as error:
            trial.checks.append(not_tested("inspect", f"{type(error).__name__}: {str(error)[:120]}"))
            return
    for split, layers in held.items():
        for index, (key, value, position) in enumerate(layers):
            note = _odd(key, value, position, trial.length)
            trial.checks.append(
                Check(f"contents of layer {index}, {split}", BASE, "note" if note else "equal", note=note)
            )
            trial.signature["contents", f"{index} {split}", BASE] = np.array([bool(note)])
    trial.extra["contents"] = held


def _odd(key: np.ndarray, value: np.ndarray, position: np.ndarray | None, length: int) -> str:
    """What is strange about a layer's entries after `length` tokens, or nothing."""
    n_entries = key.shape[-2]
    flat = np.moveaxis(key, -2, 0).reshape(n_entries, -1)
    if n_entries > length and position is None:
        return f"{n_entries} entries after {length} tokens"
    if position is not None and len(np.unique(position)) < len(position):
        return "a position is there more than once"
    if position is not None and (position.max() >= length or position.min() < 0):
        return f"positions go from {position.min()} to {position.max()}, tokens from 0 to {length - 1}"
    if not flat.any(axis=-1).all():
        return f"slot {int(np.flatnonzero(~flat.any(axis=-1))[0])} was never written"
    if key.shape == value.shape and np.array_equal(key, value):
        return "values are the keys"
    return ""
