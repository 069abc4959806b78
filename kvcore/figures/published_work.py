"""FLOPs of published models by part, with the cache and by recomputing every prefix."""

from __future__ import annotations

import plotly.graph_objects as go

from kvcore.figures.frame import framed
from kvcore.figures.published import STYLES
from kvcore.figures.theme import empty_figure
from kvcore.published.counts import PARTS
from kvcore.studies.published_result import Result
from kvcore.studies.published_work import WAYS, count_in_words

NAMES = {
    "projections": "projec-<br>tions",
    "weighted_sum": "weighted<br>sum",
    "feed_forward": "feed-<br>forward",
    "unembedding": "unem-<br>bedding",
}


def flops(result: Result) -> go.Figure:
    """FLOPs of each part on a log axis: filled marks with the cache, open ones by prefix recomputation."""
    done = result.works()
    parts = [part for part in PARTS if any(getattr(each, way).flops[part] for each in done for way in WAYS)]
    if not parts:
        return empty_figure("No part of this work is counted.")
    traces = []
    for model, each, (style, _) in zip(result.models, done, STYLES, strict=False):
        for way, said in WAYS.items():
            values = [getattr(each, way).flops[part] for part in parts]
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": f"{model.name}, {said}",
                    "x": [NAMES.get(part, part) for part in parts],
                    "y": [float(value) if value else None for value in values],
                    "customdata": ["" if value is None else f"{value:,}" for value in values],
                    "offsetgroup": model.name,
                    "marker": {
                        "symbol": style.symbol if way == "cached" else f"{style.symbol}-open", "size": 12,
                        "color": style.color, "line": {"width": 2, "color": style.color},
                    },
                    "hovertemplate": f"{model.name}<br>{said}<br>%{{x}}<br>%{{customdata}} FLOPs<extra></extra>",
                }
            )  # fmt: skip
    drawn = [value for trace in traces for value in trace["y"] if value]
    powers = range(len(str(int(min(drawn)))) - 1, len(str(int(max(drawn)))) + 1)
    ticks = [10**power for power in powers if power % 3 == 0 or len(powers) < 8]
    yaxis = {"title": {"text": "FLOPs"}, "type": "log", "tickvals": [float(tick) for tick in ticks], "zeroline": False}
    yaxis |= {"ticktext": [count_in_words(tick) for tick in ticks]}
    xaxis = {"title": {"text": "part of the work"}, "zeroline": False, "tickangle": 0, "tickfont": {"size": 10}}
    figure = framed(traces, 400 + 36 * len(done), 100, showlegend=True, xaxis=xaxis, yaxis=yaxis, scattermode="group")
    return figure.update_layout(legend={"entrywidth": 260}, margin={"b": 95 + 36 * len(done)})
