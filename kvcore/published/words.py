"""Sentences on a model's cache, each computed: what keeps what, and what decides its size."""

from __future__ import annotations

from collections import Counter

from kvcore.published.layer import GROWING, KINDS, Description, Layer
from kvcore.published.sizes import Ask, size, token_bytes
from kvcore.units import both_units, context_in_words, plural

SHAPE = ("num_hidden_layers", "num_attention_heads", "hidden_size")
"""Facts without which a size is that of the family's example and hardly of the model meant."""


def decides(model: Description, ask: Ask) -> str:
    """What decides this model's cache at this context, in two sentences at most."""
    layers = plural(model.n_layers, "layer")
    if not any(layer.kind in GROWING for layer in model.layers):
        none = f"None of {layers} keeps" if model.n_layers > 1 else "Its only layer does not keep"
        return f"{none} keys and values: the cache does not grow with the text."
    taken = size(model, ask).bytes
    takes = f"at {context_in_words(ask.context)} the cache takes {both_units(taken)}"
    kinds = Counter(sorted((list(KINDS).index(layer.kind), _what(layer), _what(layer, 1)) for layer in model.layers))
    compared = _if_all_were_full(model, ask, taken)
    if len(kinds) == 1:
        every = f"All {layers} {_what(model.layers[0])}" if model.n_layers > 1 else _only(model.layers[0])
        return f"{every}: {takes}{compared}.{_heads(model)}"
    parts = [(count, one if count == 1 else more) for (_, more, one), count in kinds.items()]
    (first, does), *middle, (last, does_last) = parts
    others = f"the other {last:,} {does_last}" if last > 1 else f"the other {does_last}"
    listed = "; ".join([f"{first:,} of {layers} {does}", *(f"{count:,} {what}" for count, what in middle), others])
    return f"{listed}: {takes}{compared}."


def guessed(model: Description) -> str:
    """That the family is not known, or that its shape is not in the file but the family's own; or nothing."""
    if any(rule.fact == "model_type" and rule.how == "generic" for rule in model.rules):
        return f"The family of {model.name} is not known here, so the generic rule reads its file."
    missing = [rule.fact for rule in model.rules if rule.fact in SHAPE and rule.how == "absent"]
    if not missing:
        return ""
    return f"The file of {model.name} holds no {' and no '.join(missing)}; what the family assumes is counted."


def _only(layer: Layer) -> str:
    return f"Its only layer {_what(layer, 1)}"


def _what(layer: Layer, count: int = 2) -> str:
    """What `count` such layers do."""
    more, one, what = {
        "full": ("keep", "keeps", "everything"),
        "sliding": ("stop", "stops", f"at {plural(layer.window or 0, 'token')}"),
        "chunked": ("keep", "keeps", f"at most a chunk of {plural(layer.window or 0, 'token')}"),
        "latent": ("keep", "keeps", f"one compressed row of {layer.elements:,} numbers a token"),
        "recurrent": ("hold", "holds", "a state of fixed size"),
        "shared": ("read", "reads", "the entries of earlier layers"),
        "cross": ("keep", "keeps", "no text, only another input"),
        "none": ("have", "has", "no attention"),
    }[layer.kind]
    return f"{one if count == 1 else more} {what}"


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
