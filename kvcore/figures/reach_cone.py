"""The cone of reach: which hidden states one output depends on, over the slots that a sliding cache keeps."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.frame import anchor, framed, upright
from kvcore.figures.theme import COLOR, LINE, empty_figure, position_axis
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
        "x": config.step + 0.5, "xanchor": anchor(config.step, first, last), "y": -0.45, "yanchor": "top",
        "text": "kept slots", "font": {"color": COLOR["cached"]}, "showarrow": False,
    }  # fmt: skip
    crop = upright(
        first_crop - 0.5, f"recomputed: from {first_crop} on", LINE["cropped recomputation"].color, first, last
    )
    drawn = framed(
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
    return drawn.update_layout(legend_itemsizing="constant")


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
        "opacity": 0.4 if kind == OUTSIDE else 1,
        "showlegend": kind != OUTSIDE,
        "hovertemplate": f"%{{customdata}}, position %{{x}}<br>{kind}<extra></extra>",
    }
