"""A figure with room for names above it and a legend below it, and upright lines that carry such names."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures import theme


def upright(x: float, text: str, color: str, low: float, high: float) -> tuple[dict, dict]:
    """A dashed upright line and its name above the plot, on an axis from low to high."""
    line = {
        "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": color, "width": 2, "dash": "dash"}, "layer": "below",
    }  # fmt: skip
    note = {
        "x": x, "xanchor": anchor(x, low, high), "yref": "paper", "y": 1, "yanchor": "bottom", "text": text,
        "showarrow": False, "font": {"color": color},
    }  # fmt: skip
    return line, note


def anchor(x: float, low: float, high: float) -> str:
    """Which side of a text stands at x, so that it stays within the axis."""
    return ("left", "center", "right")[int(np.clip(3 * (x - low) / max(1, high - low), 0, 2))]


def framed(traces: list[dict], height: int, left: int = 60, **layout) -> go.Figure:
    """Room above for names below the chart's own bar, and below for a legend of three lines on a phone."""
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0.01, "x": 0, "entrywidth": 155}
    return theme.figure(traces, height, margin={"l": left, "r": 16, "t": 58, "b": 108}, legend=legend, **layout)
