"""Work of a prompt and new tokens, with the cache and by recomputing every prefix. Counts, not promises of speed.

One multiply-add is 2 FLOPs. g new tokens: the call with the prompt gives the first, then come g − 1 decode steps,
so the cached way passes p + g − 1 tokens and recomputation passes p, p + 1, …, p + g − 1. All counts are exact
whole numbers by closed forms. The table of parts is that of scaling-book, transformers.md; PyTorch's FLOP counter
on eager models gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcore.config import check_choice, check_int
from kvcore.published.attending import Attending, attending
from kvcore.published.counts import PARTS, Counts, feed_forward_weights, parameters, reasons_for, unembedding_weights
from kvcore.published.decoding import bound_by, decode_step
from kvcore.published.layer import Description
from kvcore.published.sizes import MOST_BATCH, MOST_CONTEXT
from kvcore.published.visible import Visible, sum_of_squares_to, sum_to

__all__ = ["KEYS", "LATENT", "LOGITS", "PARTS", "Work", "bound_by", "decode_step", "parameters", "work"]

LOGITS = {
    "last": "one position a call: the one that a new token is taken from",
    "all": "every position of every call, as the forward of transformers gives them unless told otherwise",
}
KEYS = {
    "square": "every entry of the score matrices that transformers' eager attention allocates, masked ones too",
    "causal": "only the keys that each query sees",
}
LATENT = {
    "absorbed": "the prompt's rows are decompressed once; decode steps work on the compressed rows themselves",
    "decompressed": "every call decompresses all rows that it reads, as transformers 5.24 does",
}


@dataclass(frozen=True, eq=False)
class Work:
    """What was asked, the two ways, and a reason for every part that is None."""

    model: str
    prompt: int
    new_tokens: int
    batch: int
    logits: str
    keys: str
    latent: str
    cached: Counts
    recomputed: Counts
    reasons: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        ways = {"cached": self.cached.to_json(), "recomputed": self.recomputed.to_json()}
        return {**vars(self), **ways, "reasons": dict(self.reasons)}


def work(
    model: Description,
    prompt: int,
    new_tokens: int,
    batch: int = 1,
    logits: str = "last",
    keys: str = "square",
    latent: str = "absorbed",
) -> Work:
    """Work of `prompt` tokens and `new_tokens` more, for a batch of sequences of the same length.

    `logits`, `keys` and `latent` are names in LOGITS, KEYS and LATENT: which positions are unembedded, which
    score elements the FLOPs of scores and weighted sum count, and how latent attention reads its rows.
    In a square, a call with n tokens allocates n × n, in a sliding or chunked layer too; a decode step allocates
    one row of the keys that transformers' dynamic cache gives it: at most W in a sliding layer and C in a chunked one.

    Raises ValueError for counts below 1 or beyond what is allowed, and for unknown names.
    """
    check_int("prompt", prompt, 1, MOST_CONTEXT)
    check_int("new_tokens", new_tokens, 1, MOST_CONTEXT)
    check_int("batch", batch, 1, MOST_BATCH)
    for name, value, choices in (("logits", logits, LOGITS), ("keys", keys, KEYS), ("latent", latent, LATENT)):
        check_choice(name, value, tuple(choices))
    end, reasons = prompt + new_tokens - 1, reasons_for(model)
    calls = {"cached": end, "recomputed": sum_to(end) - sum_to(prompt - 1)}
    made = {}
    for way, passes in calls.items():
        square = causal = rows = projections = scores = sums = 0
        for layer, count in attending(model).items():
            first, later = (_cached if way == "cached" else _recomputed)(layer, prompt, end)
            square += count * layer.n_heads * (first.square + later.square)
            causal += count * layer.n_heads * (first.causal + later.causal)
            rows += count * layer.rows * passes
            absorbed = latent == "absorbed" and layer.decompression
            decompressed = passes if absorbed else first.read + later.read
            projections += count * (layer.projection * passes + layer.decompression * decompressed)
            widths = (layer.latent_score_width, layer.latent_sum_width) if absorbed else _widths(layer)
            early, late = (first.square, later.square) if keys == "square" else (first.causal, later.causal)
            scores += count * (layer.score_width * early + widths[0] * late)
            sums += count * (layer.sum_width * early + widths[1] * late)
        wanted = passes if logits == "all" else new_tokens
        adds = {
            "projections": projections,
            "scores": scores,
            "weighted_sum": sums,
            "feed_forward": feed_forward_weights(model) * passes,
            "unembedding": unembedding_weights(model) * wanted,
            "other": 0,
        }
        flops = {part: None if part in reasons else 2 * value * batch for part, value in adds.items()}
        unknown = "scores" in reasons
        made[way] = Counts(
            token_passes=passes * batch,
            projected_rows=None if "projected_rows" in reasons else rows * batch,
            score_square=None if unknown else square * batch,
            score_causal=None if unknown else causal * batch,
            flops=flops,
        )
    return Work(model.name, prompt, new_tokens, batch, logits, keys, latent, reasons=reasons, **made)


@dataclass(frozen=True)
class _Calls:
    """Score elements of one head in one layer, and rows that are read, over some calls."""

    square: int
    causal: int
    read: int


def _widths(layer: Attending) -> tuple[int, int]:
    return layer.score_width, layer.sum_width


def _cached(layer: Attending, prompt: int, end: int) -> tuple[_Calls, _Calls]:
    """(the call with the prompt, the decode steps)."""
    held = Visible(window=layer.held)
    steps = held.to(end) - held.to(prompt)
    seen = layer.visible.to(prompt)
    return _Calls(prompt**2, seen, prompt), _Calls(steps, layer.visible.to(end) - seen, steps)


def _recomputed(layer: Attending, prompt: int, end: int) -> tuple[_Calls, _Calls]:
    """(every prefix from the prompt's on, no decode steps)."""
    square = sum_of_squares_to(end) - sum_of_squares_to(prompt - 1)
    causal = layer.visible.prefixes_to(end) - layer.visible.prefixes_to(prompt - 1)
    return _Calls(square, causal, sum_to(end) - sum_to(prompt - 1)), _Calls(0, 0, 0)
