"""A report drawn: the largest difference at every position of every split, right ones as marks, wrong ones as cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.frame import framed
from kvcore.figures.theme import COLOR, empty_figure, position_axis

if TYPE_CHECKING:
    from kvcore.verification.report import Report

ZERO, EQUAL, ROUNDING, FIRST, BEYOND = "exactly 0", "within tolerance", "rounding", "first bad position", "differs"
SCALE = [[0.0, "#F6CFAE"], [0.5, "#D55E00"], [1.0, "#8B2E00"]]
"""Differences that are no rounding, on a log scale; the fault's colour in the middle."""

MARK = {
    ZERO: {"symbol": "circle-open", "color": COLOR["muted"]},
    EQUAL: {"symbol": "circle", "color": COLOR["reference"]},
    ROUNDING: {"symbol": "diamond", "color": COLOR["flipped"]},
}
LONGEST_NAME = 20


def figure(report: Report) -> go.Figure:
    """Splits down, absolute positions right. Cells are filled where rows differ by more than rounding."""
    names = list(report.differences)
    if not names:
        return empty_figure("No split gave rows to compare.")
    difference = np.stack([report.differences[name] for name in names])
    tolerance = report.tolerance
    kinds = {
        ZERO: difference == 0,
        EQUAL: (difference > 0) & (difference <= tolerance.equal),
        ROUNDING: (difference > tolerance.equal) & (difference <= tolerance.rounding),
    }
    beyond = ~(difference <= tolerance.rounding)
    traces = [_cells(difference, beyond)] if beyond.any() else []
    traces += [_marks(kind, difference, where) for kind, where in kinds.items() if where.any()]
    traces += [_first(beyond)] if beyond.any() else []
    labels = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in names]
    return framed(
        traces,
        190 + 34 * len(names),
        left=128,
        showlegend=True,
        xaxis=position_axis(report.n_tokens) | {"range": [-0.5, report.n_tokens - 0.5], "showgrid": False},
        yaxis={
            "title": {"text": "split into calls", "standoff": 4},
            "tickvals": list(range(len(names))),
            "ticktext": labels,
            "range": [len(names) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        },
    )


def _cells(difference: np.ndarray, beyond: np.ndarray) -> dict:
    """Filled cells, coloured by the logarithm of the difference; what is not finite has the last colour."""
    finite = difference[beyond & np.isfinite(difference)]
    low, high = (np.floor(np.log10(finite.min())), np.ceil(np.log10(finite.max()))) if finite.size else (0.0, 1.0)
    high = max(high, low + 1)
    shown = np.full(difference.shape, np.nan)
    with np.errstate(divide="ignore"):
        shown[beyond] = np.clip(np.log10(difference[beyond]), low, high)
    step = max(1, int(high - low) // 4)
    powers = [int(power) for power in np.arange(low, high + 1, step)]
    return {
        "type": "heatmap",
        "z": shown,
        "zmin": low,
        "zmax": high,
        "customdata": difference,
        "colorscale": SCALE,
        "xgap": 1,
        "ygap": 3,
        "hovertemplate": f"{BEYOND}: %{{customdata:.2e}}<br>position %{{x}}<extra></extra>",
        "colorbar": {
            "title": {"text": BEYOND, "side": "right"},
            "orientation": "h",
            "thickness": 10,
            "len": 0.62,
            "x": 0,
            "xanchor": "left",
            "y": 1.0,
            "yanchor": "bottom",
            "ypad": 4,
            "tickvals": powers,
            "ticktext": [f"1e{power}" if power else "1" for power in powers],
        },
    }


def _size(n_positions: int) -> int:
    return 8 if n_positions <= 32 else 5 if n_positions <= 96 else 3


def _marks(kind: str, difference: np.ndarray, where: np.ndarray) -> dict:
    row, position = np.nonzero(where)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": kind,
        "x": position,
        "y": row,
        "customdata": difference[where],
        "marker": MARK[kind] | {"size": _size(difference.shape[1])},
        "hovertemplate": f"{kind}: %{{customdata:.2e}}<br>position %{{x}}<extra></extra>",
    }


def _first(beyond: np.ndarray) -> dict:
    """A cross on the first wrong position of every split that has one."""
    rows = np.flatnonzero(beyond.any(axis=1))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": FIRST,
        "x": beyond[rows].argmax(axis=1),
        "y": rows,
        "marker": {"symbol": "x", "size": 11, "color": "white", "line": {"color": "#222222", "width": 1.5}},
        "hovertemplate": f"{FIRST} %{{x}}<extra></extra>",
    }
