"""Entries that go too early, and rings whose slots are taken for the order of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from kvcore.cache import LayerCache
from kvcore.faults.fault import Fault, Pattern, all_if_none
from kvcore.faults.needs import a_window
from kvcore.ring import KeepRing, into_ring
from kvcore.rules import Entries, Rules
from kvcore.setting import Setting


def _in_windows(setting: Setting, choices: Callable[[Rules], dict[str, object]]) -> Pattern:
    return tuple(
        replace(rules, **choices(rules)) if rules.visible.window is not None else rules for rules in setting.rules
    )


def _evict_first(rules: Rules) -> dict[str, object]:
    mask = rules.visible

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        return entries.append(key, value, position).keep_last(mask.window, mask.n_sinks)

    return {"append": append, "visible": all_if_none(mask)}


def _ring_without_room(n_slots: Callable[[int], int]) -> Callable[[Rules], dict[str, object]]:
    """A ring of n_slots(window) slots that is written before it is read, whatever the call's length."""

    def choices(rules: Rules) -> dict[str, object]:
        def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
            return into_ring(entries.append(key, value, position), n_slots(rules.visible.window))

        return {"append": append, "visible": all_if_none(rules.visible)}

    return choices


def _in_time_order(entries: LayerCache) -> Entries:
    """Slots taken for positions: the last slot for the newest."""
    newest = int(entries.position.max())
    return Entries(entries.key, entries.value, np.arange(newest - len(entries) + 1, newest + 1))


def _slots_as_time(rules: Rules) -> dict[str, object]:
    return {
        "keep": KeepRing(max(1, rules.visible.window - 1)),
        "read": _in_time_order,
        "visible": all_if_none(rules.visible),
    }


def _wide_ring_as_time(rules: Rules) -> dict[str, object]:
    """As above for a ring of 2 W slots that is written before it is read."""
    written = _ring_without_room(lambda window: 2 * window)(rules)
    return written | {"read": _in_time_order}


def _rolls_early(rules: Rules) -> dict[str, object]:
    window = rules.visible.window

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        if len(position) == 1 and len(entries) >= window - 1:
            entries = entries.take(np.arange(max(0, len(entries) - window + 2), len(entries)))
        return entries.append(key, value, position)

    return {"append": append}


def _trimmed_by_slot(rules: Rules) -> dict[str, object]:
    """Single tokens are written round the ring; after a chunk the first slots go, which are not the oldest then."""
    window, n_new = rules.visible.window, [0]

    def append(entries: LayerCache, key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
        n_new[0] = len(position)
        return entries.append(key, value, position)

    def keep(entries: LayerCache) -> LayerCache:
        return into_ring(entries, window) if n_new[0] == 1 else entries.keep_last(window)

    return {"append": append, "keep": keep, "visible": all_if_none(rules.visible)}


FAULTS = (
    Fault(
        "evict_before_attend",
        "C9",
        "A call appends its tokens, trims to the window, and only then attends: early rows have lost their keys.",
        wrong="append, evict, attend",
        right="append, attend, evict",
        reported=("mlxcel PR 412", "foundation-model-stack PR 459"),
        hidden_by="single tokens",
        deviate=lambda setting: _in_windows(setting, _evict_first),
        needs=a_window,
    ),
    Fault(
        "ring_overwritten_by_a_chunk",
        "C9",
        "A ring of W + 1 slots is written before it is read: calls of three tokens or more overwrite what they need.",
        wrong="C = W + 1",
        right="C ≥ W − 1 + q",
        reported=("pytorch/executorch PR 22358",),
        hidden_by="calls of one or two tokens",
        deviate=lambda setting: _in_windows(setting, _ring_without_room(lambda window: window + 1)),
        needs=a_window,
    ),
    Fault(
        "ring_of_two_windows_overwritten",
        "C9",
        "A ring of 2 W slots is written before it is read: calls of more than W + 1 tokens overwrite what they need.",
        wrong="C = 2 W",
        right="C ≥ W − 1 + q",
        reported=("pytorch/executorch PR 22358",),
        hidden_by="calls of no more than W + 1 tokens",
        deviate=lambda setting: _in_windows(setting, _ring_without_room(lambda window: 2 * window)),
        needs=a_window,
    ),
    Fault(
        "slots_taken_for_time",
        "C12",
        "The mask numbers the slots of a ring as if they lay in the order of time.",
        wrong="position = slot + offset",
        right="the stored position",
        reported=("ml-explore/mlx-examples issue 1000", "ollama PR 14912"),
        hidden_by="single tokens; no more than W tokens",
        deviate=lambda setting: _in_windows(setting, _slots_as_time),
        needs=a_window,
    ),
    Fault(
        "slots_of_a_wide_ring_taken_for_time",
        "C12",
        "The mask numbers the 2 W slots of a ring as if they lay in the order of time.",
        wrong="position = slot + offset",
        right="the stored position",
        reported=("ollama PR 14912", "mlx-swift-lm PR 210"),
        hidden_by="no more than 2 W tokens",
        deviate=lambda setting: _in_windows(setting, _wide_ring_as_time),
        needs=a_window,
    ),
    Fault(
        "ring_rolls_one_early",
        "C12",
        "Single tokens drop an entry when the ring is one short of full.",
        wrong="roll when p ≥ W − 1",
        right="roll when p ≥ W",
        reported=("mistral.rs issue 246", "ml-explore/mlx-examples PR 1093"),
        hidden_by="calls of two tokens or more; fewer than W tokens",
        deviate=lambda setting: _in_windows(setting, _rolls_early),
        needs=a_window,
        also=("C5",),
    ),
    Fault(
        "ring_trimmed_by_slot",
        "C12",
        "After a chunk the first slots of a ring are dropped, which are not the oldest once it has wrapped.",
        wrong="drop slots 0, 1, …",
        right="drop the oldest positions",
        reported=("ml-explore/mlx-examples PR 1015",),
        hidden_by="single tokens; chunks alone",
        deviate=lambda setting: _in_windows(setting, _trimmed_by_slot),
        needs=a_window,
    ),
)
