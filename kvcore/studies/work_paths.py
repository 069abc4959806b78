"""The paths whose work is counted: the calls each makes of T tokens, and its closed forms in symbols and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvcore import paths, work
from kvcore.model import LabDecoder
from kvcore.paths import PathRun
from kvcore.rules import sliding, windowed
from kvcore.work import Work

QUANTITIES = ("projected rows", "score elements", "K/V payload bytes")

MAX_RUN = 256
"""Tokens that are run at most; for more, the closed forms alone are shown."""

_KEEPS_NOTHING = "0 (no cache)"


def _payload(kept: str) -> str:
    return f"2·L·{kept} · n_kv_heads · head_dim · b"


@dataclass(frozen=True, eq=False)
class WorkPath:
    """One path: `work(T)` and `kept(T)` in closed form, `formulas` the same in symbols, one a quantity.

    `kept` is the number of entries a layer holds after T tokens, `first` the length of the first
    call, `single_call` says that all T tokens go in at once, and `window` is the one it works with.
    """

    name: str
    formulas: tuple[str, str, str]
    work: Callable[[int], Work]
    kept: Callable[[int], int]
    spans: Callable[[int], list[tuple[int, int]]]
    run: Callable[[LabDecoder, np.ndarray], PathRun]
    with_cache: bool = False
    first: int = 1
    single_call: bool = False
    window: int | None = None

    def step_work(self, length: int) -> Work:
        """What the call that ends after `length` tokens adds."""
        total = self.work(length)
        if length <= self.first:
            return total
        before = self.work(length - 1)
        return Work(total.projected_rows - before.projected_rows, total.score_elements - before.score_elements)


def exact_crop(n_layers: int, window: int) -> int:
    """The smallest number of raw tokens whose recomputation is right: L·(W − 1) + 1."""
    return n_layers * (window - 1) + 1


def work_paths(n_layers: int, prompt: int, window: int | None) -> list[WorkPath]:
    """All counted paths; those that need a window only where there is one."""

    def none_kept(length: int) -> int:
        return 0

    def whole(length: int) -> list[tuple[int, int]]:
        return [(0, length)]

    def prefixes(length: int) -> list[tuple[int, int]]:
        return [(0, t + 1) for t in range(length)]

    def ones(length: int) -> list[tuple[int, int]]:
        return [(t, t + 1) for t in range(length)]

    def chunk_sizes(length: int) -> tuple[int, ...]:
        return (prompt,) + (1,) * (length - prompt) if prompt < length else (length,)

    found = [
        WorkPath(
            "full",
            ("3·L·T", "L·T²", _KEEPS_NOTHING),
            lambda t: work.full(n_layers, t),
            none_kept,
            whole,
            paths.full,
            single_call=True,
        ),
        WorkPath(
            "prefix recomputation",
            ("3·L·Σ t", "L·Σ t²", _KEEPS_NOTHING),
            lambda t: work.prefix_recomputation(n_layers, t),
            none_kept,
            prefixes,
            paths.prefix_recomputation,
        ),
        WorkPath(
            "token cache",
            ("3·L·T", "L·Σ t", _payload("T")),
            lambda t: work.token_cache(n_layers, t),
            lambda t: t,
            ones,
            paths.cached,
            with_cache=True,
        ),
        WorkPath(
            "chunk cache",
            ("3·L·T", "L·Σ c·end", _payload("T")),
            lambda t: work.prompt_then_tokens(n_layers, prompt, t),
            lambda t: t,
            lambda t: [(0, min(prompt, t)), *ones(t)[prompt:]],
            lambda decoder, ids: paths.cached(decoder, ids, chunk_sizes(len(ids))),
            with_cache=True,
            first=prompt,
        ),
    ]
    if window is None:
        return found
    crop = exact_crop(n_layers, window)
    return [
        *found,
        WorkPath(
            "sliding cache",
            ("3·L·T", "L·Σ min(t, W+1)", _payload("min(T, W)")),
            lambda t: work.sliding_cache(n_layers, t, window),
            lambda t: min(t, window),
            ones,
            lambda decoder, ids: paths.cached(decoder, ids, rules=sliding(window)),
            with_cache=True,
            window=window,
        ),
        WorkPath(
            "cropped recomputation",
            ("3·L·Σ min(t, C)", "L·Σ min(t, C)²", _KEEPS_NOTHING),
            lambda t: work.cropped_recomputation(n_layers, t, crop),
            none_kept,
            lambda t: [(max(0, stop - crop), stop) for _, stop in ones(t)],
            lambda decoder, ids: paths.cropped_recomputation(decoder, ids, crop, windowed(window)),
            window=window,
        ),
    ]
