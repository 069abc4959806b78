"""Published models drawn against their context: the cache with its knees, and how many sequences fit."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

import plotly.graph_objects as go

from kvcore.figures.frame import framed, upright
from kvcore.figures.theme import COLOR, LINE, empty_figure
from kvcore.studies import published_curves as curves
from kvcore.studies.published_result import Result
from kvcore.units import both_units, context_in_words, plural, short_bytes

STYLES = (
    (LINE["full"], "solid"),
    (LINE["prefix recomputation"], "dash"),
    (LINE["chunk cache"], "dashdot"),
    (LINE["token cache"], "longdash"),
)
"""One a model, in the order in which they are chosen: colour, mark and dash."""


def payload(result: Result) -> go.Figure:
    """Bytes against tokens on log axes, a line a model; knees, longest contexts and the chosen one are marked."""
    lines = result.payload()
    if not any(map(any, lines)):
        return empty_figure("None of these models keeps keys and values that grow with the text.")
    traces = _lines(result, lines, both_units)
    first, ask = result.models[0], result.config.ask
    full = [context * curves.if_all_full(first, ask) // ask.context for context in result.contexts]
    if full[-1] > lines[0][-1] > 0:
        name = "if all were full" if len(result.models) == 1 else "the first, if all were full"
        style = {"color": COLOR["muted"], "width": 2, "dash": "dot"}
        traces.append(_line(name, result.contexts, full, both_units, style))
    traces += _states(result)
    traces += _marks(result, lines)
    return _figure(result, traces, _bytes_axis([each for line in [*lines, full] for each in line]))


def sequences(result: Result) -> go.Figure:
    """Sequences that fit against tokens of each on log axes; a line ends where not even one fits."""
    lines = result.sequences()
    if not any(map(any, lines)):
        return empty_figure("At no context here does a sequence fit beside the weights.")
    traces = _lines(result, lines, lambda n: plural(n, "sequence"))
    axis = {"title": {"text": "sequences that fit"}, "type": "log", "dtick": 1, "zeroline": False, "tickformat": "~s"}
    return _figure(result, traces, axis)


def _figure(result: Result, traces: list[dict], yaxis: dict) -> go.Figure:
    contexts, chosen = result.contexts, result.config.context
    low, high = len(f"{contexts[0]:b}"), len(f"{contexts[-1]:b}")
    first, last = log10(contexts[0]), log10(contexts[-1])
    line, note = upright(log10(chosen), context_in_words(chosen), COLOR["new"], first, last)
    line |= {"x0": chosen, "x1": chosen}
    ticks = [1 << power for power in range(low - 1, high + 1, 3 if high - low < 16 else 4)]
    names = [context_in_words(tick).replace(" tokens", "").replace(" token", "") for tick in ticks]
    xaxis = {"title": {"text": "context (tokens)"}, "type": "log", "tickvals": ticks, "ticktext": names}
    xaxis |= {"zeroline": False, "range": [first, last]}
    height = 410 + 16 * max(0, len(traces) - 3)  # a phone's legend has one entry a line
    return framed(traces, height, 70, showlegend=True, xaxis=xaxis, yaxis=yaxis, shapes=[line], annotations=[note])


def _lines(result: Result, lines: Sequence[Sequence[int]], said) -> list[dict]:
    """A line a model; what is 0 has no place on a log axis and is left out."""
    return [
        _line(model.name, result.contexts, line, said, {"color": style.color, "width": 3, "dash": dash})
        for model, line, (style, dash) in zip(result.models, lines, STYLES, strict=False)
    ]


def _line(name: str, contexts: Sequence[int], values: Sequence[int], said, style: dict) -> dict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": contexts,
        "y": [float(each) if each else None for each in values],
        "customdata": [[context_in_words(n), said(each)] for n, each in zip(contexts, values, strict=True)],
        "line": style,
        "hovertemplate": f"{name}<br>%{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
    }


def _states(result: Result) -> list[dict]:
    """A level line for each fixed state: it stands beside the cache and is not in it."""
    found = []
    for model, taken, (style, _) in zip(result.models, result.sizes, STYLES, strict=False):
        if taken.fixed_state_bytes:
            ends = [result.contexts[0], result.contexts[-1]]
            look = {"color": style.color, "width": 1, "dash": "dot"}
            found.append(_line(f"{model.name}: fixed state", ends, [taken.fixed_state_bytes] * 2, both_units, look))
    return found


def _marks(result: Result, lines: Sequence[Sequence[int]]) -> list[dict]:
    """Rings where windows are full, and triangles where a file says that the context ends."""
    at = [dict(zip(result.contexts, line, strict=True)) for line in lines]
    convention = result.config.convention
    full = [
        (knee, float(held[knee]), f"{model.name}: {plural(knee, 'token')} fill a window", style.color)
        for model, held, (style, _) in zip(result.models, at, STYLES, strict=False)
        for knee in curves.knees(model, convention)
        if held.get(knee)
    ]
    ends = [
        (model.max_context, float(held[model.max_context]), f"{model.name}: its file stops here", style.color)
        for model, held, (style, _) in zip(result.models, at, STYLES, strict=False)
        if held.get(model.max_context)
    ]
    named = [("a window is full", "circle-open", full), ("the file's longest context", "triangle-right", ends)]
    return [
        {
            "type": "scatter", "mode": "markers", "name": name, "x": [x for x, *_ in marks],
            "y": [y for _, y, *_ in marks], "customdata": [text for _, _, text, _ in marks],
            "marker": {"symbol": symbol, "size": 11, "color": [color for *_, color in marks],
                       "line": {"width": 3, "color": [color for *_, color in marks]}},
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for name, symbol, marks in named
        if marks
    ]  # fmt: skip


def _bytes_axis(values: Sequence[int]) -> dict:
    """A log axis with ticks at powers of two, eight at most."""
    drawn = [each for each in values if each]
    low, high = min(drawn).bit_length() - 1, max(drawn).bit_length()
    step = next(each for each in (1, 2, 3, 5, 10, 20, 40) if high - low <= 7 * each or each == 40)
    ticks = [1 << power for power in range(step * (low // step), high + step, step)]
    axis = {"title": {"text": "K/V cache"}, "type": "log", "zeroline": False}
    return axis | {"tickvals": [float(tick) for tick in ticks], "ticktext": [short_bytes(tick) for tick in ticks]}
