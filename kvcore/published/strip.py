"""The layers as runs of equal ones: which layers keep what."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from kvcore.published.layer import KINDS, Description, Layer
from kvcore.published.sizes import Size
from kvcore.units import both_units, plural


class Run(NamedTuple):
    """Layers first..last, all alike, and what they keep together, in bytes of the whole batch."""

    first: int
    last: int
    layer: Layer
    tokens: int
    bytes: int

    @property
    def span(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"

    @property
    def words(self) -> str:
        layer = self.layer
        if not layer.elements or layer.kind not in ("full", "sliding", "chunked", "latent"):
            return f"{layer.kind}: {KINDS[layer.kind]}"
        if layer.kind == "latent":
            what = f"a row of {layer.key_width:,} + {layer.value_width:,} numbers"
            what += f" and an indexer's {layer.index_width:,}" if layer.index_width else ""
        elif layer.key_width == layer.value_width:
            what = f"{plural(layer.n_kv_heads, 'KV head')} of {layer.key_width:,}"
        else:
            what = (
                f"{plural(layer.n_kv_heads, 'KV head')}, keys of {layer.key_width:,}, values of {layer.value_width:,}"
            )
        window = f" W = {layer.window:,}" if layer.window else ""
        return f"{layer.kind}{window}: {what}, {plural(self.tokens, 'token')}, {both_units(self.bytes)}"


def runs(model: Description, taken: Size) -> Iterator[Run]:
    """Neighbouring layers that keep the same, first to last."""
    together = zip(range(model.n_layers), model.layers, taken.layers, strict=True)
    for (layer, tokens), group in groupby(together, key=lambda entry: (entry[1], entry[2].tokens)):
        members = list(group)
        total = sum(each.bytes for _, _, each in members)
        yield Run(members[0][0], members[-1][0], layer, tokens, total)
