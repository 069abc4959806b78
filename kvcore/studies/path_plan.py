"""What each path of the decode-paths view runs, what it is compared with, and what it would cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvcore import paths
from kvcore.budget import estimate
from kvcore.model import LabDecoder
from kvcore.paths import PathRun
from kvcore.rules import UNMASKED, reset_position, sliding, windowed, wrong_chunk_mask

PATHS = ("token cache", "chunk cache", "sliding cache", "prefix recomputation")
CONTROLS = ("wrong chunk mask", "positions reset", "cropped recomputation", "unmasked")


@dataclass(frozen=True, eq=False)
class Plan:
    """A path that can be run, with its reference by name or, where it has one of its own, as `reference`.

    `exact` runs on the float64 decoder what the path is measured from there, where that is no full path.
    """

    name: str
    against: str
    cost: int
    run: Callable[[], PathRun]
    first: int = 0
    stop: int | None = None
    expected_equal: bool = False
    reference: Callable[[], PathRun] | None = None
    exact: Callable[[LabDecoder], PathRun] | None = None
    impossible: str = ""

    @property
    def rows(self) -> slice:
        """The rows that are compared."""
        return slice(self.first, self.stop)


def path_plans(decoder: LabDecoder, tokens: np.ndarray, sizes: tuple[int, ...], window: int) -> list[Plan]:
    """All paths, in the order in which the work budget is spent: right ones first, prefix recomputation last."""
    length, n_layers = len(tokens), decoder.config.n_layers
    edited = tokens.copy()
    edited[length // 2 :] = (edited[length // 2 :] + 1) % decoder.config.vocab_size
    ends = np.cumsum(sizes).tolist()
    chunks = [(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    second_end = sum(sizes[:2])

    def cost(spans: list[tuple[int, int]], with_cache: bool = True, kept: int | None = None) -> int:
        return estimate(decoder.config, spans, with_cache=with_cache, kept=kept)

    ones = [(t, t + 1) for t in range(length)]
    sliding_cost = cost(ones, kept=window)
    return [
        Plan("token cache", "full", cost(ones), lambda: paths.cached(decoder, tokens), expected_equal=True),
        Plan("chunk cache", "full", cost(chunks), lambda: paths.cached(decoder, tokens, sizes), expected_equal=True),
        Plan(
            "sliding cache",
            "windowed full",
            sliding_cost,
            lambda: paths.cached(decoder, tokens, rules=sliding(window)),
            expected_equal=True,
        ),
        Plan(
            "wrong chunk mask",
            "full",
            cost(chunks[:2]),
            lambda: paths.cached(decoder, tokens[:second_end], sizes[:2], wrong_chunk_mask()),
            first=sizes[0],
            stop=second_end,
            impossible="" if len(sizes) > 1 else "The wrong chunk mask is not run: it needs a second chunk.",
        ),
        Plan(
            "positions reset",
            "windowed full",
            sliding_cost,
            lambda: paths.cached(decoder, tokens, rules=reset_position(sliding(window))),
        ),
        Plan(
            "unmasked",
            "itself with later tokens edited",
            2 * cost([(0, length)]),
            lambda: paths.full(decoder, tokens, UNMASKED),
            stop=length // 2,
            reference=lambda: paths.full(decoder, edited, UNMASKED),
            exact=lambda exact: paths.full(exact, tokens, UNMASKED),
        ),
        Plan(
            "cropped recomputation",
            "windowed full",
            cost([(max(0, t + 1 - window), t + 1) for t in range(length)], with_cache=False),
            lambda: paths.cropped_recomputation(decoder, tokens, window, windowed(window)),
            expected_equal=n_layers == 1 or window == 1 or window >= length,
        ),
        Plan(
            "prefix recomputation",
            "full",
            cost([(0, t + 1) for t in range(length)], with_cache=False),
            lambda: paths.prefix_recomputation(decoder, tokens),
            expected_equal=True,
        ),
    ]
