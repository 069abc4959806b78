"""The picture that carries the lab: right paths, tolerance and deliberate mistakes on one log axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.theme import COLOR, EXACT_ZERO, empty_figure, error_axis, figure, on_log_axis
from kvcore.measures import DIFFERENCES, Figure

if TYPE_CHECKING:
    from kvcore.experiment import Experiment

SYMBOLS = ("circle", "diamond", "square")
"""One for each seed; a deliberate mistake is crossed."""


def differences(experiment: Experiment) -> go.Figure:
    """Every difference of every seed: a row a path, right paths above, deliberate mistakes below, tolerance between."""
    if not experiment.runs:
        return empty_figure("No seed was run.")
    right = [measure for measure in DIFFERENCES if measure.kind != "control"]
    wrong = [measure for measure in DIFFERENCES if measure.kind == "control"]
    traces = []
    for group, name, color, suffix in [(right, "right", "reference", ""), (wrong, "deliberate mistake", "fault", "-x")]:
        for run, symbol in zip(experiment.runs, SYMBOLS * len(experiment.runs), strict=False):
            values = np.array([run.figures[measure.key] for measure in group], dtype=float)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{name}, seed {run.seed}",
                    "x": on_log_axis(values),
                    "y": [row_name(measure) for measure in group],
                    "customdata": values,
                    "marker": {
                        "color": COLOR[color],
                        "symbol": f"{symbol}{suffix}-open",
                        "size": 12,
                        "line": {"width": 2, "color": COLOR[color]},
                    },
                    "hovertemplate": f"%{{y}}<br>seed {run.seed}: %{{customdata:.2e}}<extra></extra>",
                }
            )
    tolerance = experiment.protocol.tolerance
    line = {
        "type": "line", "x0": tolerance, "x1": tolerance, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": COLOR["tolerance"], "width": 2, "dash": "dash"},
    }  # fmt: skip
    note = {
        "x": np.log10(tolerance), "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False,
        "text": f"tolerance {tolerance:g}", "font": {"color": COLOR["tolerance"]},
    }  # fmt: skip
    rows = [row_name(measure) for measure in (*right, *wrong)]
    return figure(
        traces,
        480,
        xaxis=error_axis(title="largest difference over all positions")
        | {
            "tickvals": [EXACT_ZERO, 1e-12, 1e-8, 1e-4, 1],
            "ticktext": ["0", "1e-12", "1e-8", "1e-4", "1"],
            "tickangle": 0,
        },
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1], "automargin": True, "title": {"text": "path"}},
        shapes=[line],
        annotations=[note],
        margin={"l": 8, "r": 16, "t": 64, "b": 48},
        legend={"orientation": "h", "yanchor": "top", "y": -0.25, "x": 0, "entrywidth": 155},
    )


def row_name(measure: Figure) -> str:
    """The path on the axis, without its article: short enough for a phone."""
    return measure.label.removeprefix("the ").replace(" under the ", "<br>under the ")
