"""One decode step: its FLOPs, the bytes that it must read, and whether memory or arithmetic bounds it.

Bounds, not promises of speed: a step takes at least its bytes over the bandwidth, and at least its FLOPs over
the peak (scaling-book, inference.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcore.config import check_int
from kvcore.published.attending import attending
from kvcore.published.counts import ATTENTION_PARTS, feed_forward_weights, reasons_for, unembedding_weights
from kvcore.published.layer import Description
from kvcore.published.sizes import MOST_BATCH, MOST_CONTEXT, Ask, size

MOST_WEIGHT_BYTES = 1 << 60


@dataclass(frozen=True, eq=False)
class Step:
    """One decode step of a batch, each sequence with `context` tokens once the new one is among them.

    cache_bytes: keys and values, every layer's reading of them, also where a layer reads those of another.
    state_bytes: fixed states. weight_bytes is what the caller says that the step reads of the weights: for a
    mixture less than all, while the batch does not reach every expert. None is not known; `reasons` says why.
    """

    context: int
    batch: int
    format: str
    flops: Mapping[str, int | None]
    cache_bytes: int
    state_bytes: int | None
    weight_bytes: int | None
    reasons: Mapping[str, str]

    @property
    def total(self) -> int | None:
        """FLOPs of all parts, None where one of them is."""
        return None if None in self.flops.values() else sum(self.flops.values())

    @property
    def attention(self) -> int | None:
        """FLOPs of scores and weighted sum."""
        parts = [self.flops[part] for part in ATTENTION_PARTS]
        return None if None in parts else sum(parts)

    @property
    def bytes(self) -> int | None:
        """Bytes to read: weights, keys and values, and states; None where one of them is."""
        parts = (self.weight_bytes, self.cache_bytes, self.state_bytes)
        return None if None in parts else sum(parts)

    @property
    def attention_intensity(self) -> float | None:
        """FLOPs of attention per byte of keys and values: near 1 with a KV head a head in bf16, G with G heads each."""
        return self.attention / self.cache_bytes if self.attention is not None and self.cache_bytes else None

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte of the whole step."""
        return self.total / self.bytes if self.total is not None and self.bytes else None

    def to_json(self) -> dict[str, Any]:
        derived = ("total", "attention", "bytes", "attention_intensity", "intensity")
        plain = {**vars(self), "flops": dict(self.flops), "reasons": dict(self.reasons)}
        return plain | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True)
class Bound:
    """What bounds a step: the two times in seconds and the ridge, in FLOPs per byte, above which arithmetic does.

    in_turn_seconds: attention and the matrices one after the other, each at its own bound; never less than
    either time (scaling-book, inference.md: KV bytes / bandwidth + max(FLOPs / peak, weight bytes / bandwidth)).
    """

    bound: str
    memory_seconds: float
    arithmetic_seconds: float
    in_turn_seconds: float
    ridge: float

    def to_json(self) -> dict[str, Any]:
        return vars(self).copy()


def decode_step(
    model: Description, context: int, batch: int = 1, number_format: str = "bf16", weight_bytes: int | None = None
) -> Step:
    """The step whose query sees `context` tokens, its own among them; every token's logits are wanted.

    Keys are those that the query sees; latent attention works on the compressed rows themselves. Bytes are those
    of convention "live". Raises ValueError for counts and names that are not allowed.
    """
    check_int("context", context, 1, MOST_CONTEXT)
    check_int("batch", batch, 1, MOST_BATCH)
    if weight_bytes is not None:
        check_int("weight_bytes", weight_bytes, 0, MOST_WEIGHT_BYTES)
    taken = size(model, Ask(context, batch, number_format))
    reasons, adds = reasons_for(model), dict.fromkeys(("projections", *ATTENTION_PARTS), 0)
    for layer, count in attending(model).items():
        seen = count * layer.visible.at(context)
        adds["projections"] += count * (layer.projection + layer.decompression)
        adds["scores"] += seen * (layer.latent_score_width or layer.score_width)
        adds["weighted_sum"] += seen * (layer.latent_sum_width or layer.sum_width)
    adds |= {"feed_forward": feed_forward_weights(model), "unembedding": unembedding_weights(model), "other": 0}
    if taken.fixed_state_bytes is None:
        reasons["state_bytes"] = "the description does not tell the size of a fixed state"
    if weight_bytes is None:
        reasons["weight_bytes"] = "no weight bytes are given"
    again = [index for index in model.shapes.get("reads") or () if index is not None]
    return Step(
        context=context,
        batch=batch,
        format=number_format,
        flops={part: None if part in reasons else 2 * value * batch for part, value in adds.items()},
        cache_bytes=taken.bytes + sum(taken.layers[index].bytes for index in again),
        state_bytes=taken.fixed_state_bytes,
        weight_bytes=weight_bytes,
        reasons=reasons,
    )


def bound_by(step: Step, peak_flops: float, bandwidth: float) -> Bound:
    """Whether "memory" or "arithmetic" bounds a step on hardware of so many FLOPs and bytes a second in all.

    Equal times count as arithmetic. Raises ValueError for hardware figures that are not positive and finite,
    and for a step of which FLOPs or bytes are not known.
    """
    for name, value in (("peak_flops", peak_flops), ("bandwidth", bandwidth)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value <= 0:
            raise ValueError(f"{name} is {value!r}; it must be a number above 0")
    if step.total is None or step.bytes is None:
        missing = [name for name, value in step.flops.items() if value is None]
        missing += [name for name in ("state_bytes", "weight_bytes") if getattr(step, name) is None]
        raise ValueError(f"what bounds the step needs all its FLOPs and bytes; not known: {', '.join(missing)}")
    memory, arithmetic = step.bytes / bandwidth, step.total / peak_flops
    attention = max((step.cache_bytes + step.state_bytes) / bandwidth, step.attention / peak_flops)
    matrices = max(step.weight_bytes / bandwidth, (step.total - step.attention) / peak_flops)
    bound = "memory" if memory > arithmetic else "arithmetic"
    return Bound(bound, memory, arithmetic, attention + matrices, peak_flops / bandwidth)
