"""A published model's layers as a strip, and its size under each convention."""

from __future__ import annotations

import plotly.graph_objects as go

from kvcore.figures.frame import framed
from kvcore.figures.published import STYLES
from kvcore.figures.theme import COLOR, empty_figure, figure
from kvcore.published.layer import KINDS, Description
from kvcore.published.sizes import CONVENTIONS, Size
from kvcore.published.strip import Run, runs
from kvcore.studies.published_result import Result
from kvcore.units import short_bytes

LOOK = {
    "full": ("F", COLOR["reference"]),
    "sliding": ("S", COLOR["cached"]),
    "chunked": ("C", COLOR["key"]),
    "latent": ("L", COLOR["new"]),
    "recurrent": ("R", COLOR["flipped"]),
    "shared": ("=", COLOR["evicted"]),
    "cross": ("X", COLOR["again"]),
    "none": ("–", COLOR["masked"]),
}
"""Letter and colour of each kind of layer."""

COLUMNS = 24
"""Layers in one row of the strip: few enough for a letter in each on a phone."""

PATTERNS = ("", "/", "x", "\\")


def strip(model: Description, taken: Size) -> go.Figure:
    """One cell a layer, 24 a row, coloured and lettered by kind; hovering says what it keeps."""
    if not model.layers:
        return empty_figure("This model has no layer.")
    kinds = list(KINDS)
    cells = [(layer.kind, run) for run in runs(model, taken) for layer in [run.layer] * (run.last - run.first + 1)]
    rows = [cells[start : start + COLUMNS] for start in range(0, len(cells), COLUMNS)]
    width = min(COLUMNS, len(cells))
    missing = [[None] * (width - len(row)) for row in rows]
    steps = [(edge / len(kinds), LOOK[kind][1]) for n, kind in enumerate(kinds) for edge in (n, n + 1)]
    trace = {
        "type": "heatmap",
        "z": [[kinds.index(kind) for kind, _ in row] + gap for row, gap in zip(rows, missing, strict=True)],
        "text": [[_letter(run) for _, run in row] + [""] * len(gap) for row, gap in zip(rows, missing, strict=True)],
        "customdata": [
            [f"layer {COLUMNS * r + c}<br>{_hover(run)}" for c, (_, run) in enumerate(row)] + gap
            for r, (row, gap) in enumerate(zip(rows, missing, strict=True))
        ],
        "y": [str(COLUMNS * r) for r in range(len(rows))],
        "texttemplate": "%{text}",
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": False,
        "colorscale": steps,
        "zmin": -0.5,
        "zmax": len(kinds) - 0.5,
        "showscale": False,
        "xgap": 2,
        "ygap": 3,
    }
    every = 6 if width > 6 else 1
    ticks = list(range(0, width, every))
    xaxis = {"title": {"text": "layer, counted from the row's first"}, "tickvals": ticks, "zeroline": False}
    xaxis |= {"ticktext": [f"+{tick}" for tick in ticks], "showgrid": False}
    yaxis = {"title": {"text": "row's first layer"}, "type": "category", "autorange": "reversed", "showgrid": False}
    margin = {"l": 60, "r": 16, "t": 34, "b": 48}
    return figure([trace], 110 + 30 * max(2, len(rows)), xaxis=xaxis, yaxis=yaxis, margin=margin)


def _letter(run: Run) -> str:
    """The kind's letter; + where the layer also holds a state of fixed size."""
    return LOOK[run.layer.kind][0] + ("+" if run.layer.kind != "recurrent" and run.layer.state_elements != 0 else "")


def _hover(run: Run) -> str:
    return run.words.replace(": ", "<br>", 1).replace(", ", "<br>")


def conventions(result: Result) -> go.Figure:
    """Bars a convention, one a model; a single model's bars carry their sizes, more would not fit on a phone."""
    table = result.conventions()
    traces = []
    for model, pattern, (style, _) in zip(result.models, PATTERNS, STYLES, strict=False):
        own = table[table["model"] == model.name]
        sizes = [int(each) for each in own["bytes"]]
        texts = [short_bytes(each) for each in sizes] if len(result.models) == 1 else None
        traces.append(
            {
                "type": "bar", "name": model.name, "x": list(CONVENTIONS), "y": [float(each) for each in sizes],
                "text": texts, "textposition": "outside", "textangle": 0,
                "cliponaxis": False, "constraintext": "none",
                "marker": {"color": style.color, "pattern": {"shape": pattern}}, "customdata": own["cache"].tolist(),
                "hovertemplate": f"{model.name}<br>%{{x}}<br>%{{customdata}}<extra></extra>",
            }
        )  # fmt: skip
    most = max((each for trace in traces for each in trace["y"]), default=0)
    if not most:
        return empty_figure("None of these models keeps keys and values that grow with the text.")
    ticks = [int(n * most / 4) for n in range(5)]
    yaxis = {
        "title": {"text": "K/V cache"},
        "tickvals": [float(tick) for tick in ticks],
        "ticktext": [short_bytes(tick) for tick in ticks],
    }
    xaxis = {"title": {"text": "convention"}, "zeroline": False}
    return framed(traces, 420, 80, showlegend=True, xaxis=xaxis, yaxis=yaxis, barmode="group")
