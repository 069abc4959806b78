"""Work counts drawn: what each step did with each position, growth with T, and the K/V payload."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.theme import COLOR, LINE, empty_figure, figure
from kvcore.studies.work_cells import AGAIN, GONE, NEW, READ, STATES
from kvcore.studies.work_paths import QUANTITIES
from kvcore.studies.work_result import PathCount, Result
from kvcore.units import bytes_in_words, short_bytes

MARK = {
    NEW: (COLOR["new"], "square"),
    READ: (COLOR["cached"], "circle-open"),
    AGAIN: (COLOR["again"], "x-thin-open"),
    GONE: (COLOR["evicted"], "line-ew-open"),
}
"""Each state has a colour and a shape of its own."""


def picture(count: PathCount) -> go.Figure:
    """Steps downwards, absolute positions to the right; one mark a position that the step had to do with."""
    n_steps, n_positions = count.cells.shape
    if not n_steps:
        return empty_figure("No step was run.")
    size = max(4, min(12, 220 // max(n_steps, n_positions)))
    traces = []
    for state, (color, symbol) in MARK.items():
        step, position = np.nonzero(count.cells == state)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{STATES[state]}: {len(step):,}",
                "x": position,
                "y": step + 1,
                "marker": {"color": color, "symbol": symbol, "size": size, "line": {"width": 2, "color": color}},
                "hovertemplate": f"step %{{y}}, position %{{x}}<br>{STATES[state]}<extra></extra>",
                "showlegend": True,
            }
        )
    return figure(
        traces,
        440,
        xaxis=_whole(n_positions, "absolute position") | {"range": [-0.7, n_positions - 0.3]},
        yaxis=_whole(n_steps, "step (call)") | {"range": [n_steps + 0.7, 0.3]},
    )


def growth(result: Result, quantity: int) -> go.Figure:
    """One quantity over T on log axes: above, what the call ending at T adds; below, all calls up to T."""
    traces, steps, totals = [], [], []
    for count in result.counts:
        total = count.cumulative[:, quantity]
        totals += [total.min(), total.max()]
        traces.append(_line(count, total, "y2", f"{QUANTITIES[quantity]} in all"))
        if not count.single_call:
            step = count.per_step[:, quantity]
            steps += [step.min(), step.max()]
            traces.append(_line(count, step, "y", f"{QUANTITIES[quantity]} in this step") | {"showlegend": False})
    if not traces:
        return empty_figure("No path was counted.")
    shape, note = _here(result.config.length, 0.5)
    return figure(
        traces,
        660,
        xaxis=_log("tokens T", [1, result.config.length]) | {"anchor": "y2"},
        yaxis=_log("per step", steps) | {"domain": [0.56, 1]},
        yaxis2=_log("cumulative", totals) | {"domain": [0, 0.44]},
        shapes=[shape],
        annotations=[note],
        legend={"orientation": "h", "yanchor": "top", "y": -0.12, "x": 0, "entrywidth": 155},
    )


def payload(result: Result) -> go.Figure:
    """Bytes of kept keys and values over T on log axes: everything kept, and what a window keeps."""
    kept = [count for name in ("token cache", "sliding cache") if (count := result.path(name)) is not None]
    if not kept:
        return empty_figure("No path keeps a cache.")
    traces = []
    for count, meaning in zip(kept, ("everything kept", f"window W = {result.config.window}"), strict=False):
        size = count.cumulative[:, 2]
        words = [bytes_in_words(n) for n in size.tolist()]
        name = f"{count.name}: {meaning}"
        hover = f"{name}<br>T = %{{x:,}}<br>%{{customdata}}<extra></extra>"
        traces.append(_line(count, size, "y", "") | {"name": name, "customdata": words, "hovertemplate": hover})
    shape, note = _here(result.config.length, 0.04)
    sizes = np.concatenate([count.cumulative[:, 2] for count in kept])
    ticks = _binary_ticks(int(sizes.min()), int(sizes.max()))
    return figure(
        traces,
        400,
        xaxis=_log("tokens T", [1, result.config.length]),
        yaxis=_log("K/V payload, bytes", sizes) | {"tickvals": ticks, "ticktext": [short_bytes(n) for n in ticks]},
        shapes=[shape],
        annotations=[note],
        margin={"l": 76, "r": 16, "t": 36, "b": 48},
        legend={"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0, "entrywidth": 250},
    )


def _line(count: PathCount, values: np.ndarray, axis: str, what: str) -> dict:
    style = LINE[count.name]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": count.name,
        "legendgroup": count.name,
        "x": count.tokens,
        "y": values,
        "yaxis": axis,
        "line": {"color": style.color, "dash": style.dash, "width": 2},
        "marker": {"color": style.color, "symbol": style.symbol, "size": 8, "maxdisplayed": 10},
        "hovertemplate": f"{count.name}<br>T = %{{x:,}}<br>%{{y:,}} {what}<extra></extra>",
    }


def _here(length: int, height: float) -> tuple[dict, dict]:
    """An upright line at the chosen T, and its label at that height of the plot."""
    shape = {
        "type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": length, "x1": length,
        "line": {"color": COLOR["muted"], "width": 1, "dash": "dot"}, "layer": "below",
    }  # fmt: skip
    note = {
        "yref": "paper", "y": height, "x": math.log10(length), "xanchor": "right" if length > 1000 else "left",
        "text": f" T = {length:,} ", "showarrow": False,
    }  # fmt: skip
    return shape, note


def _whole(n: int, title: str) -> dict:
    return {"title": {"text": title}, "zeroline": False, "showgrid": False} | (
        {"dtick": 1} if n <= 12 else {"dtick": 4}
    )


def _log(title: str, values: Sequence[int]) -> dict:
    """A log axis with a tick every decade, or fewer where the values span many."""
    decades = math.log10(max(values)) - math.log10(min(values)) if len(values) else 0
    return {
        "title": {"text": title},
        "type": "log",
        "dtick": max(1, math.ceil(decades / 6)),
        "exponentformat": "power",
        "zeroline": False,
    }


def _binary_ticks(least: int, most: int) -> list[int]:
    """At most 8 powers of 2 that span least..most."""
    low, high = math.floor(math.log2(least)), math.ceil(math.log2(most))
    step = max(1, math.ceil((high - low) / 7))
    return [2**power for power in range(low, high + 1, step)]
