"""What colours, marks and axes mean, in one place for every figure.

Colours are Okabe and Ito's, told apart by colour-blind eyes and readable on light and dark. A
colour never stands alone: paths also differ by mark and dash, cells by mark or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

COLOR = {
    "query": "#0072B2",
    "key": "#009E73",
    "new": "#E69F00",
    "cached": "#56B4E9",
    "again": "#D55E00",
    "evicted": "#8C8C8C",
    "masked": "rgba(128,128,128,0.18)",
    "visible": "#0072B2",
    "reference": "#0072B2",
    "fault": "#D55E00",
    "flipped": "#CC79A7",
    "tolerance": "#CC79A7",
    "muted": "#8C8C8C",
}
SEQUENTIAL = "Viridis"
"""For probabilities, always on 0–1."""


@dataclass(frozen=True)
class Line:
    """How one path is drawn everywhere."""

    color: str
    symbol: str
    dash: str = "solid"


LINE = {
    "full": Line("#0072B2", "circle"),
    "windowed full": Line("#0072B2", "circle-open"),
    "prefix recomputation": Line("#009E73", "square"),
    "token cache": Line("#56B4E9", "diamond"),
    "chunk cache": Line("#8067B7", "triangle-up"),
    "preallocated cache": Line("#56B4E9", "diamond"),
    "sliding cache": Line("#6B8E23", "pentagon"),
    "wrong chunk mask": Line("#D55E00", "x", "dot"),
    "positions reset": Line("#E69F00", "cross", "dot"),
    "cropped recomputation": Line("#A6494F", "triangle-down", "dot"),
    "unmasked": Line("#CC79A7", "star", "dot"),
}
"""Right paths have filled marks and solid lines; deliberate mistakes have crossed marks and dotted lines."""

EXACT_ZERO = 1e-18
"""Where exactly 0 is drawn on a log axis: in a lane of its own, below everything that rounding can make."""


def figure(traces: Sequence[dict], height: int = 380, **layout) -> go.Figure:
    """A figure from plain trace dicts in the house layout; `layout` overrides or adds."""
    base = {
        "template": "none",
        "height": height,
        "margin": {"l": 60, "r": 16, "t": 36, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0, "entrywidth": 155},
        "dragmode": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": COLOR["muted"], "activecolor": COLOR["query"]},
    }
    return go.Figure({"data": list(traces), "layout": base | layout})


def empty_figure(sentence: str, height: int = 200) -> go.Figure:
    """A laid-out figure that says why there is nothing to draw."""
    note = {"text": sentence, "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
    hidden = {"visible": False}
    return figure([], height, annotations=[note], xaxis=hidden, yaxis=hidden)


def position_axis(n_positions: int, title: str = "absolute position") -> dict:
    """An axis of whole positions: every one is named where there are few."""
    return {"title": {"text": title}, "zeroline": False} | ({"dtick": 1} if n_positions <= 12 else {})


def on_log_axis(difference: np.ndarray) -> np.ndarray:
    """Differences as they are drawn: exact zeros in their own lane, infinities at the top."""
    difference = np.asarray(difference, dtype=np.float64)
    return np.clip(np.where(difference == 0, EXACT_ZERO, difference), EXACT_ZERO, 1e3)


def error_axis(largest: float = 1.0, title: str = "largest difference") -> dict:
    """A log axis from the lane of exact zeros to just above `largest`."""
    top = max(1, int(np.ceil(np.log10(max(largest, 1e-18)))) + 1)
    powers = range(-16, top, 4)
    return {
        "title": {"text": title},
        "type": "log",
        "range": [np.log10(EXACT_ZERO) - 1, top],
        "tickvals": [EXACT_ZERO, *(10.0**power for power in powers)],
        "ticktext": ["exactly 0", *(f"1e{power}" if power else "1" for power in powers)],
        "zeroline": False,
    }


def tolerance_line(tolerance: float) -> tuple[dict, dict]:
    """A shape and its annotation: beyond this, two paths are not equal."""
    shape = {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": tolerance, "y1": tolerance,
        "line": {"color": COLOR["tolerance"], "width": 2, "dash": "dash"},
    }  # fmt: skip
    note = {
        "xref": "paper", "x": 1, "xanchor": "right", "y": np.log10(tolerance), "yanchor": "bottom",
        "text": f"tolerance {tolerance:g}", "showarrow": False, "font": {"color": COLOR["tolerance"]},
    }  # fmt: skip
    return shape, note


def error_line(name: str, position: np.ndarray, difference: np.ndarray, style: Line | None = None) -> dict:
    """One path's difference at every position, in its own colour, mark and dash."""
    style = style or LINE[name]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": position,
        "y": on_log_axis(difference),
        "customdata": difference,
        "line": {"color": style.color, "dash": style.dash, "width": 2},
        "marker": {"color": style.color, "symbol": style.symbol, "size": 8},
        "hovertemplate": f"{name}<br>position %{{x}}<br>difference %{{customdata:.2e}}<extra></extra>",
    }
