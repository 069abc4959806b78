"""The check matrix drawn: how many faults each check notices, and which fault in how many models."""

from __future__ import annotations

from textwrap import wrap

import numpy as np
import plotly.graph_objects as go

from kvcore.faults import FAULTS
from kvcore.figures.theme import SEQUENTIAL, empty_figure, figure
from kvcore.studies.check_matrix import Result
from kvcore.studies.check_row import CHECKS, RIGHT_STEP, SPLITS

WRAPPED = {split: "<br>".join(wrap(split, 8)) for split in SPLITS}
"""Splits as they fit above a narrow column."""

LABEL = 22
"""Letters of a row's name that fit on one line beside five columns of a phone."""

ROW = 36
"""Pixels of a row: two lines of a name."""

NEEDS_MORE = "*"
"""Behind a fault that no split of one sequence can show."""


def summary(result: Result) -> go.Figure:
    """How many of the faults each check notices in every model, by split."""
    if not result.config.faults:
        return empty_figure("No fault was chosen.")
    return _heat(
        result.always, len(result.config.faults), list(CHECKS), "check", "faults noticed", 46,
        "%{y}<br>%{x}<br>%{text} of " + f"{len(result.config.faults)} faults",
    )  # fmt: skip


def faults(result: Result, check: str) -> go.Figure:
    """In how many models one check notices each fault, by split; the right step stands last."""
    if not result.config.faults:
        return empty_figure("No fault was chosen.")
    at = CHECKS.index(check)
    counts = np.vstack([result.noticed[:, at], result.false_alarms[at][None]])
    shown = dict(zip(result.config.faults, result.plain, strict=True))
    names = [_label(name, shown.get(name, True)) for name in (*result.config.faults, RIGHT_STEP)]
    n_models = result.config.n_models
    return _heat(
        counts, n_models, names, "fault", "models", ROW, "%{y}<br>%{x}<br>noticed in %{text} of " + f"{n_models} models"
    )


def _label(name: str, is_plain: bool) -> str:
    """Class and name on two lines at most."""
    if name == RIGHT_STEP:
        return name
    fault = FAULTS[name]
    text = f"{fault.fault_class} {fault.title}{'' if is_plain else ' ' + NEEDS_MORE}"
    lines = wrap(text, LABEL)
    return "<br>".join([lines[0], " ".join(lines[1:])] if len(lines) > 1 else lines)


def _heat(counts: np.ndarray, most: int, names: list[str], down: str, what: str, row: int, hover: str) -> go.Figure:
    """Counts out of `most`, written into their cells; splits above, names at the left."""
    share = counts / most
    columns = [WRAPPED[split] for split in SPLITS]
    cells = {
        "type": "heatmap", "x": np.arange(len(columns)), "y": np.arange(len(names)), "z": share, "zmin": 0, "zmax": 1,
        "colorscale": SEQUENTIAL, "showscale": False, "xgap": 2, "ygap": 2, "text": counts,
        "hovertemplate": hover.replace("%{y}", "%{customdata[0]}").replace("%{x}", "%{customdata[1]}")
        + "<extra></extra>",
        "customdata": np.array([[[name.replace("<br>", " "), split] for split in SPLITS] for name in names]),
    }  # fmt: skip
    row_at, column_at = np.indices(counts.shape)
    written = {
        "type": "scatter", "mode": "text", "x": column_at.ravel(), "y": row_at.ravel(),
        "text": [str(count) for count in counts.ravel()], "hoverinfo": "skip", "showlegend": False,
        "textfont": {"color": np.where(share.ravel() > 0.55, "black", "white"), "size": 12},
    }  # fmt: skip
    return figure(
        [cells, written],
        136 + row * len(names),
        margin={"l": 150, "r": 8, "t": 124, "b": 12},
        xaxis={
            "title": {"text": f"split into calls ({what})"}, "side": "top", "tickvals": np.arange(len(columns)),
            "ticktext": columns, "tickangle": 0, "tickfont": {"size": 10},
            "range": [-0.5, len(columns) - 0.5], "showgrid": False,
            "zeroline": False,
        },
        yaxis={
            "title": {"text": down, "standoff": 2}, "tickvals": np.arange(len(names)), "ticktext": names,
            "range": [len(names) - 0.5, -0.5], "showgrid": False, "zeroline": False, "tickfont": {"size": 11},
        },
    )  # fmt: skip
