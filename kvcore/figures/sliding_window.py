"""The sliding window drawn: differences by position, the cone of reach over the slots, reach, and the crop sweep."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.theme import (
    COLOR,
    LINE,
    empty_figure,
    error_axis,
    error_line,
    figure,
    on_log_axis,
    position_axis,
    tolerance_line,
)
from kvcore.studies.sliding_result import Result

PHONE = 280
"""Pixels that the cone's cells share on a narrow screen."""

NEW, KEPT, EVICTED, OUTSIDE = "this step's own", "in a kept slot", "slot evicted", "does not reach it"
MARK = {
    NEW: ("star", COLOR["new"]),
    KEPT: ("circle", COLOR["cached"]),
    EVICTED: ("x", COLOR["evicted"]),
    OUTSIDE: ("circle-open", COLOR["muted"]),
}
"""Symbol and colour of a hidden state in the cone; what lies outside is hollow."""


def differences(result: Result) -> go.Figure:
    """Difference from the windowed full path at every position, one line a way; the step is marked."""
    if result.sliding.size == 0:
        return empty_figure("No position was run.")
    lines = [
        error_line("sliding cache", np.arange(result.config.length), result.sliding),
        error_line("positions reset", np.arange(result.config.length), result.reset),
        error_line(result.crop_name, np.arange(result.config.length), result.cropped, LINE["cropped recomputation"]),
    ]
    tolerance, note = tolerance_line(result.tolerance)
    step = _upright(result.config.step, f"p = {result.config.step}", COLOR["new"], 0, result.config.length - 1)
    largest = max(result.sliding.max(), result.reset.max(), result.cropped.max())
    return _framed(
        lines,
        400,
        xaxis=position_axis(result.config.length),
        yaxis=error_axis(largest, "difference from windowed full"),
        shapes=[tolerance, step[0]],
        annotations=[note, step[1]],
    )


def cone(result: Result) -> go.Figure:
    """Positions to the right, layers upwards: what reaches the step's output, and which of it a slot still holds.

    Row l holds the keys and values' sources of layer l + 1, so the box of kept slots spans all rows but
    the last. Left of the dashed line is what recomputing the chosen number of raw tokens leaves out.
    """
    config, feeds = result.config, result.feeds
    if not feeds.any():
        return empty_figure("No step was run.")
    first_slot, first_crop = config.step - config.window + 1, max(0, config.step + 1 - config.recomputed)
    first_fed = int(np.flatnonzero(feeds.any(axis=0))[0])
    first = max(0, min(first_fed, first_crop, first_slot) - 1)
    last = min(config.length - 1, config.step + 1)
    shown = np.arange(first, last + 1)

    row, column = np.nonzero(np.ones_like(feeds[:, shown]))
    position, fed = shown[column], feeds[row, shown[column]]
    kinds = {
        OUTSIDE: ~fed,
        EVICTED: fed & (position < first_slot),
        KEPT: fed & (position >= first_slot) & (position < config.step),
        NEW: fed & (position == config.step),
    }
    size = float(np.clip(0.7 * PHONE / len(shown), 4, 18))
    names = ["raw tokens", *(f"layer {layer}" for layer in range(1, len(feeds)))]
    traces = [
        _hidden_states(kind, position[cells], row[cells], names, size) for kind, cells in kinds.items() if cells.any()
    ]
    slots = {
        "type": "rect", "x0": max(0, first_slot) - 0.5, "x1": config.step + 0.5, "y0": -0.45, "y1": len(feeds) - 1.55,
        "line": {"color": COLOR["cached"], "width": 3}, "layer": "below",
    }  # fmt: skip
    slots_note = {
        "x": config.step + 0.5, "xanchor": _anchor(config.step, first, last), "y": -0.45, "yanchor": "top",
        "text": "kept slots", "font": {"color": COLOR["cached"]}, "showarrow": False,
    }  # fmt: skip
    crop = _upright(
        first_crop - 0.5, f"recomputed: from {first_crop} on", LINE["cropped recomputation"].color, first, last
    )
    return _framed(
        traces,
        200 + 46 * len(feeds),
        left=84,
        xaxis=position_axis(len(shown)) | {"range": [first - 0.7, last + 0.7], "showgrid": False},
        yaxis={
            "title": {"text": "hidden states of"},
            "tickvals": list(range(len(feeds))),
            "ticktext": names,
            "range": [-1, len(feeds) - 0.4],
            "zeroline": False,
            "showgrid": False,
        },
        shapes=[slots, crop[0]],
        annotations=[slots_note, crop[1]],
    )


def movement(result: Result) -> go.Figure:
    """How far editing each raw token moves the step's output, through the cache and through the recomputation."""
    config = result.config
    token = np.arange(len(result.moved_by_cache))
    if token.size == 0:
        return empty_figure("No token was edited.")
    lines = [
        error_line("sliding cache", token, result.moved_by_cache),
        error_line(result.crop_name, token, result.moved_by_crop, LINE["cropped recomputation"]),
    ]
    for line in lines:
        line["hovertemplate"] = (
            line["hovertemplate"].replace("position", "edited token").replace("difference", "moves by")
        )
    law = _upright(
        max(0, config.earliest) - 0.5,
        f"p − L(W − 1) = {config.earliest}".replace("-", "−"),
        COLOR["muted"],
        0,
        config.step,
    )
    return _framed(
        lines,
        360,
        showlegend=True,
        xaxis=position_axis(len(token), "edited raw token"),
        yaxis=error_axis(result.moved_by_cache.max(), f"movement of output {config.step}"),
        shapes=[law[0]],
        annotations=[law[1]],
    )


def crops(result: Result) -> go.Figure:
    """Difference against the number of raw tokens recomputed: the largest over all positions, and at the step."""
    config = result.config
    if len(result.sweep) == 0:
        return empty_figure("No crop was run.")
    largest = result.sweep.max(axis=1)
    style = LINE["cropped recomputation"]
    lines = [
        error_line("largest over all positions", result.crops, largest, style),
        error_line(f"at position {config.step}", result.crops, result.sweep[:, config.step], LINE["windowed full"]),
        {
            "type": "scatter", "mode": "markers", "name": f"chosen: {config.recomputed}", "x": [config.recomputed],
            "y": on_log_axis(largest[config.recomputed - 1 : config.recomputed]), "hoverinfo": "skip",
            "marker": {"symbol": "circle-open", "size": 18, "color": COLOR["new"], "line": {"width": 3}},
        },
    ]  # fmt: skip
    for line in lines[:2]:
        line["hovertemplate"] = line["hovertemplate"].replace("position %", "raw tokens %")
    tolerance, note = tolerance_line(result.tolerance)
    law = "all tokens" if result.needed > config.length else "L(W − 1) + 1"
    enough = _upright(config.enough, f"{law} = {config.enough}", COLOR["muted"], 1, len(result.crops))
    return _framed(
        lines,
        360,
        xaxis=position_axis(len(result.crops), "raw tokens recomputed (C)"),
        yaxis=error_axis(largest.max(), "difference from windowed full"),
        shapes=[tolerance, enough[0]],
        annotations=[note, enough[1]],
    )


def _hidden_states(kind: str, position: np.ndarray, row: np.ndarray, names: list[str], size: float) -> dict:
    symbol, color = MARK[kind]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": kind,
        "x": position,
        "y": row,
        "customdata": [names[r] for r in row.tolist()],
        "marker": {"symbol": symbol, "color": color, "size": size},
        "showlegend": kind != OUTSIDE,
        "hovertemplate": f"%{{customdata}}, position %{{x}}<br>{kind}<extra></extra>",
    }


def _upright(x: float, text: str, color: str, low: float, high: float) -> tuple[dict, dict]:
    """A dashed upright line and its name above the plot, on an axis from low to high."""
    line = {
        "type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": color, "width": 2, "dash": "dash"}, "layer": "below",
    }  # fmt: skip
    note = {
        "x": x, "xanchor": _anchor(x, low, high), "yref": "paper", "y": 1, "yanchor": "bottom", "text": text,
        "showarrow": False, "font": {"color": color},
    }  # fmt: skip
    return line, note


def _anchor(x: float, low: float, high: float) -> str:
    """Which side of a text stands at x, so that it stays within the axis."""
    return ("left", "center", "right")[int(np.clip(3 * (x - low) / max(1, high - low), 0, 2))]


def _framed(traces: list[dict], height: int, left: int = 60, **layout) -> go.Figure:
    """Room above for names below the chart's own bar, and below for a legend of three lines on a phone."""
    legend = {"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0.01, "x": 0, "entrywidth": 155}
    return figure(traces, height, margin={"l": left, "r": 16, "t": 58, "b": 108}, legend=legend, **layout)
