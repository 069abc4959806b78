"""Prefix reuse drawn: the recorded conditions, the chosen request by position, and every stored entry."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from kvcore.figures.frame import framed
from kvcore.figures.theme import (
    COLOR,
    EXACT_ZERO,
    Line,
    empty_figure,
    error_axis,
    error_line,
    on_log_axis,
    position_axis,
    tolerance_line,
)
from kvcore.studies.prefix_result import Result
from kvcore.studies.prefix_words import in_words

KEYED = Line(COLOR["reference"], "circle-open")
UNCHECKED = Line(COLOR["fault"], "x", "dot")
SYMBOLS = ("circle", "diamond", "square")
"""One for each seed."""

COMPUTED, STORED, STALE, EVICTED = "computed", "stored", "stored, wrong here", "evicted"
MARK = {
    COMPUTED: {"symbol": "square-open", "color": COLOR["new"], "size": 12, "line": {"width": 2}},
    STORED: {"symbol": "square", "color": COLOR["cached"], "size": 12},
    STALE: {"symbol": "x", "color": COLOR["fault"], "size": 11},
    EVICTED: {"symbol": "line-ew-open", "color": COLOR["evicted"], "size": 10, "line": {"width": 2}},
}


def experiment(result: Result) -> go.Figure:
    """Every condition in a row: how far keyed and unchecked reuse are from fresh computation, a mark a seed."""
    if not result.experiment:
        return empty_figure("No seed was run.")
    names = list(dict.fromkeys(row["condition"] for row in result.experiment))
    seeds = list(dict.fromkeys(row["seed"] for row in result.experiment))
    traces = []
    for way, style, suffix, beside in (("keyed", KEYED, "-open", -0.18), ("unchecked", UNCHECKED, "-x-open", 0.18)):
        for seed, symbol in zip(seeds, SYMBOLS * len(seeds), strict=False):
            rows = [row for row in result.experiment if row["seed"] == seed]
            error = np.array([row[f"{way}_error"] for row in rows])
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": f"{way}, seed {seed}", "x": on_log_axis(error),
                    "y": [names.index(row["condition"]) + beside for row in rows], "customdata": error,
                    "text": [in_words(row["condition"]) for row in rows],
                    "marker": {
                        "symbol": f"{symbol}{suffix}", "color": style.color, "size": 12,
                        "line": {"width": 2, "color": style.color},
                    },
                    "hovertemplate": f"%{{text}}<br>{way}, seed {seed}: %{{customdata:.2e}}<extra></extra>",
                }
            )  # fmt: skip
    line, note = tolerance_line(result.tolerance)
    upright = line | {"xref": "x", "x0": line["y0"], "x1": line["y0"], "yref": "paper", "y0": 0, "y1": 1}
    above = note | {"xref": "x", "x": note["y"], "xanchor": "center", "yref": "paper", "y": 1}
    ticks = {"tickvals": [EXACT_ZERO, 1e-12, 1e-8, 1e-4, 1], "ticktext": ["0", "1e-12", "1e-8", "1e-4", "1"]}
    return framed(
        traces,
        460,
        left=8,
        xaxis=error_axis(title="largest difference from fresh computation") | ticks | {"tickangle": 0},
        yaxis={
            "tickvals": list(range(len(names))), "ticktext": [in_words(name).replace(" ", "<br>") for name in names],
            "range": [len(names) - 0.5, -0.5], "automargin": True, "zeroline": False, "title": {"text": "condition"},
        },
        shapes=[upright],
        annotations=[above],
    )  # fmt: skip


def differences(result: Result) -> go.Figure:
    """How far keyed and unchecked reuse are from fresh computation at each suffix position."""
    position = result.suffix_position
    if position.size == 0:
        return empty_figure("There is no suffix.")
    ways = result.ways
    keyed, unchecked = ways.difference(ways.keyed), ways.difference(ways.unchecked)
    lines = [
        error_line("keyed", position, keyed, KEYED),
        error_line("unchecked", position, unchecked, UNCHECKED),
    ]
    lines[0]["marker"]["size"] = 12  # visible around the cross where both are the same
    tolerance, note = tolerance_line(result.tolerance)
    return framed(
        lines,
        360,
        xaxis=position_axis(len(position), "absolute position, of the suffix"),
        yaxis=error_axis(max(keyed.max(), unchecked.max()), "difference from fresh"),
        shapes=[tolerance],
        annotations=[note],
    )


def entries(result: Result) -> go.Figure:
    """Where the entries of each position come from, by way and layer, and which stored ones are not the request's."""
    n_all, n_stored = len(result.asked_ids), len(result.stored_ids)
    if n_all == 0:
        return empty_figure("Nothing was asked for.")
    marks: dict[str, list[tuple[int, str]]] = {kind: [] for kind in MARK}
    names = []
    for way, found in (("keyed", result.ways.keyed), ("unchecked", result.ways.unchecked)):
        for layer, (stale, held) in enumerate(zip(result.stale, result.entries.held, strict=True), start=1):
            names.append(f"{way},<br>layer {layer}")
            for position in range(n_all):
                kind = COMPUTED
                if position < min(found.n_reused, n_stored):
                    kind = EVICTED if not held[position] else STALE if stale[position] else STORED
                marks[kind].append((position, names[-1]))
    traces = [
        {
            "type": "scatter", "mode": "markers", "name": kind, "marker": MARK[kind],
            "x": [position for position, _ in where], "y": [name for _, name in where],
            "hovertemplate": f"position %{{x}}<br>%{{y}}: {kind}<extra></extra>",
        }
        for kind, where in marks.items()
        if where
    ]  # fmt: skip
    rows = ["stored token", "asked token", *names]
    return framed(
        [*_tokens(result), *traces],
        200 + 34 * len(rows),
        left=8,
        xaxis=position_axis(n_all) | {"dtick": 1 if n_all <= 12 else 2, "range": [-0.6, n_all - 0.4], "tickangle": 0},
        yaxis={
            "categoryorder": "array", "categoryarray": rows[::-1], "automargin": True,
            "range": [-0.6, len(rows) - 0.4], "showgrid": False, "title": {"text": "way and layer"},
        },
    )  # fmt: skip


def _tokens(result: Result) -> list[dict]:
    """Token ids in two rows; a ring around those of the request that are not the stored ones."""
    n_stored = len(result.stored_ids)
    texts = [
        {
            "type": "scatter", "mode": "text", "x": np.arange(len(ids)), "y": [name] * len(ids),
            "text": [str(token) for token in ids], "textfont": {"size": 11}, "showlegend": False,
            "hovertemplate": f"position %{{x}}<br>{name} %{{text}}<extra></extra>",
        }
        for name, ids in (("stored token", result.stored_ids), ("asked token", result.asked_ids))
    ]  # fmt: skip
    other = np.flatnonzero(result.stored_ids != result.asked_ids[:n_stored])
    ring = {
        "type": "scatter", "mode": "markers", "name": "another token", "x": other, "y": ["asked token"] * len(other),
        "marker": {"symbol": "circle-open", "size": 20, "color": COLOR["flipped"], "line": {"width": 2}},
        "hoverinfo": "skip",
    }  # fmt: skip
    return [*texts, *([ring] if other.size else [])]
