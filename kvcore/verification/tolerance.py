"""How far two evaluations of one model may lie apart: from the number format, the outputs' scale, or the caller."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from kvcore.config import TOLERANCE

INNER_ROUNDING = {"float64": 5e-5, "float32": 1e-4}
"""Part of the output scale up to which outputs may differ because something inside is narrower, or summed otherwise."""

FLOOR_FACTOR = 16
"""Cached decoding may differ by so many times what full forwards of different lengths differ among themselves."""

MOST_FLOOR = {"float64": 1e-4, "float16": 5e-2, "bfloat16": 1e-1}
"""Part of the output scale; full forwards that differ by more are not explained by rounding."""

MOST_FLOOR_OTHERWISE = 2e-2

INFLUENCE_PART = 0.02
"""Part of what an edited token moves: a difference above it is no rounding, however small the outputs."""


@dataclass(frozen=True)
class Tolerance:
    """`equal` and `rounding` bound the largest absolute difference; `source` says where they come from.

    Up to `equal` two rows are the same; up to `rounding` they differ by the arithmetic alone; beyond
    it something is wrong.
    """

    equal: float
    rounding: float
    scale: float
    dtype: str
    source: str

    def verdict(self, largest: float) -> str:
        if largest <= self.equal:
            return "equal"
        return "rounding" if largest <= self.rounding else "differs"


def effective_dtype(rows: np.ndarray, dtype: str) -> str:
    """The narrowest format in which all these values are exact: a bfloat16 model may return float32."""
    if dtype not in ("float64", "float32") or not rows.any():
        return dtype
    finite = rows[np.isfinite(rows)]
    with np.errstate(over="ignore"):
        single = finite.astype(np.float32)
    if dtype == "float64" and not (single.astype(np.float64) == finite).all():
        return dtype
    if not (single.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        half = single.astype(np.float16)
    return "float16" if (half.astype(np.float32) == single).all() else "float32"


def from_format(
    rows: np.ndarray,
    dtype: str,
    floor: float,
    influence: float,
    rtol: float | None = None,
    atol: float | None = None,
) -> Tolerance:
    """The tolerance for outputs like `rows` (T, features) of this dtype.

    `floor` is how far full forwards of different lengths differ at the same positions, `influence` how
    far an edited token moves later rows. With rtol or atol, equal means atol + rtol · scale, and nothing
    beyond that is taken for rounding.
    """
    finite = np.abs(rows[np.isfinite(rows)])
    scale = float(finite.max()) if finite.size else 1.0
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not (isinstance(value, Real) and 0 <= value < np.inf):
            raise ValueError(f"{name} is {value!r}; it must be a number, 0 or more")
    if rtol is not None or atol is not None:
        equal = float(atol or 0) + float(rtol or 0) * scale
        return Tolerance(equal, equal, scale, dtype, f"given: atol {atol or 0:g} + rtol {rtol or 0:g} × {scale:.3g}")
    exact = effective_dtype(rows, dtype)
    part = TOLERANCE.get(exact, TOLERANCE["float64"])
    equal = part * scale
    source = f"{exact}: {part:g} × {scale:.3g}, the largest output"
    rounding = equal
    most_floor = MOST_FLOOR.get(exact, MOST_FLOOR_OTHERWISE) * scale
    if floor <= most_floor:
        rounding = max(rounding, min(FLOOR_FACTOR * floor, most_floor))
    if exact in INNER_ROUNDING:
        inner = INNER_ROUNDING[exact] * scale
        if influence > 0:
            inner = min(inner, INFLUENCE_PART * influence)
        rounding = max(rounding, inner)
    return Tolerance(equal, rounding, scale, exact, source)
