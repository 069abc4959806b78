"""From a config.json to the description of its cache, with an account of what was read and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvcore.published import families
from kvcore.published.heads import Heads, Latent, heads, latent
from kvcore.published.kinds import layer_kinds
from kvcore.published.layer import Description, Layer
from kvcore.published.nested import language_model
from kvcore.published.reader import Reader, short
from kvcore.published.shapes import shapes
from kvcore.published.state import state_elements

NEEDED = ("num_hidden_layers", "num_attention_heads", "hidden_size")


def describe(config: Mapping[str, Any], name: str = "") -> Description:
    """What the cache of this configuration keeps, layer by layer.

    Raises ValueError with one sentence that says what is missing or not allowed.
    """
    raw, model_type, told = language_model(config)
    reader = Reader(raw, model_type)
    reader.rules += told
    if reader.generic:
        _check_generic(reader)
    d_model = reader.needed("hidden_size", "width", "how wide a layer is")
    n_layers = families.depth(reader)
    if families.has_no_attention(reader):
        n_heads = width = 0
        layers = _without_attention(reader, n_layers, d_model)
    else:
        n_heads = families.query_heads(reader)
        layers, width = _layers(reader, n_layers, d_model, n_heads)
    return Description(
        name=name or model_type or "config.json",
        model_type=model_type,
        layers=layers,
        d_model=d_model,
        n_heads=n_heads,
        head_dim=width,
        vocab_size=reader.whole("vocab_size", "width"),
        max_context=reader.whole("max_position_embeddings", "tokens"),
        dtype=families.number_format(config, reader),
        shapes=shapes(reader, layers, d_model),
        rules=tuple(reader.rules),
    )


def _check_generic(reader: Reader) -> None:
    """The generic rule needs layers, heads and width."""
    missing = [
        key for key in NEEDED if reader.name_in_file(key) is None or reader.raw[reader.name_in_file(key)] is None
    ]
    named = f"model_type {short(reader.model_type)} is not known" if reader.model_type else "there is no model_type"
    if missing:
        raise ValueError(f"{named} and the file has no {' and no '.join(missing)}; the generic rule needs all three")
    reader.told("model_type", reader.model_type or None, "generic", f"{named}: computed by the generic rule")


def _without_attention(reader: Reader, n_layers: int, d_model: int) -> tuple[Layer, ...]:
    state = state_elements(reader, d_model)
    reader.told("layer kinds", "recurrent", "derived", f"{reader.model_type} has no attention")
    return (Layer("recurrent", state_elements=state),) * n_layers


def _layers(reader: Reader, n_layers: int, d_model: int, n_heads: int) -> tuple[tuple[Layer, ...], int]:
    """Every layer, and the width of a query head."""
    window = families.window(reader)
    kinds = layer_kinds(reader, n_layers, window)
    compressed = latent(reader)
    own = None if compressed else heads(reader, d_model, n_heads)
    state = state_elements(reader, d_model) if {"recurrent", "hybrid", "hybrid sliding"} & {*kinds} else 0
    chunk = reader.whole("attention_chunk_size", "tokens") if "chunked" in kinds else None
    if "sliding" in kinds and window is None:
        reader.told("window", None, "derived", "no window is given, so sliding layers keep everything")
    if "chunked" in kinds and chunk is None:
        reader.told("chunk", None, "derived", "no attention_chunk_size is given, so chunked layers keep everything")
    layers = [_layer(kind, own, compressed, window, chunk, state) for kind in kinds]
    layers = families.adjusted(reader, layers, own)
    width = own.key_width if own else families.latent_query_width(reader, compressed)
    return tuple(layers), width


def _layer(
    kind: str, own: Heads | None, compressed: Latent | None, window: int | None, chunk: int | None, state: int | None
) -> Layer:
    if kind == "recurrent":
        return Layer("recurrent", state_elements=state)
    if kind in ("none", "cross"):
        return Layer(kind)
    state = state if kind.startswith("hybrid") else 0
    if compressed is not None:
        made = Layer(
            "latent", 1, compressed.rank, compressed.rotary, index_width=compressed.index, state_elements=state
        )
        return replace(made, window=window) if kind == "sliding" else made
    made = Layer("full", own.n_kv_heads, own.key_width, own.value_width, state_elements=state, dynamic_heads=own.stored)
    if kind in ("sliding", "hybrid sliding") and window is not None:
        return replace(made, kind="sliding", window=window)
    if kind == "chunked" and chunk is not None:
        return replace(made, kind="chunked", window=chunk)
    return made
