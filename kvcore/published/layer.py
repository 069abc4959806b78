"""One description of a model's cache, layer by layer: what each layer keeps of every token, and of how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

KINDS = {
    "full": "keeps every token",
    "sliding": "keeps the last W tokens",
    "chunked": "keeps the tokens of the current chunk",
    "latent": "keeps one compressed row a token (MLA)",
    "recurrent": "keeps a state of fixed size",
    "shared": "reads the entries of an earlier layer and keeps nothing",
    "cross": "keeps the tokens of another input (images), none of the text",
    "none": "has no attention and keeps nothing",
}
"""The kinds of layers, and what each keeps."""

GROWING = ("full", "sliding", "chunked", "latent")
"""Kinds whose entries grow with the text, at least to a window."""


@dataclass(frozen=True)
class Layer:
    """What one layer keeps: `n_kv_heads` rows of key_width and value_width numbers a token.

    `window` is W or the chunk, in tokens. A latent layer has one head: its key is the compressed row, its
    value the rotary part that all heads share; `index_width` is what a sparse indexer keeps beside them.
    `state_elements` is the size of a fixed state, None where the file does not tell.

    Where transformers' dynamic cache keeps something else, `dynamic_heads`, `dynamic_key_width`,
    `dynamic_value_width` and `dynamic_tokens` say what (tokens: at most so many, 0 for all).
    """

    kind: str
    n_kv_heads: int = 0
    key_width: int = 0
    value_width: int = 0
    window: int | None = None
    index_width: int = 0
    state_elements: int | None = 0
    dynamic_heads: int | None = None
    dynamic_key_width: int | None = None
    dynamic_value_width: int | None = None
    dynamic_tokens: int | None = None

    @property
    def elements(self) -> int:
        """Numbers kept of one token."""
        return self.n_kv_heads * (self.key_width + self.value_width) + self.index_width

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Rule:
    """Where a fact came from: `how` is "read", "absent", "null", "derived", "preset" or "generic"."""

    fact: str
    value: Any
    how: str
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Description:
    """A model's cache and the shapes that decide its work.

    layers: one Layer a layer. n_heads and head_dim are those of the queries, d_model the width between layers;
    `shapes` holds what the work needs beyond that, by name. max_context and dtype are what the file says, or None.
    """

    name: str
    model_type: str
    layers: tuple[Layer, ...]
    d_model: int
    n_heads: int
    head_dim: int
    vocab_size: int | None = None
    max_context: int | None = None
    dtype: str | None = None
    rules: tuple[Rule, ...] = ()
    shapes: Mapping[str, Any] = field(default_factory=dict)
    source: tuple[str, ...] = ()

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def kinds(self) -> dict[str, int]:
        """How many layers there are of each kind, in the order of KINDS."""
        counted = Counter(layer.kind for layer in self.layers)
        return {kind: counted[kind] for kind in KINDS if counted[kind]}
