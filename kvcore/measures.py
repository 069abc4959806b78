"""The 15 figures of one seed: how each follows from stored arrays or a closed form, and what it should be.

Nothing here runs the decoder, so that `audit` judges by the same rules as `run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kvcore import work
from kvcore.compare import difference_by_position
from kvcore.config import ITEMSIZE
from kvcore.protocol import Protocol

Number = int | float


class Figure(NamedTuple):
    """One figure. Differences are the largest of |rows − reference|, two arrays named as in `arrays.npz`.

    Kinds: `exact` must be 0; `rounding` belongs to a right path and must stay within the tolerance;
    `control` belongs to a deliberate mistake and must exceed it; `count` must equal its closed form.
    """

    key: str
    kind: str
    label: str
    rows: str = ""
    reference: str = ""


FIGURES = (
    Figure("causal_future_error", "exact", "future edit under the causal mask", "masked", "full"),
    Figure("unmasked_future_change", "control", "the unmasked path", "perturbed_unmasked", "unmasked"),
    Figure("prefix_error", "rounding", "prefix recomputation", "prefix", "full"),
    Figure("cache_error", "rounding", "the token cache", "cached", "full"),
    Figure("chunk_error", "rounding", "the chunk cache", "chunked", "full"),
    Figure("wrong_chunk_mask_error", "control", "the wrong chunk mask", "wrong", "good"),
    Figure("sliding_error", "rounding", "the sliding cache", "sliding_cached", "sliding"),
    Figure("reset_position_error", "control", "the reset position", "reset", "sliding"),
    Figure("cropped_recompute_error", "control", "cropped recomputation", "cropped", "sliding"),
    Figure("prefix_projected_rows", "count", "projected rows of prefix recomputation"),
    Figure("cached_projected_rows", "count", "projected rows of the token cache"),
    Figure("prefix_score_elements", "count", "score elements of prefix recomputation"),
    Figure("cached_score_elements", "count", "score elements of the token cache"),
    Figure("full_kv_bytes", "count", "K/V payload of the token cache"),
    Figure("window_kv_bytes", "count", "K/V payload of the sliding cache"),
)
DIFFERENCES = tuple(figure for figure in FIGURES if figure.rows)
COUNTS = tuple(figure for figure in FIGURES if figure.kind == "count")
KEYS = ("seed", *(figure.key for figure in FIGURES))
"""The keys of one seed's results, in order."""

OK = "ok"
CAUGHT = "control caught"
EXPECTED_EQUAL = "expected equal"
MISSED = "control missed"
BEYOND = "beyond tolerance"
NOT_ZERO = "not exactly 0"
MISCOUNTED = "differs from its formula"
FAILURES = (BEYOND, NOT_ZERO, MISCOUNTED)
"""What must not happen in a right engine. A missed control depends on the tolerance, so it is said and no failure."""


def array_shapes(protocol: Protocol) -> dict[str, tuple[int, ...]]:
    """Names (without the seed) and shapes of one seed's arrays; `tokens` and `cache_bytes` are int64, else float64."""
    length, d_model = protocol.length, protocol.d_model
    second = protocol.chunk_sizes[1]
    names = ("full", "masked", "unmasked", "perturbed_unmasked", "prefix", "cached", "chunked")
    names_windowed = ("sliding", "sliding_cached", "reset", "cropped")
    return {
        "tokens": (length,),
        **dict.fromkeys(names, (length, d_model)),
        **dict.fromkeys(("wrong", "good"), (second, d_model)),
        **dict.fromkeys(names_windowed, (length, d_model)),
        "attention": (length, length),
        "cache_bytes": (length, 2),
    }


def differences(protocol: Protocol, arrays: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Every figure that is a difference, from one seed's arrays; the future edit is looked at before it begins."""
    before = {"masked": protocol.first_edited, "perturbed_unmasked": protocol.first_edited}
    found = {}
    for figure in DIFFERENCES:
        rows = slice(0, before.get(figure.rows))
        gap = difference_by_position(arrays[figure.rows][rows], arrays[figure.reference][rows])
        found[figure.key] = float(gap.max())
    return found


def closed_form(protocol: Protocol) -> dict[str, int]:
    """Every figure that is a count, by its formula; the same for each seed."""
    prefix = work.prefix_recomputation(protocol.n_layers, protocol.length)
    cached = work.token_cache(protocol.n_layers, protocol.length)
    return {
        "prefix_projected_rows": prefix.projected_rows,
        "cached_projected_rows": cached.projected_rows,
        "prefix_score_elements": prefix.score_elements,
        "cached_score_elements": cached.score_elements,
        "full_kv_bytes": payload_bytes(protocol, protocol.length),
        "window_kv_bytes": payload_bytes(protocol, min(protocol.length, protocol.window)),
    }


def payload_bytes(protocol: Protocol, kept: int) -> int:
    """Bytes of `kept` entries in every layer; the experiment has one head."""
    return work.payload_bytes(protocol.n_layers, kept, 1, protocol.d_model, ITEMSIZE[protocol.dtype])


def verdict(figure: Figure, value: Number, protocol: Protocol) -> str:
    """What one figure says about the engine, in a word or two."""
    if figure.kind == "exact":
        return OK if value == 0 else NOT_ZERO
    if figure.kind == "count":
        return OK if value == closed_form(protocol)[figure.key] else MISCOUNTED
    within = value <= protocol.tolerance
    if figure.kind == "rounding":
        return OK if within else BEYOND
    if expected_equal(figure, protocol):
        return EXPECTED_EQUAL if within else BEYOND
    return MISSED if within else CAUGHT


def expected_equal(figure: Figure, protocol: Protocol) -> bool:
    """Whether a control is no mistake in this setting."""
    return figure.key == "cropped_recompute_error" and protocol.crop_is_exact


def agrees(figure: Figure, computed: Number, recorded: Number) -> bool:
    """Counts and the causal edit exactly, controls to 1e-9, right paths within 1e-12 of the recorded figure."""
    allowed = {"exact": 0, "count": 0, "control": 1e-9, "rounding": 1e-12}[figure.kind]
    return abs(computed - recorded) <= allowed
