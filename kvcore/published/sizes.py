"""Bytes of a cache under a named convention: several are in use for the same layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvcore.config import check_choice, check_int
from kvcore.published.formats import FORMATS, STATE_FORMATS
from kvcore.published.layer import GROWING, Description, Layer

CONVENTIONS = {
    "live": "what the architecture needs: its own KV heads, at most W tokens in a sliding layer and one chunk in a"
    " chunked one",
    "dynamic": "what the dynamic cache of transformers 5.24 holds between steps, made from the model's configuration:"
    " W − 1 tokens in a sliding layer, with that library's own exceptions",
    "static": "what that library's static cache preallocates: min(W, context) tokens in a sliding layer, the context"
    " elsewhere",
    "full": "the whole context in every layer that has attention, as tools without windows allocate it",
}

MOST_CONTEXT, MOST_BATCH, MOST_DEVICES = 1 << 40, 1 << 30, 1 << 20


@dataclass(frozen=True)
class Ask:
    """What a size is asked for: tokens a sequence, sequences, number format, convention, devices that share heads.

    Raises ValueError for counts and names that are not allowed.
    """

    context: int
    batch: int = 1
    format: str = "bf16"
    convention: str = "live"
    devices: int = 1

    def __post_init__(self) -> None:
        check_int("context", self.context, 0, MOST_CONTEXT)
        check_int("batch", self.batch, 1, MOST_BATCH)
        check_choice("format", self.format, tuple(FORMATS))
        check_choice("convention", self.convention, tuple(CONVENTIONS))
        check_int("devices", self.devices, 1, MOST_DEVICES)


@dataclass(frozen=True)
class LayerSize:
    """One layer: tokens that it keeps of a sequence, bytes of one token, and of the whole batch, on all devices."""

    kind: str
    tokens: int
    bytes_per_token: int
    bytes: int
    fixed_state_bytes: int | None


@dataclass(frozen=True)
class Size:
    """Bytes of a cache.

    `bytes` is the growing K/V of all layers and the whole batch on all devices; where devices share heads
    that do not divide, or replicate a latent row, that is more than on one. fixed_state_bytes is None where
    the description does not tell.
    """

    ask: Ask
    layers: tuple[LayerSize, ...]
    bytes_per_device: int

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    @property
    def fixed_state_bytes(self) -> int | None:
        states = [layer.fixed_state_bytes for layer in self.layers]
        return None if None in states else sum(states)

    def to_json(self) -> dict[str, Any]:
        return {
            "bytes": self.bytes,
            "fixed_state_bytes": self.fixed_state_bytes,
            "bytes_per_device": self.bytes_per_device,
            "layers": [vars(layer) for layer in self.layers],
        }


def tokens_kept(layer: Layer, context: int, convention: str) -> int:
    """Tokens of a sequence of `context` tokens that this layer keeps."""
    if layer.kind not in GROWING:
        return 0
    if layer.window is None or convention == "full":
        return context
    if layer.dynamic_tokens == 0 and convention in ("dynamic", "static"):
        return context
    if convention == "dynamic":
        return min(context, layer.dynamic_tokens or layer.window - 1)
    return min(context, layer.window)


def token_bytes(layer: Layer, number_format: str, convention: str = "live", devices: int = 1) -> tuple[int, int]:
    """Bytes of one token in this layer: on one device, and on all of them together.

    KV heads are dealt out to the devices; where there are fewer heads than devices each device keeps one.
    A latent row and an indexer's keys are on every device; the library's conventions count keys and values
    only, not what an indexer keeps beside them.
    """
    if layer.kind not in GROWING:
        return 0, 0
    row_bytes = FORMATS[number_format].row_bytes
    heads, key, value = layer.n_kv_heads, layer.key_width, layer.value_width
    if convention in ("dynamic", "static"):
        heads = layer.dynamic_heads or heads
        key = key if layer.dynamic_key_width is None else layer.dynamic_key_width
        value = value if layer.dynamic_value_width is None else layer.dynamic_value_width
    per_head = row_bytes(key) + row_bytes(value)
    index = 0 if convention in ("dynamic", "static") else row_bytes(layer.index_width)
    on_one = -(-heads // devices) * per_head + index
    on_all = max(heads, devices) * per_head + devices * index
    return on_one, on_all


def size(model: Description, ask: Ask) -> Size:
    """What the cache of this model takes."""
    layers, on_one = [], 0
    for layer in model.layers:
        tokens = tokens_kept(layer, ask.context, ask.convention)
        one, all_devices = token_bytes(layer, ask.format, ask.convention, ask.devices)
        fixed = state_bytes(layer, ask)
        layers.append(LayerSize(layer.kind, tokens, all_devices, tokens * all_devices * ask.batch, fixed))
        on_one += tokens * one * ask.batch
    return Size(ask, tuple(layers), on_one)


def state_bytes(layer: Layer, ask: Ask) -> int | None:
    """Bytes of a layer's fixed state for the whole batch, in the format asked for or bf16 where that has fewer bits."""
    if layer.state_elements is None:
        return None
    name = ask.format if ask.format in STATE_FORMATS else "bf16"
    return FORMATS[name].row_bytes(layer.state_elements) * ask.batch


def bytes_per_token(model: Description, number_format: str = "bf16", convention: str = "live") -> int:
    """Bytes that one more token takes while no window is full, one sequence on one device."""
    return sum(token_bytes(layer, number_format, convention)[0] for layer in model.layers)
