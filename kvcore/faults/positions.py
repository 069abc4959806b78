"""The position that a new token gets, where it is counted wrongly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvcore.faults.fault import Fault, cached, place
from kvcore.faults.needs import entering
from kvcore.rules import from_zero


def _from_zero_alone(position: np.ndarray) -> np.ndarray:
    return from_zero(position) if len(position) == 1 else position


def _one_ahead(position: np.ndarray) -> np.ndarray:
    return position + 1 if cached(position) else position


def _prompt_counted_twice() -> Callable[[np.ndarray], np.ndarray]:
    prompt = [0]

    def count(position: np.ndarray) -> np.ndarray:
        if not cached(position):
            prompt[0] = len(position)
            return position
        return position + prompt[0]

    return count


def _remembered_by_length() -> Callable[[np.ndarray], np.ndarray]:
    """Positions that a call of this length had the first time in this sequence."""
    first: dict[int, np.ndarray] = {}

    def look_up(position: np.ndarray) -> np.ndarray:
        if not cached(position):
            first.clear()
        return first.setdefault(len(position), position)

    return look_up


def _calls_counted() -> Callable[[np.ndarray], np.ndarray]:
    """The prompt's length plus one for every call since."""
    count = [0]

    def next_position(position: np.ndarray) -> np.ndarray:
        if not cached(position):
            count[0] = len(position)
            return position
        count[0] += 1
        return from_zero(position) + count[0]

    return next_position


FAULTS = (
    Fault(
        "positions_restart",
        "C4",
        "Every call counts its tokens from 0.",
        wrong="0 … q − 1",
        right="s … s + q − 1",
        reported=("Blaizzy/mlx-vlm issue 1983", "pytorch/executorch PR 2010"),
        hidden_by="one call; the first call of any split",
        deviate=lambda setting: place(setting, from_zero),
        needs=entering,
    ),
    Fault(
        "positions_restart_for_single_tokens",
        "C4",
        "A single token always enters at position 0.",
        wrong="0 for a call of one token",
        right="s",
        reported=("ml-explore/mlx-lm PR 93", "Blaizzy/mlx-vlm issue 1983"),
        hidden_by="calls of two tokens or more",
        deviate=lambda setting: place(setting, _from_zero_alone),
        needs=entering,
    ),
    Fault(
        "positions_one_ahead",
        "C4",
        "Cached calls enter one position too far: the length already counts the token about to run.",
        wrong="s + 1 … s + q",
        right="s … s + q − 1",
        reported=("microsoft/onnxruntime-genai PR 2354",),
        hidden_by="one call",
        deviate=lambda setting: place(setting, _one_ahead),
        needs=entering,
    ),
    Fault(
        "prompt_length_added_twice",
        "C4",
        "The length of the first call is added again to the positions of every later one.",
        wrong="s + prompt …",
        right="s …",
        reported=("skyzh/tiny-llm PR 46",),
        hidden_by="one call",
        deviate=lambda setting: place(setting, _prompt_counted_twice()),
        needs=entering,
    ),
    Fault(
        "positions_remembered_by_length",
        "C4",
        "Position terms are remembered by the length of the call only, without its offset.",
        wrong="memo[q]",
        right="memo[q, s]",
        reported=("lucidrains/rotary-embedding-torch issue 11",),
        hidden_by="calls of all different lengths",
        deviate=lambda setting: place(setting, _remembered_by_length()),
        needs=entering,
    ),
    Fault(
        "calls_counted_as_positions",
        "C4",
        "The position goes up by one a call, however many tokens the call had.",
        wrong="prompt + calls",
        right="tokens processed",
        reported=("lucidrains/dreamer4 PR 24", "VeloxQuant-MLX PR 195"),
        hidden_by="single tokens behind a prefill",
        deviate=lambda setting: place(setting, _calls_counted()),
        needs=entering,
    ),
)
