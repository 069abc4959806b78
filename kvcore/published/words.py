"""Sentences on a model's cache, each computed: what keeps what, and what decides its size."""

from __future__ import annotations

from collections import Counter

from kvcore.published.layer import GROWING, KINDS, Description, Layer
from kvcore.published.sizes import Ask, size, token_bytes
from kvcore.units import both_units, context_in_words, plural


def decides(model: Description, ask: Ask) -> str:
    """What decides this model's cache at this context, in two sentences at most."""
    layers = plural(model.n_layers, "layer")
    if not any(layer.kind in GROWING for layer in model.layers):
        return f"None of {layers} keeps keys and values: the cache does not grow with the text."
    taken = size(model, ask).bytes
    takes = f"at {context_in_words(ask.context)} the cache takes {both_units(taken)}"
    kinds = Counter(sorted((list(KINDS).index(layer.kind), _what(layer)) for layer in model.layers))
    compared = _if_all_were_full(model, ask, taken)
    if len(kinds) == 1:
        return f"All {layers} {_what(model.layers[0])}: {takes}{compared}.{_heads(model)}"
    parts = [f"{count:,} {what}" for (_, what), count in kinds.items()]
    listed = "; ".join([parts[0].replace(" ", f" of {layers} ", 1), *parts[1:-1], f"the other {parts[-1]}"])
    return f"{listed}: {takes}{compared}."


def _what(layer: Layer) -> str:
    if layer.kind in ("sliding", "chunked"):
        what = "stop at" if layer.kind == "sliding" else "keep at most a chunk of"
        return f"{what} {plural(layer.window, 'token')}"
    return {
        "full": "keep everything",
        "latent": f"keep one compressed row of {layer.elements:,} numbers a token",
        "recurrent": "hold a state of fixed size",
        "shared": "read the entries of earlier layers",
        "cross": "keep no text, only another input",
        "none": "have no attention",
    }[layer.kind]


def _if_all_were_full(model: Description, ask: Ask, taken: int) -> str:
    """How much smaller the cache is than if every layer kept every token, as one of its own layers does."""
    growing = [layer for layer in model.layers if layer.kind in GROWING]
    widest = max(growing, key=lambda layer: (layer.kind in ("full", "latent"), layer.elements))
    per_token = token_bytes(widest, ask.format, ask.convention, ask.devices)[1]
    every = model.n_layers * ask.context * per_token * ask.batch
    if not taken or every <= taken:
        return ""
    return f", {every / taken:.{0 if every >= 100 * taken else 1}f} times smaller than if all were full"


def _heads(model: Description) -> str:
    """What sharing KV heads saves, where every layer is alike."""
    layer = model.layers[0]
    if layer.kind == "latent" or layer.n_kv_heads in (0, model.n_heads):
        return ""
    return (
        f" {plural(model.n_heads, 'query head')} share {plural(layer.n_kv_heads, 'KV head')}, so it is"
        f" {model.n_heads // layer.n_kv_heads} times smaller than with a KV head for each."
    )
