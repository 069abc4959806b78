"""The sliding window drawn: differences by position, what moves an output, and the crop sweep."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.frame import framed, upright
from kvcore.figures.theme import (
    COLOR,
    LINE,
    empty_figure,
    error_axis,
    error_line,
    on_log_axis,
    position_axis,
    tolerance_line,
)
from kvcore.studies.sliding_result import Result


def differences(result: Result) -> go.Figure:
    """Difference from the windowed full path at every position, one line a way; the step is marked."""
    if result.sliding.size == 0:
        return empty_figure("No position was run.")
    position = np.arange(result.config.length)
    lines = [
        error_line("sliding cache", position, result.sliding),
        error_line("positions reset", position, result.reset),
        error_line(result.crop_name, position, result.cropped, LINE["cropped recomputation"]),
    ]
    tolerance, note = tolerance_line(result.tolerance)
    step = upright(result.config.step, f"p = {result.config.step}", COLOR["new"], 0, result.config.length - 1)
    largest = max(result.sliding.max(), result.reset.max(), result.cropped.max())
    return framed(
        lines,
        400,
        xaxis=position_axis(result.config.length),
        yaxis=error_axis(largest, "difference from windowed full"),
        shapes=[tolerance, step[0]],
        annotations=[note, step[1]],
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
    law = upright(
        max(0, config.earliest) - 0.5,
        f"p − L(W − 1) = {config.earliest}".replace("-", "−"),
        COLOR["muted"],
        0,
        config.step,
    )
    return framed(
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
    enough = upright(config.enough, f"{law} = {config.enough}", COLOR["muted"], 1, len(result.crops))
    return framed(
        lines,
        360,
        xaxis=position_axis(len(result.crops), "raw tokens recomputed (C)"),
        yaxis=error_axis(largest.max(), "difference from windowed full"),
        shapes=[tolerance, enough[0]],
        annotations=[note, enough[1]],
    )
