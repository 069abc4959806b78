"""How much one request on a shared server may compute: an estimate made before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvcore.config import DecoderConfig

WORK_BUDGET = 2_000_000_000
"""Weighted multiply-adds one request may take, chosen so that it stays well under 2 s on two slow cores."""

CALL_OVERHEAD = 500_000
"""What entering one layer once costs, in multiply-adds: tensor bookkeeping, whatever the size."""

SCORE_WEIGHT = 8
"""A score element's scaling, mask, exponential and division, in multiply-adds."""

DTYPE_WEIGHT = {"float64": 1.0, "float32": 0.6, "float16": 2.0, "bfloat16": 2.8}
"""Measured on a CPU, where the 16-bit formats are slower than float64."""


def estimate(
    config: DecoderConfig,
    spans: Iterable[tuple[int, int]],
    *,
    with_cache: bool,
    batch: int = 1,
    kept: int | None = None,
) -> int:
    """Weighted multiply-adds of running tokens start..stop − 1 for each span; `kept` entries at most stay cached."""
    width = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim
    arithmetic, n_calls = 0, 0
    for start, stop in spans:
        n_new = stop - start
        n_old = 0 if not with_cache else start if kept is None else min(start, kept)
        scores = config.n_heads * n_new * (n_old + n_new)
        arithmetic += n_new * config.d_model * width + scores * (2 * config.head_dim + SCORE_WEIGHT)
        n_calls += 1
    return int(config.n_layers * (n_calls * CALL_OVERHEAD + batch * arithmetic * DTYPE_WEIGHT[config.dtype]))


def over_budget(names: Sequence[str], budget: int = WORK_BUDGET) -> str:
    """The sentence that says what was not run, and why."""
    return f"Not run, since one request may take {budget / 1e6:,.0f} million multiply-adds: {', '.join(names)}."
