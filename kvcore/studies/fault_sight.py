"""Watching a decoding step: what each layer of one call was given, read and left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from kvcore.faults.fault import Pattern
from kvcore.model import LabDecoder, Step
from kvcore.rules import Rules


@dataclass(frozen=True, eq=False)
class Sight:
    """One layer of one call of n tokens, as NumPy arrays.

    entered (n,): the positions that the tokens entered or turned with; key_position (entries,) and visible
    (n, entries): what was attended over; key, value (entries, width): what these entries held; distance
    (n, entries) for ALiBi, else None; heads (n_heads,): the KV head that each query head reads;
    kept_position, kept_key, kept_value: the same of what was kept afterwards.
    """

    entered: np.ndarray
    key_position: np.ndarray
    visible: np.ndarray
    key: np.ndarray
    value: np.ndarray
    distance: np.ndarray | None
    heads: np.ndarray
    kept_position: np.ndarray
    kept_key: np.ndarray
    kept_value: np.ndarray


@dataclass(frozen=True, eq=False)
class Seen:
    """One call: the places (n,) of its tokens in the sequence, its layers, and its rows (n_layers, n, d_model)."""

    place: np.ndarray
    layers: tuple[Sight, ...]
    rows: np.ndarray


class Watch:
    """A decoder under rules that are noted down as they are used."""

    def __init__(self, decoder: LabDecoder, rules: Pattern) -> None:
        self.decoder = decoder
        self._notes: list[dict[str, object]] = [{} for _ in range(decoder.config.n_layers)]
        self.rules = tuple(self._noted(rules[layer % len(rules)], notes) for layer, notes in enumerate(self._notes))

    def _noted(self, rules: Rules, notes: dict[str, object]) -> Rules:
        def noting(name: str) -> Callable:
            def choice(*arguments: object) -> object:
                notes[name] = getattr(rules, name)(*arguments)
                return notes[name]

            return choice

        names = ("input_position", "rotary_position", "distance", "head_order", "read")
        return replace(rules, **{name: noting(name) for name in names})

    def step(self, token_ids: np.ndarray, cache: object) -> Step:
        """One call; tokens stand behind what the cache has processed."""
        for notes in self._notes:
            notes.clear()
        return self.decoder.step(token_ids, cache, self.rules)

    def see(self, step: Step, place: np.ndarray, stored_at: np.ndarray) -> Seen:
        """What the last call did; `stored_at` (n,) are the positions that its entries are stored under."""
        layers = tuple(self._sight(step, layer, stored_at) for layer in range(len(self._notes)))
        return Seen(place, layers, np.stack([layer.hidden[0].double().numpy() for layer in step.layers]))

    def _sight(self, step: Step, layer: int, stored_at: np.ndarray) -> Sight:
        notes, done, kept, config = (
            self._notes[layer],
            step.layers[layer],
            step.cache.layers[layer],
            self.decoder.config,
        )
        entered = stored_at
        if config.positions == "rotary":
            entered = notes["rotary_position"]
        elif config.positions in ("sinusoidal", "learned"):
            entered = self._notes[0]["input_position"]
        order = notes["head_order"]
        group = config.n_heads // config.n_kv_heads
        heads = np.arange(config.n_heads) // group
        if order is not None:
            heads = np.empty(config.n_heads, dtype=np.int64)
            heads[order] = np.arange(config.n_heads) // group
        read = notes["read"]
        return Sight(
            np.array(entered),
            done.key_position.copy(),
            done.visible.copy(),
            _rows(read.key),
            _rows(read.value),
            np.array(notes["distance"]) if "distance" in notes else None,
            heads,
            kept.position.copy(),
            _rows(kept.key) if len(kept) else np.empty((0, 0)),
            _rows(kept.value) if len(kept) else np.empty((0, 0)),
        )


def _rows(tensor: Tensor) -> np.ndarray:
    """(1, n_kv_heads, entries, head_dim) → (entries, n_kv_heads · head_dim), a copy."""
    return tensor[0].transpose(0, 1).reshape(tensor.shape[2], -1).double().numpy().copy()
