"""The recorded verdicts on published architectures as a matrix: architectures down, cache and attention right."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvcore.figures.theme import COLOR, empty_figure
from kvcore.figures.theme import figure as laid_out

LOOK = {
    "equal": ("=", COLOR["cached"]),
    "rounding": ("≈", COLOR["new"]),
    "fault": ("✗", COLOR["fault"]),
    "not supported": ("–", "#BDBDBD"),
}
"""Verdict -> its mark and its colour."""

ROW = 19


def figure(table: pd.DataFrame) -> go.Figure:
    """One cell a combination, its mark the verdict; architectures with a fault stand first.

    `table` has the columns architecture, cache, attention, verdict, difference, first_bad_position, check, note.
    """
    if not len(table):
        return empty_figure("No architecture was recorded.")
    names = order(table)
    columns = list(dict.fromkeys(zip(table["cache"], table["attention"], strict=True)))
    at = {name: index for index, name in enumerate(names)}
    kinds = list(LOOK)
    shape = (len(names), len(columns))
    kind, mark, hover = np.full(shape, np.nan), np.full(shape, "", dtype=object), np.full(shape, "", dtype=object)
    for row in table.itertuples():
        cell = at[row.architecture], columns.index((row.cache, row.attention))
        kind[cell], mark[cell], hover[cell] = kinds.index(row.verdict), LOOK[row.verdict][0], _told(row)
    scale = [
        [edge / len(kinds), color]
        for index, (_, color) in enumerate(LOOK.values())
        for edge in (index, index + 1)
    ]  # fmt: skip
    cells = {
        "type": "heatmap", "z": kind, "zmin": -0.5, "zmax": len(kinds) - 0.5, "colorscale": scale, "showscale": False,
        "text": mark, "texttemplate": "%{text}", "customdata": hover, "xgap": 2, "ygap": 2,
        "textfont": {"color": "black", "size": 13}, "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    return laid_out(
        [cells],
        176 + ROW * len(names),
        margin={"l": 190, "r": 8, "t": 160, "b": 16},
        xaxis={
            "title": {"text": "cache, attention", "standoff": 6},
            "side": "top",
            "tickvals": list(range(len(columns))),
            "ticktext": [", ".join(column) for column in columns],
            "tickangle": -90,
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={
            "title": {"text": "architecture"},
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [len(names) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        },
    )


def order(table: pd.DataFrame) -> list[str]:
    """Architectures with a fault first, each group as it was recorded."""
    faulty = set(table.loc[table["verdict"] == "fault", "architecture"])
    return sorted(dict.fromkeys(table["architecture"]), key=lambda name: name not in faulty)


def _told(row) -> str:
    """What the pointer shows: the combination, its verdict, and how far off where."""
    lines = [f"{row.architecture}: {row.cache}, {row.attention}", row.verdict]
    if not pd.isna(row.difference):
        lines.append(f"largest difference {row.difference:.1e} of the output scale")
    if not pd.isna(row.first_bad_position):
        lines.append(f"first at position {row.first_bad_position} under {row.check}")
    return "<br>".join(lines)
