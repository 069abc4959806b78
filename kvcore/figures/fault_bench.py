"""The fault bench drawn: the difference at every position, and what else differs between the two steps of a call."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.fault_grids import NOTHING
from kvcore.figures.frame import framed, upright
from kvcore.figures.theme import (
    COLOR,
    LINE,
    Line,
    empty_figure,
    error_axis,
    error_line,
    position_axis,
    tolerance_line,
)
from kvcore.studies.fault_compare import DISTANCE, ENTERED, HEADS
from kvcore.studies.fault_result import Result

EARLIER = [LINE["positions reset"], LINE["unmasked"], LINE["cropped recomputation"]]
"""The wrong step after the layers before the last."""


def differences(result: Result) -> go.Figure:
    """Difference from the full path at every position: the right step, and the wrong one after each layer."""
    if result.pair is None:
        return empty_figure(NOTHING)
    length, n_layers = result.config.length, result.config.n_layers
    position = np.arange(length)
    styles = [*EARLIER[: n_layers - 1], LINE["wrong chunk mask"]]
    lines = [error_line("right step", position, result.right.difference[-1], LINE["token cache"])]
    lines += [
        error_line(f"wrong, layer {layer}", position, difference, style)
        for layer, (difference, style) in enumerate(zip(result.wrong.difference, styles, strict=True), start=1)
    ]
    shape, note = tolerance_line(result.tolerance)
    shapes, notes = [shape, *(_border(start) for start in result.starts)], [note]
    first = result.compared(result.wrong).first_beyond
    if first is not None:
        line, name = upright(first, f"first bad: {first}", COLOR["fault"], 0, length - 1)
        shapes, notes = [*shapes, line], [*notes, name]
    finite = result.wrong.difference[np.isfinite(result.wrong.difference)]
    return framed(
        lines,
        400,
        xaxis=position_axis(length),
        yaxis=error_axis(finite.max() if finite.size else 1.0, "difference from the full path"),
        shapes=shapes,
        annotations=notes,
    )


def _border(start: int) -> dict:
    """A thin dotted line where a call begins."""
    return {
        "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": start - 0.5, "x1": start - 0.5, "layer": "below",
        "line": {"color": COLOR["muted"], "width": 1, "dash": "dot"},
    }  # fmt: skip


def contents(result: Result) -> go.Figure:
    """How far the keys and values that are read differ between the two steps, by the entry's position."""
    if result.pair is None:
        return empty_figure(NOTHING)
    pair, position = result.pair, np.arange(len(result.pair.needed))
    lines = [
        error_line("keys", position, pair.key_gap, Line(COLOR["key"], "circle-open", "dot")),
        error_line("values", position, pair.value_gap, Line(COLOR["fault"], "cross", "dot")),
    ]
    lines[0]["marker"] |= {"size": 14, "line": {"width": 2}}
    shape, note = tolerance_line(pair.tolerance)
    gaps = np.concatenate([pair.key_gap, pair.value_gap])
    finite = gaps[np.isfinite(gaps)]
    return framed(
        lines,
        340,
        xaxis=position_axis(len(position), "entry, absolute position"),
        yaxis=error_axis(finite.max() if finite.size else 1.0, "right step − wrong step"),
        shapes=[shape],
        annotations=[note],
    )


def marks(result: Result, aspect: str) -> go.Figure:
    """One number a token, head or key, right and wrong: where tokens enter, which KV head is read, the distance."""
    if result.pair is None:
        return empty_figure(NOTHING)
    pair = result.pair
    heads, keys = np.arange(len(pair.right.heads)), np.arange(len(pair.needed))
    last = f"distance of query {pair.place[-1]}"
    x, right, wrong, across, down = {
        ENTERED: (pair.place, pair.right_entered, pair.wrong_entered, "token, place in the sequence", "enters at"),
        HEADS: (heads, pair.right.heads, pair.wrong.heads, "query head", "reads KV head"),
        DISTANCE: (keys, pair.right_distance[-1], pair.wrong_distance[-1], "key, absolute position", last),
    }[aspect]
    traces = [
        {
            "type": "scatter", "mode": "markers", "name": name, "x": x, "y": y,
            "marker": {"symbol": symbol, "size": size, "color": color, "line": {"width": outline, "color": color}},
            "hovertemplate": f"{across} %{{x}}<br>{down} %{{y}}<extra>{name}</extra>",
        }
        for name, y, symbol, size, outline, color in (
            ("right step", right, "circle-open", 14, 2, COLOR["reference"]),
            ("wrong step", wrong, "x", 8, 0, COLOR["fault"]),
        )
    ]  # fmt: skip
    whole = {"zeroline": False}
    few = max(np.nanmax(right), np.nanmax(wrong)) - min(np.nanmin(right), np.nanmin(wrong)) <= 12
    return framed(
        traces,
        320,
        xaxis={"title": {"text": across}, **whole} | ({"dtick": 1} if len(x) <= 12 else {}),
        yaxis={"title": {"text": down}, **whole} | ({"dtick": 1} if few else {}),
    )
