"""Decode paths drawn: differences by position, by layer, by dimension, and from float64."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.theme import COLOR, empty_figure, error_axis, error_line, figure, position_axis, tolerance_line
from kvcore.studies.decode_paths import Result
from kvcore.studies.outcome import Outcome


def _borders(sizes: tuple[int, ...]) -> list[dict]:
    """A thin upright line before each chunk but the first."""
    return [
        {
            "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": end - 0.5, "x1": end - 0.5,
            "line": {"color": COLOR["muted"], "width": 1, "dash": "dot"}, "layer": "below",
        }
        for end in np.cumsum(sizes)[:-1].tolist()
    ]  # fmt: skip


def differences(result: Result) -> go.Figure:
    """Largest difference from its reference at every position, one line a path, chunk borders dotted."""
    if not result.outcomes:
        return empty_figure("No path was run.")
    shape, note = tolerance_line(result.tolerance)
    largest = max(outcome.comparison.largest for outcome in result.outcomes)
    return figure(
        [error_line(o.name, o.position, o.by_layer[-1]) for o in result.outcomes],
        440,
        xaxis=position_axis(result.length),
        yaxis=error_axis(largest, "largest difference from reference"),
        shapes=[shape, *(_borders(result.sizes) if len(result.sizes) <= 64 else [])],
        annotations=[note],
    )


def from_float64(result: Result) -> go.Figure:
    """Distance of every path, full included, from the float64 run of the same cast parameters."""
    lines = [(name, np.arange(result.length), gap) for name, gap in result.full_from_exact.items()]
    lines += [(o.name, o.position, o.from_exact) for o in result.outcomes if o.from_exact is not None]
    if not lines:
        return empty_figure("In float64 there is nothing more exact to measure against.")
    shape, note = tolerance_line(result.tolerance)
    return figure(
        [error_line(*line) for line in lines],
        400,
        xaxis=position_axis(result.length),
        yaxis=error_axis(max(gap.max() for _, _, gap in lines), "distance from float64"),
        shapes=[shape],
        annotations=[note],
    )


def by_layer(outcome: Outcome) -> go.Figure:
    """Layers downwards, positions to the right: where a difference enters and how it spreads."""
    layers = [f"layer {layer}" for layer in range(1, len(outcome.by_layer) + 1)]
    return _difference_map(
        outcome.by_layer,
        outcome.position,
        layers,
        "%{y}, position %{x}",
        130 + 40 * len(layers),
        xaxis=position_axis(len(outcome.position)),
        yaxis={"title": {"text": "after"}, "autorange": "reversed", "type": "category"},
    )


def by_dimension(outcome: Outcome) -> go.Figure:
    """Positions downwards, hidden dimensions to the right, after the last layer."""
    n_rows, d_model = outcome.gap.shape
    return _difference_map(
        outcome.gap,
        np.arange(d_model),
        outcome.position,
        "position %{y}, dimension %{x}",
        min(640, 150 + 14 * n_rows),
        xaxis={"title": {"text": "hidden dimension"}, "zeroline": False},
        yaxis=position_axis(n_rows) | {"autorange": "reversed"},
    )


def _difference_map(gap: np.ndarray, x, y, where: str, height: int, **axes: dict) -> go.Figure:
    """Differences on a log colour scale that is the same in every map; exact zeros are grey, apart from the scale."""
    zero = gap == 0
    with np.errstate(divide="ignore"):
        power = np.where(zero, np.nan, np.log10(gap))
    powers = [-16, -12, -8, -4, 0]
    common = {"type": "heatmap", "x": x, "y": y, "customdata": gap, "xgap": 1, "ygap": 1}
    exact = common | {
        "z": np.where(zero, 0.0, np.nan),
        "colorscale": [[0, COLOR["masked"]], [1, COLOR["masked"]]],
        "showscale": False,
        "hovertemplate": f"{where}<br>exactly 0<extra></extra>",
    }
    size = common | {
        "z": power,
        "zmin": -17,
        "zmax": 0.3,
        "colorscale": "Viridis",
        "colorbar": {
            "title": {"text": "difference"},
            "tickvals": powers,
            "ticktext": [f"1e{p}" if p else "1" for p in powers],
            "thickness": 12,
        },
        "hovertemplate": f"{where}<br>%{{customdata:.2e}}<extra></extra>",
    }
    return figure([exact, size], height, **axes)
