"""The parts of a model's FLOPs: their names, counts of them, and why one is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcore.published.attending import attending
from kvcore.published.feed_forward import from_shapes
from kvcore.published.layer import Description

PARTS = {
    "projections": "from hidden states to queries, keys and values, and from heads back to the width",
    "scores": "queries times keys",
    "weighted_sum": "probabilities times values",
    "feed_forward": "the feed-forward layers; of a mixture its active experts, the shared one and the router",
    "unembedding": "from hidden states to logits",
    "other": "what else multiplies matrices: recurrent layers, gates, further paths",
}
"""The parts of the FLOPs. Softmax, norms, activations and rotary positions are in none: they multiply no matrices."""

ATTENTION_PARTS = ("scores", "weighted_sum")


@dataclass(frozen=True)
class Counts:
    """The work of some calls; None where `reasons` of the whole says why.

    projected_rows: rows that enter a Q, K or V projection, over the layers with attention; the joint compression
    of latent attention counts as its K and its V. score_square and score_causal: entries of the score matrices of
    all heads and layers, allocated and visible.
    """

    token_passes: int
    projected_rows: int | None
    score_square: int | None
    score_causal: int | None
    flops: Mapping[str, int | None]

    @property
    def total(self) -> int | None:
        """FLOPs of all parts, None where one of them is."""
        return None if None in self.flops.values() else sum(self.flops.values())

    @property
    def counted(self) -> int:
        """FLOPs of the parts that are known."""
        return sum(value for value in self.flops.values() if value is not None)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "flops": dict(self.flops), "total": self.total, "counted": self.counted}


def reasons_for(model: Description) -> dict[str, str]:
    """Why a part of this model's work is None, by the part's name; empty where everything is counted."""
    found = dict(model.shapes.get("reasons") or {})
    kinds = model.kinds
    for kind, fact in (("latent", "latent"), ("shared", "reads"), ("cross", "")):
        if kind in kinds and not model.shapes.get(fact):
            why = f"the description does not say what its {kind} layers multiply"
            for part in ("projections", *ATTENTION_PARTS):
                found.setdefault(part, why)
    if any(layer.state_elements != 0 for layer in model.layers):
        found.setdefault("other", "what its recurrent layers do to mix tokens is not counted")
    if not model.shapes.get("feed_forward"):
        found.setdefault("feed_forward", "the description does not say what the feed-forward is")
    if model.vocab_size is None:
        found.setdefault("unembedding", "the description has no vocab_size")
    return found


def feed_forward_weights(model: Description) -> int:
    """Multiply-adds of one token in all feed-forward layers; 0 where they are not known."""
    given = model.shapes.get("feed_forward")
    return sum(form.weights(model.d_model) for form in from_shapes(given)) if given else 0


def parameters(model: Description) -> int | None:
    """Weights of the matrices of all layers, of every expert, and of the embedding and the unembedding.

    Exact for those; biases, norms, sinks and tables of positions are left out. None where a part of the layers,
    or whether the two embeddings are one, is not known.
    """
    tied, reasons = model.shapes.get("tied"), reasons_for(model)
    if tied is None or reasons.keys() & {"projections", "feed_forward", "unembedding", "other"}:
        return None
    attention = sum(count * (each.projection + each.decompression) for each, count in attending(model).items())
    forms = from_shapes(model.shapes["feed_forward"])
    rows = unembedding_weights(model) * (1 if tied else 2)
    return attention + sum(form.all_weights(model.d_model) for form in forms) + rows


def unembedding_weights(model: Description) -> int:
    """Multiply-adds of one position's logits."""
    return model.shapes.get("embedding_width", model.d_model) * (model.vocab_size or 0)
