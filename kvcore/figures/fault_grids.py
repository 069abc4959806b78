"""The right step and the wrong one as grids over absolute positions: what is read, and what is kept afterwards."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.theme import COLOR, empty_figure, figure
from kvcore.studies.fault_result import Result

VISIBLE, MASKED, HIDDEN, SHOWN = "visible", "masked", "wrongly hidden", "wrongly shown"
KEPT, SPARE, MISSING, SURPLUS, OTHER = (
    "kept", "kept, never read again", "missing", "wrongly kept", "kept with other numbers",
)  # fmt: skip
MARK = {
    MASKED: ("square-open", COLOR["muted"]),
    HIDDEN: ("x", COLOR["fault"]),
    SHOWN: ("cross", "white"),
    KEPT: ("square", COLOR["cached"]),
    SPARE: ("square-open", COLOR["evicted"]),
    MISSING: ("x", COLOR["fault"]),
    SURPLUS: ("cross", COLOR["fault"]),
    OTHER: ("diamond", COLOR["fault"]),
}
"""Symbol and colour of a cell's or entry's mark."""

NOTHING = "The fault is not in force in this setting."


def mask(result: Result, wrong: bool) -> go.Figure:
    """What the tokens of the call read, queries down and keys right; in the wrong step differing cells are marked."""
    if result.pair is None:
        return empty_figure(NOTHING)
    pair = result.pair
    reads, right = (pair.wrong_reads if wrong else pair.right_reads), pair.right_reads
    n_rows, n_keys = len(pair.place), len(pair.needed)
    other = bool(pair.wrong_reads[:, -1].any())
    n_columns = n_keys + other
    reads, right = reads[:, :n_columns], right[:, :n_columns]
    kinds = {MASKED: (reads == 0) & (right == 0), HIDDEN: reads < right, SHOWN: reads > right}
    scale = [COLOR["masked"], COLOR["visible"], COLOR["fault"]]
    fill = {
        "type": "heatmap", "x": np.arange(n_columns), "y": np.arange(n_rows), "zmin": 0, "zmax": 2,
        "z": np.where(kinds[SHOWN], 2, np.minimum(reads, 1)), "showscale": False, "hoverinfo": "skip",
        "colorscale": [[step / 2, color] for step, color in enumerate(scale)], "xgap": 2, "ygap": 2,
    }  # fmt: skip
    legend = {
        "type": "scatter", "mode": "markers", "name": VISIBLE, "x": [None], "y": [None],
        "marker": {"symbol": "square", "size": 10, "color": COLOR["visible"]},
    }  # fmt: skip
    marks = [_marks(kind, *np.nonzero(cells)[::-1], n_columns) for kind, cells in kinds.items() if cells.any()]
    for trace in marks:
        trace["hovertemplate"] = f"query %{{y}}, key %{{x}}<br>{trace['name']}<extra></extra>"
    return _grid(
        [fill, legend, *marks, *_counts(reads)],
        _named_positions(n_keys, other, "key, absolute position"),
        {"title": {"text": "query, place"}, **_rows([str(place) for place in pair.place])},
        max(26, min(44, 260 // n_rows)) * n_rows,
        100,
    )


def _counts(reads: np.ndarray) -> list[dict]:
    """How many entries of a position are read, where that is more than one."""
    row, column = np.nonzero(reads > 1)
    if not row.size:
        return []
    text = [f"{count}" for count in reads[row, column]]
    return [
        {"type": "scatter", "mode": "text", "x": column + 0.28, "y": row - 0.25, "text": text, "hoverinfo": "skip",
         "showlegend": False, "textfont": {"color": "white", "size": 10}}
    ]  # fmt: skip


def kept(result: Result) -> go.Figure:
    """The entries that are kept after the call, right above and wrong below, by absolute position."""
    if result.pair is None:
        return empty_figure(NOTHING)
    pair, n_keys = result.pair, len(result.pair.needed)
    other = bool(pair.kept_wrong[-1])
    n_columns = n_keys + other
    needed, otherwise = np.append(pair.needed, False), np.append(pair.kept_otherwise, False)
    missing = np.append(pair.missing, False)
    kinds = {kind: ([], []) for kind in (KEPT, SPARE, MISSING, OTHER, SURPLUS)}
    for row, counts in enumerate((pair.kept_right, pair.kept_wrong)):
        for column in range(n_columns):
            kind = _kind(row, column, counts, pair.surplus, missing, otherwise, needed)
            if kind:
                kinds[kind][0].append(column)
                kinds[kind][1].append(row)
    marks = [_marks(kind, *at, n_columns) for kind, at in kinds.items() if at[0]]
    for trace in marks:
        trace["hovertemplate"] = f"position %{{x}}<br>{trace['name']}<extra></extra>"
    counts = _counts(np.stack([pair.kept_right, pair.kept_wrong])[:, :n_columns])
    for trace in counts:
        trace["textfont"] = {"size": 11, "color": COLOR["fault"]}
        trace["y"] = trace["y"] - 0.15
    return _grid(
        [*marks, *counts],
        _named_positions(n_keys, other, "entry, absolute position"),
        {"title": {"text": "step"}, **_rows(["right", "wrong"])},
        90,
        155,
    )


def _kind(row, column, counts, surplus, missing, otherwise, needed) -> str | None:
    if row and missing[column]:
        return MISSING
    if not counts[column]:
        return None
    if row and surplus[column]:
        return SURPLUS
    if row and otherwise[column]:
        return OTHER
    return KEPT if needed[column] else SPARE


def _marks(kind: str, x: np.ndarray, y: np.ndarray, n_columns: int) -> dict:
    symbol, color = MARK[kind]
    size = float(np.clip(300 / n_columns / 2, 5, 12))
    outline = {"width": 1.5, "color": COLOR["fault"] if kind == SHOWN else color}
    return {
        "type": "scatter", "mode": "markers", "name": kind, "x": x, "y": y,
        "marker": {"symbol": symbol, "color": color, "size": size, "line": outline},
    }  # fmt: skip


def _named_positions(n_keys: int, other: bool, title: str) -> dict:
    """Absolute positions, and one place more for entries of no position of this sequence."""
    step = 1 if n_keys <= 12 else 2
    ticks = list(range(0, n_keys - other, step))  # the last key's name would touch the word "other"
    names = [str(tick) for tick in ticks]
    if other:
        ticks, names = [*ticks, n_keys], [*names, "other"]
    return {
        "title": {"text": title}, "range": [-0.5, n_keys - 0.5 + other], "tickvals": ticks, "ticktext": names,
        "showgrid": False, "zeroline": False,
    }  # fmt: skip


def _rows(names: list[str]) -> dict:
    return {
        "tickvals": list(range(len(names))), "ticktext": names, "range": [len(names) - 0.5, -0.5], "showgrid": False,
        "zeroline": False,
    }  # fmt: skip


def _grid(traces: list[dict], xaxis: dict, yaxis: dict, height: int, entry: int) -> go.Figure:
    """Rows down and positions right, with a legend of at most two lines below, so that two grids lie level."""
    top, bottom = 34, 112
    legend = {
        "orientation": "h", "xref": "container", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0,
        "entrywidth": entry,
    }  # fmt: skip
    return figure(
        traces,
        top + height + bottom,
        margin={"l": 60, "r": 12, "t": top, "b": bottom},
        showlegend=True,
        legend=legend,
        xaxis=xaxis,
        yaxis=yaxis,
    )
