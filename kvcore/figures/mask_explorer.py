"""The mask as squares, the attention weights under it, and which positions move."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures import theme
from kvcore.figures.theme import COLOR, LINE, Line
from kvcore.studies.mask_result import Result

VISIBLE, MASKED, HIDDEN, SHOWN, FLIPPED = "visible", "masked", "wrongly hidden", "wrongly shown", "flipped by hand"
MARK = {
    VISIBLE: ("square", COLOR["visible"]),
    MASKED: ("square-open", COLOR["muted"]),
    HIDDEN: ("x", COLOR["fault"]),
    SHOWN: ("cross", "white"),
}
"""Symbol and colour of a cell's mark; a masked cell is hollow, in whichever figure."""

UNSEEN = "rgba(0,0,0,0)"

PHONE = 300
"""Pixels that the cells share on a narrow screen: marks are sized to fit there."""

MANY = 600
"""Cells beyond which one line marks all of a kind, since a browser paints marks one by one."""

FEW = 10
"""Up to so many keys, weights are also written into their cells."""


def mask(result: Result) -> go.Figure:
    """The mask that is run: a square a cell, wrong ones marked, flipped ones outlined; squares can be clicked."""
    kinds = {
        VISIBLE: result.visible & result.right,
        MASKED: ~result.visible & ~result.right,
        HIDDEN: result.wrongly_hidden,
        SHOWN: result.wrongly_shown,
    }
    flipped = [
        _box(result, query, query, key, key, COLOR["flipped"])
        for query, key in zip(*_positions(result, result.flipped), strict=True)
    ]
    legend_only = {
        "type": "scatter", "mode": "markers", "name": FLIPPED, "x": [None], "y": [None],
        "marker": {"symbol": "square-open", "size": 12, "color": COLOR["flipped"], "line": {"width": 3}},
    }  # fmt: skip
    fill = _fill(result, result.visible.astype(np.int8) + result.wrongly_shown)
    traces = [fill, *_marks(result, kinds)]
    if result.visible.size > MANY:
        traces += _strokes(result, kinds)
    return _grid(result, [*traces, legend_only] if flipped else traces, shapes=flipped)


def right_mask(result: Result) -> go.Figure:
    """The right mask beside it; the cells in which the mask that is run differs carry the same marks."""
    same = result.visible == result.right
    kinds = {
        VISIBLE: result.right & same,
        MASKED: ~result.right & same,
        HIDDEN: result.wrongly_hidden,
        SHOWN: result.wrongly_shown,
    }
    draw = _marks if result.visible.size <= MANY else _strokes
    return _grid(result, [_fill(result, result.right), *draw(result, kinds)], absolute=True)


def weights(result: Result) -> go.Figure:
    """Attention weights of the chosen layer and head on 0–1; masked cells are hollow, not 0."""
    if result.shown_weights is None:
        return theme.empty_figure("No weights: the mask is not run.")
    cells = {
        "type": "heatmap",
        "x": result.key_position,
        "y": result.query_position,
        "z": result.shown_weights,
        "zmin": 0,
        "zmax": 1,
        "colorscale": theme.SEQUENTIAL,
        "colorbar": {"thickness": 10, "title": {"text": "weight"}, "tickvals": [0, 0.5, 1]},
        "hoverongaps": False,
        "hovertemplate": "query %{y} gives key %{x}<br>weight %{z:.4f}<extra></extra>",
        **_gap(result),
    }
    draw = _marks if result.visible.size <= MANY else _strokes
    masked = [_fill(result, np.where(result.visible, np.nan, 0)), *draw(result, {MASKED: ~result.visible})]
    written = [_written(result)] if result.config.length <= FEW else []
    return _grid(result, [cells, *masked, *written])


def _written(result: Result) -> dict:
    """The weights as text in their cells, dark on the bright end of the scale."""
    query, key = _positions(result, result.visible)
    weight = result.shown_weights[result.visible]
    return {
        "type": "scatter",
        "mode": "text",
        "x": key,
        "y": query,
        "text": [f"{value:.2f}" for value in weight],
        "textfont": {"color": np.where(weight > 0.55, "black", "white"), "size": 11},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def movement(result: Result) -> go.Figure:
    """How far every position moves: by the flipped cells, and from the right mask."""
    if result.moved is None:
        return theme.empty_figure("No movement: the mask is not run.")
    lines = []
    if result.flipped.any():
        lines.append(("flipped alone", result.moved, Line(COLOR["flipped"], "square-open", "dash")))
    if not lines or (result.unedited != result.right).any():
        lines.append(("from the right mask", result.from_right, Line(COLOR["fault"], "x", "dot")))
    return _differences(result, lines, _boundary(result))


def future_edit(result: Result) -> go.Figure:
    """How far every position moves when the tokens from one on are edited."""
    lines = [
        ("causal", result.causal_change, LINE["full"]),
        ("unmasked", result.unmasked_change, LINE["unmasked"]),
    ]
    if result.mask_change is not None and not result.is_right:
        lines.append(("mask above", result.mask_change, Line(COLOR["fault"], "x", "dot")))
    first = result.config.first_edited
    return _differences(result, lines, _divider(first, f"edited from {first} on"))


def _differences(result: Result, lines: list[tuple[str, np.ndarray, Line]], divider: tuple[dict, dict]) -> go.Figure:
    tolerance, note = theme.tolerance_line(result.config.decoder.tolerance)
    largest = max(float(difference.max()) for _, difference, _ in lines)
    return theme.figure(
        [theme.error_line(name, result.key_position, difference, style) for name, difference, style in lines],
        **_legend_below(len(lines), 300),
        xaxis=theme.position_axis(result.config.length),
        yaxis=theme.error_axis(largest),
        shapes=[tolerance, divider[0]],
        annotations=[note, divider[1]],
    )


def _positions(result: Result, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Query and key positions of the cells that are True."""
    row, column = np.nonzero(cells)
    return row + result.config.n_cached, column


def _gap(result: Result) -> dict:
    gap = 3 if result.config.length <= 24 else 1
    return {"xgap": gap, "ygap": gap}


def _fill(result: Result, kind: np.ndarray) -> dict:
    """Squares that grow with the screen, for 0 masked, 1 visible, 2 wrongly shown; marks on them are clicked."""
    scale = [COLOR["masked"], COLOR["visible"], COLOR["fault"]]
    return {
        "type": "heatmap",
        "x": result.key_position,
        "y": result.query_position,
        "z": kind.astype(np.float32),
        "zmin": 0,
        "zmax": 2,
        "colorscale": [[step / 2, color] for step, color in enumerate(scale)],
        "showscale": False,
        "hoverinfo": "skip",
        **_gap(result),
    }


def _marks(result: Result, kinds: dict[str, np.ndarray]) -> list[dict]:
    """One trace of marks for each kind of cell that occurs; among many cells, marks that are there to be clicked."""
    size = float(np.clip(PHONE / result.config.length / 2, 4, 12))
    same = {"marker": {"opacity": 1}}
    traces = []
    for kind, cells in kinds.items():
        if not cells.any():
            continue
        query, key = _positions(result, cells)
        symbol, color = MARK[kind]
        outline = {"width": 1.5 if symbol.endswith("open") else 1, "color": COLOR["fault"] if kind == SHOWN else color}
        stroked = result.visible.size > MANY and kind != VISIBLE
        if stroked:
            symbol, color, outline = "square", UNSEEN, {"width": 0}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": kind,
                "x": key,
                "y": query,
                "marker": {"symbol": symbol, "color": color, "size": size, "line": outline},
                "showlegend": not stroked,
                "selected": same,
                "unselected": same,
                "hovertemplate": f"query %{{y}}, key %{{x}}<br>{kind}<extra></extra>",
            }
        )
    return traces


def _strokes(result: Result, kinds: dict[str, np.ndarray]) -> list[dict]:
    """One line for each kind of cell but the visible one: a stroke a masked cell, a cross a wrong one."""
    traces = []
    for kind, cells in kinds.items():
        if kind == VISIBLE or not cells.any():
            continue
        query, key = (position[:, None] for position in _positions(result, cells))
        rise, run = np.array([-0.3, 0.3, np.nan]), np.array([0.3, -0.3, np.nan])
        if kind != MASKED:
            rise, run = np.append(rise, rise), np.append(run, -run)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": kind,
                "x": (key + run).ravel(),
                "y": (query + rise).ravel(),
                "line": {"color": COLOR["muted" if kind == MASKED else "fault"], "width": 1},
                "hoverinfo": "skip",
            }
        )
    return traces


def _box(result: Result, top: int, bottom: int, left: int, right: int, color: str) -> dict:
    """An outline around whole cells."""
    return {
        "type": "rect", "x0": left - 0.5, "x1": right + 0.5, "y0": top - 0.5, "y1": bottom + 0.5,
        "line": {"color": color, "width": 3 if result.config.length <= 24 else 2},
    }  # fmt: skip


def _divider(position: int, text: str) -> tuple[dict, dict]:
    """A line before `position` and its name above the plot."""
    line = {
        "type": "line", "x0": position - 0.5, "x1": position - 0.5, "yref": "paper", "y0": 0, "y1": 1,
        "line": {"color": COLOR["muted"], "width": 2, "dash": "dash"},
    }  # fmt: skip
    note = {"x": position - 0.5, "yref": "paper", "y": 1.0, "yanchor": "bottom", "text": text, "showarrow": False}
    return line, note


def _legend_below(n_names: int, plot_height: int) -> dict:
    """Room above the plot for the chart's own bar and a note, below for names that a phone sets two a line."""
    top, bottom = 56, 60 + 20 * ((n_names + 1) // 2)
    return {
        "height": top + plot_height + bottom,
        "margin": {"l": 76, "r": 12, "t": top, "b": bottom},
        "showlegend": True,
        "legend": {
            "orientation": "h",
            "yref": "container",
            "yanchor": "bottom",
            "y": 0,
            "x": 0,
            "entrywidth": 96,
            "itemsizing": "constant",
        },
    }


def _boundary(result: Result) -> tuple[dict, dict]:
    return _divider(result.config.n_cached, "cached | new" if result.config.n_cached else "new")


def _grid(result: Result, traces: list[dict], shapes: list[dict] | None = None, absolute: bool = False) -> go.Figure:
    """Queries down and keys right, in absolute positions, with the chosen row outlined."""
    config, query = result.config, result.query_position
    cell = 44 if config.n_new <= 4 else int(max(15, min(44, 300 // config.n_new)))
    labels = [str(position) for position in query]
    if config.numbering != "absolute" and not absolute:
        labels = [f"{position} as {index}" for index, position in enumerate(query)]
    labels[config.shown_row - config.n_cached] = f"▸ {labels[config.shown_row - config.n_cached]}"
    row = _box(result, config.shown_row, config.shown_row, 0, config.length - 1, COLOR["new"])
    line, note = _boundary(result)
    n_names = sum(trace["type"] == "scatter" and trace.get("showlegend", True) for trace in traces)
    return theme.figure(
        traces,
        **_legend_below(n_names, cell * config.n_new),
        hoverdistance=60,
        xaxis=theme.position_axis(config.length, "key, absolute position")
        | {"range": [-0.5, config.length - 0.5], "showgrid": False},
        yaxis={
            "title": {"text": "query"},
            "range": [config.length - 0.5, config.n_cached - 0.5],
            "tickvals": query,
            "ticktext": labels,
            "showgrid": False,
            "zeroline": False,
        },
        shapes=[line, row, *(shapes or [])],
        annotations=[note],
    )
