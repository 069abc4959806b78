"""A cache against its context: bytes at many contexts at once, where layers stop growing, and if all were full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kvcore.published.layer import GROWING, Description
from kvcore.published.sizes import Ask, size, token_bytes, tokens_kept

SHORTEST, LONGEST = 128, 1 << 20
"""Contexts between which a curve is drawn at least."""


def grown(model: Description, ask: Ask, contexts: Iterable[int], on_one_device: bool = False) -> list[int]:
    """Bytes at each context, as `size` counts them; alike layers are counted once, so that many are no work."""
    which = 0 if on_one_device else 1
    groups = [
        (layer, count * token_bytes(layer, ask.format, ask.convention, ask.devices)[which] * ask.batch)
        for layer, count in Counter(layer for layer in model.layers if layer.kind in GROWING).items()
    ]
    return [sum(tokens_kept(layer, n, ask.convention) * each for layer, each in groups) for n in contexts]


def knees(model: Description, convention: str) -> list[int]:
    """Contexts at which some layers are full and grow no more, shortest first."""
    kept = {tokens_kept(layer, 1 << 40, convention) for layer in model.layers if layer.kind in GROWING}
    return sorted(each for each in kept if 0 < each < 1 << 40)


def contexts(models: Sequence[Description], ask: Ask) -> list[int]:
    """Four a doubling from the shortest to the longest; each knee, each file's longest and the one asked for among."""
    longest = [model.max_context for model in models if model.max_context]
    low, high = min(SHORTEST, ask.context), max(LONGEST, ask.context, *longest)
    spread = {round(low * 2 ** (step / 4)) for step in range(4 * (high // low).bit_length())}
    marked = {knee for model in models for knee in knees(model, ask.convention)} | {*longest, ask.context, high}
    return sorted(each for each in spread | marked if low <= each <= high)


def if_all_full(model: Description, ask: Ask) -> int:
    """Bytes if every layer kept every token, each as much of it as the widest layer does."""
    growing = [layer for layer in model.layers if layer.kind in GROWING]
    if not growing:
        return 0
    widest = max(growing, key=lambda layer: (layer.kind in ("full", "latent"), layer.elements))
    per_token = token_bytes(widest, ask.format, ask.convention, ask.devices)[1]
    return model.n_layers * ask.context * per_token * ask.batch


def one_more(model: Description, ask: Ask) -> int:
    """Bytes that the next token of one sequence adds at this context, on one device."""
    before, after = grown(model, Ask(ask.context, 1, ask.format, ask.convention), (ask.context, ask.context + 1))
    return after - before


def by_convention(model: Description, ask: Ask, convention: str) -> tuple[int, list[tuple[int, int, int, bool]]]:
    """Bytes under another convention, and where its layers differ from live.

    Each difference is (layers, live, there, whether these are tokens; else bytes of one token).
    """
    live = size(model, Ask(ask.context, ask.batch, ask.format, "live", ask.devices))
    there = size(model, Ask(ask.context, ask.batch, ask.format, convention, ask.devices))
    found: Counter[tuple[int, int, bool]] = Counter()
    for a, b in zip(live.layers, there.layers, strict=True):
        found.update([(a.tokens, b.tokens, True)] * (a.tokens != b.tokens))
        found.update([(a.bytes_per_token, b.bytes_per_token, False)] * (a.bytes_per_token != b.bytes_per_token))
    return there.bytes, [(count, *what) for what, count in found.items()]
