"""Reuse as an experiment: one stored prefix, one request, answered anew, by the key and unchecked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kvcore import paths
from kvcore.compare import difference_by_position
from kvcore.config import DecoderConfig, check_choice
from kvcore.model import LabDecoder, Step
from kvcore.prefix import Hit, Key, PrefixStore, key_of
from kvcore.setting import Setting

PREFIX = (1, 2, 3, 4, 5, 6, 7, 8)
SUFFIX = (9, 10, 11, 12)
OTHER_SUFFIX = (20, 21, 22, 23)
EDIT_AT, EDIT_TO = 2, 20
CHANGED_BY = 0.5
WINDOW = 4
SCOPE, OTHER_SCOPE = "one", "another"
CONDITIONS = ("same-prefix", "edited-prefix", "different-weights", "different-window", "different-scope", "new-suffix")
HITS = ("same-prefix", "new-suffix")
"""The stored prefix is the one asked for, by whom it belongs to."""
DECIDING = ("edited-prefix", "different-weights", "different-window")
"""Keys and values are others; under another scope they are the same."""


def edited(prefix: tuple[int, ...], at: int, token: int) -> tuple[int, ...]:
    """The prefix with another token at one position."""
    return (*prefix[:at], token, *prefix[at + 1 :])


def with_changed_weight(decoder: LabDecoder, amount: float = CHANGED_BY) -> LabDecoder:
    """The same decoder with `amount` added to the first element of the first layer's W_K."""
    other = LabDecoder(decoder.config)
    n_query = decoder.config.n_heads * decoder.config.head_dim
    other.projections = [weight.clone() for weight in decoder.projections]
    other.projections[0][0, n_query] += amount
    return other


class Request(NamedTuple):
    """Who asks for what: a decoder in a setting, a scope, and a prefix with a suffix."""

    decoder: LabDecoder
    setting: Setting
    scope: str
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def key(self) -> Key:
        return key_of(self.decoder, self.setting, self.scope)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.prefix + self.suffix

    def run_prefix(self) -> Step:
        """The step that makes the cache which is stored."""
        return self.decoder.step(self.prefix, rules=self.setting.rules)


class Way(NamedTuple):
    """Rows of the suffix, how many tokens were reused, and the rows that were projected."""

    hidden: np.ndarray  # (suffix, d_model), float64
    n_reused: int
    projected_rows: int


class Reuse(NamedTuple):
    """One request answered three ways: anew, by what the key allows, and by the stored prefix unchecked."""

    fresh: Way
    keyed: Way
    unchecked: Way

    def difference(self, way: Way) -> np.ndarray:
        """Largest difference from the fresh rows at each suffix position, (suffix,)."""
        return difference_by_position(way.hidden, self.fresh.hidden)


def answer(asked: Request, hit: Hit | None) -> Way:
    """The suffix computed behind a hit or, without one, from the first token on."""
    cache, n_reused = hit or (None, 0)
    step = asked.decoder.step(asked.token_ids[n_reused:], cache, asked.setting.rules)
    return Way(step.hidden.double().numpy()[-len(asked.suffix) :], n_reused, paths.count_work(step).projected_rows)


def reuse(stored: Request, asked: Request, at_least: int = 1) -> Reuse:
    """What becomes of `asked` where the prefix of `stored`, as long as its own, lies in the store.

    The keyed way reuses the longest common prefix, and none that is shorter than `at_least`. The unchecked
    way is deliberately wrong: whatever is stored is used, as long as it is.
    """
    cache = stored.run_prefix().cache
    store = PrefixStore()
    store.put(stored.key, stored.prefix, cache)
    keyed = store.find(asked.key, asked.token_ids, asked.setting, at_least)
    return Reuse(answer(asked, None), answer(asked, keyed), answer(asked, Hit(cache, len(stored.prefix))))


def stored_request(seed: int) -> Request:
    """Whose prefix the experiment stores."""
    setting = Setting(DecoderConfig(seed=seed))
    return Request(LabDecoder(setting.decoder), setting, SCOPE, PREFIX, SUFFIX)


def asked_under(condition: str, stored: Request) -> Request:
    """The request that differs from `stored` in what the condition names."""
    check_choice("condition", condition, CONDITIONS)
    changes = {
        "same-prefix": {},
        "edited-prefix": {"prefix": edited(stored.prefix, EDIT_AT, EDIT_TO)},
        "different-weights": {"decoder": with_changed_weight(stored.decoder)},
        "different-window": {"setting": replace(stored.setting, windows=(WINDOW,))},
        "different-scope": {"scope": OTHER_SCOPE},
        "new-suffix": {"suffix": OTHER_SUFFIX},
    }
    return stored._replace(**changes[condition])


def rows(seeds: Sequence[int]) -> list[dict[str, object]]:
    """The rows of `kvcore.prefix.reuse_experiment`: a prefix is used as a whole there, or not at all."""
    found = []
    for seed in seeds:
        stored = stored_request(seed)
        for condition in CONDITIONS:
            ways = reuse(stored, asked_under(condition, stored), at_least=len(stored.prefix))
            found.append(
                {
                    "seed": seed,
                    "condition": condition,
                    "unchecked_error": float(ways.difference(ways.unchecked).max()),
                    "keyed_error": float(ways.difference(ways.keyed).max()),
                    "reused": ways.keyed.n_reused > 0,
                    "projected_rows": ways.keyed.projected_rows,
                }
            )
    return found
