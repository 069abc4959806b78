"""One layer's attention as its work is counted: multiply-adds of a token's projections, widths, and what it sees.

Multiply-adds of one token: Q d·H·h, K and V d·K·(key width + value width), O H·(value width)·d, as in
scaling-book, transformers.md, QKVO. H query heads drive the scores; K drives only the projections of keys and
values and the cache.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvcore.published.layer import GROWING, Description, Layer
from kvcore.published.visible import Visible


@dataclass(frozen=True)
class Attending:
    """`score_width` is multiply-adds of one query against one key, over all heads; `sum_width` of one key's value.

    The latent widths are those of latent attention that works on the compressed rows themselves ("absorbed");
    `decompression` is the multiply-adds that make keys and values of one row. `held` is how many keys
    transformers' dynamic cache gives a decode step at most, None for all. `rows` is how many of Q, K and V a
    token's row enters: 3, or 1 in a layer that shares the entries of another.
    """

    n_heads: int
    score_width: int
    sum_width: int
    projection: int
    rows: int
    visible: Visible
    held: int | None
    decompression: int = 0
    latent_score_width: int = 0
    latent_sum_width: int = 0


def attending(model: Description) -> Counter[Attending]:
    """The layers of this model that have attention over the text, and how many there are of each."""
    reads = iter(model.shapes.get("reads") or ())
    found: Counter[Attending] = Counter()
    for layer in model.layers:
        source = layer
        if layer.kind == "shared":
            index = next(reads, None)
            if index is None:
                continue
            source = model.layers[index]
        if source.kind not in GROWING:
            continue
        made = _latent(model, source) if source.kind == "latent" else _heads(model, source, layer.kind == "shared")
        if made is not None:
            found[made] += 1
    return found


def _heads(model: Description, layer: Layer, shared: bool) -> Attending:
    queries, values = model.n_heads * layer.key_width, model.n_heads * layer.value_width
    own = 0 if shared else layer.n_kv_heads * (layer.key_width + layer.value_width)
    projection = model.d_model * (queries + own + values)
    return Attending(model.n_heads, queries, values, projection, 1 if shared else 3, _visible(layer), _held(layer))


def _latent(model: Description, layer: Layer) -> Attending | None:
    """Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): compressed rows of rank r, rotary part beside."""
    facts = model.shapes.get("latent")
    if facts is None:
        return None
    heads, rank = model.n_heads, layer.key_width
    nope, rope, value = facts["nope"], facts["rope"], facts["value"]
    queries = heads * (nope + rope)
    compressed = facts["query_rank"]
    to_queries = compressed * (model.d_model + queries) if compressed else model.d_model * queries
    return Attending(
        n_heads=heads,
        score_width=queries,
        sum_width=heads * value,
        projection=to_queries + model.d_model * (rank + rope) + heads * value * model.d_model,
        rows=3,
        visible=_visible(layer),
        held=_held(layer),
        decompression=rank * heads * (nope + value),
        latent_score_width=heads * (rank + rope),
        latent_sum_width=heads * rank,
    )


def _visible(layer: Layer) -> Visible:
    return Visible(chunk=layer.window) if layer.kind == "chunked" else Visible(window=layer.window)


def _held(layer: Layer) -> int | None:
    if layer.window is None or layer.dynamic_tokens == 0:
        return None
    return (layer.dynamic_tokens or layer.window - 1) + 1
