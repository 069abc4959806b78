"""Which published architectures, caches and attentions of the installed transformers keep the cache's promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcore.integrations.published import ARCHITECTURES
from kvcore.integrations.small import ATTENTION, small_model
from kvcore.integrations.transformers import CACHES, Wrapped, sentence, wrap
from kvcore.verification.plan import ONES

if TYPE_CHECKING:
    import pandas as pd

TOKEN_IDS = (5, 17, 3, 40, 22, 9, 61, 30, 12, 55, 7, 33, 26, 48, 14, 2)
EQUAL, ROUNDING = 1e-5, 1e-3
"""Of the largest output, in float32; the smallest real disagreement found with transformers 5.24 is 5e-2."""

_ZERO_STATE = (
    "a call of several tokens on a filled cache starts its scan from a zero state (mamba_selective_scan takes none); "
    "one token a call is right"
)
DISAGREEMENTS = {
    ("mamba", "any"): _ZERO_STATE,
    ("falcon_mamba", "any"): _ZERO_STATE,
    ("jamba", "any"): _ZERO_STATE,
    ("zamba", "any"): _ZERO_STATE,
    ("minimax", "model"): (
        "the mask of a call of several tokens is sized by the cache's layer 0, which is linear and never filled, as if "
        "nothing were cached: sdpa is wrong and eager fails; one token a call is right"
    ),
    ("recurrent_gemma", "any"): (
        "the recurrent blocks keep their state in the model and not in the cache: a call of several tokens drops the "
        "convolution's past, and a first call of one token reads the run before"
    ),
    ("gpt_neo", "static"): (
        "local layers take their window's rows from the end of the preallocated length (key_length − query_length); a "
        "static cache is taken though the class is marked as one that needs a hybrid cache"
    ),
}
"""What is wrong in transformers 5.24 where a verdict is a fault, by model type and cache, read from its source."""


class Outcome(NamedTuple):
    """What a check found: a verdict, the largest difference by the outputs' scale, and where it shows."""

    verdict: str
    difference: float
    first_bad_position: int | None
    split: str


def compare_splits(wrapped: Wrapped, token_ids: Sequence[int] = TOKEN_IDS) -> Outcome:
    """The worst split of the ids into calls, each from an empty cache, beside the full path at every position."""
    full = _array(wrapped.full(token_ids))
    scale = np.abs(full).max()
    worst = Outcome("equal", 0.0, None, "")
    for split in _splits(len(token_ids)):
        error = np.abs(_stepped(wrapped, token_ids, split) - full).max(axis=1) / scale
        error = np.where(np.isfinite(error), error, np.inf)
        if error.max() > worst.difference:
            bad = np.flatnonzero(error > ROUNDING)
            position = int(bad[0]) if bad.size else None
            worst = Outcome(_verdict(error.max()), float(error.max()), position, "+".join(map(str, split)))
    return worst


def verified(wrapped: Wrapped, token_ids: Sequence[int] = TOKEN_IDS) -> Outcome:
    """What `kvcore.verify` says of it; the split is the name of the first check that fails."""
    from kvcore.verification.verify import verify

    report = verify(wrapped.full, wrapped.step, token_ids, **wrapped.hooks())
    told = [check for check in report.checks if check.largest is not None and check.verdict != "note"]
    largest = max(check.largest for check in told) / report.tolerance.scale
    failed = next((check for check in report.checks if check.faulty), None)
    if failed is not None and (failed.name, failed.verdict) == (ONES, "failed"):
        return Outcome(f"not supported: {failed.note}", np.nan, None, "")  # not even single tokens run
    if failed is not None:
        return Outcome("fault", largest, failed.first_bad, failed.name)
    rounding = any(check.verdict == "rounding" for check in told)
    return Outcome("rounding" if rounding else "equal", largest, None, "")


def verdict_table(
    names: Iterable[str] = tuple(ARCHITECTURES),
    caches: Sequence[str] = CACHES,
    attentions: Sequence[str] = ATTENTION,
    seed: int = 0,
    check: Callable[[Wrapped, Sequence[int]], Outcome] = verified,
) -> pd.DataFrame:
    """One row an architecture, cache and attention, with the versions it was made with.

    The verdict is `equal`, `rounding`, `fault`, or `not supported: ` and why. Raises ValueError for an unknown name.
    """
    import pandas as pd

    names = list(names)
    if unknown := [name for name in names if name not in ARCHITECTURES]:
        raise ValueError(f"architecture {unknown[0]!r} is unknown; choose from {', '.join(ARCHITECTURES)}")
    rows = [
        {"architecture": name, "model_type": _text_type(name), "cache": cache, "attention": attention}
        | _row(name, cache, attention, seed, check)
        for name in names
        for cache in caches
        for attention in attentions
    ]
    versions = {package: version(package) for package in ("transformers", "torch")}
    return pd.DataFrame([row | versions for row in rows])


def _row(name: str, cache: str, attention: str, seed: int, check: Callable) -> dict:
    note = ""
    try:
        wrapped = wrap(small_model(ARCHITECTURES[name], attention, seed), cache)
    except ValueError as error:
        return Outcome(f"not supported: {error}", np.nan, None, "")._asdict() | {"note": note}
    try:
        outcome = check(wrapped, TOKEN_IDS)
    except Exception as error:  # whatever the library raises is its answer
        outcome = Outcome(f"not supported: a call fails: {sentence(error)}", np.nan, None, "")
    if outcome.verdict not in ("equal", "rounding"):
        note = _note(name, cache)
    return outcome._asdict() | {"note": note}


def _note(name: str, cache: str) -> str:
    model_type = ARCHITECTURES[name]["model_type"]
    return DISAGREEMENTS.get((model_type, cache)) or DISAGREEMENTS.get((model_type, "any"), "")


def _text_type(name: str) -> str:
    """The model type of the language model in it."""
    return ARCHITECTURES[name].get("text_config", ARCHITECTURES[name])["model_type"]


def _verdict(difference: float) -> str:
    return "equal" if difference <= EQUAL else "rounding" if difference <= ROUNDING else "fault"


def _splits(n_tokens: int) -> list[list[int]]:
    """One call, ones, a prompt and ones, equal chunks, unequal chunks, and one before many."""
    quarter, half = n_tokens // 4, n_tokens // 2
    prompt = 6 * n_tokens // 16
    return [
        [n_tokens],
        [1] * n_tokens,
        [prompt] + [1] * (n_tokens - prompt),
        [quarter] * 3 + [n_tokens - 3 * quarter],
        [half - 3, 3, 1, n_tokens - half - 1],
        [1, n_tokens - 1],
    ]


def _stepped(wrapped: Wrapped, token_ids: Sequence[int], split: Sequence[int]) -> np.ndarray:
    cache, rows, start = None, [], 0
    for size in split:
        outputs, cache = wrapped.step(token_ids[start : start + size], cache)
        rows.append(_array(outputs))
        start += size
    return np.concatenate(rows)


def _array(outputs) -> np.ndarray:
    return outputs.double().numpy()
