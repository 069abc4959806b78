"""Stored prefixes: whose keys and values they are, how much of one may be used, and what using it unchecked does."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from kvcore import paths
from kvcore.cache import KVCache
from kvcore.config import DecoderConfig
from kvcore.crop import crop
from kvcore.model import LabDecoder
from kvcore.setting import Setting


class Key(NamedTuple):
    """What decides keys and values besides the tokens; two keys that differ in anything share nothing.

    `weights` is a digest of the parameters, `scope` whom the prefix belongs to.
    """

    weights: str
    positions: str
    windows: tuple[int | None, ...]
    n_sinks: int
    scope: str


def key_of(decoder: LabDecoder, setting: Setting, scope: str = "") -> Key:
    """The key under which a prefix of this decoder, in this setting, may be used again."""
    digest = hashlib.sha256()
    learned = [] if decoder.learned is None else [decoder.learned]
    for tensor in (decoder.table, *decoder.projections, *learned):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.double().numpy().tobytes())
    windows = tuple(setting.window(layer) for layer in range(decoder.config.n_layers))
    return Key(digest.hexdigest(), decoder.config.positions, windows, setting.n_sinks, scope)


def common_prefix(stored: Sequence[int], wanted: Sequence[int]) -> int:
    """How many tokens both begin with."""
    n_common = 0
    for one, other in zip(stored, wanted, strict=False):
        if one != other:
            break
        n_common += 1
    return n_common


@dataclass(frozen=True)
class ReuseRules:
    """The choices of reuse: which keys match, how many tokens count as common, how many are computed anew at least."""

    same_key: Callable[[Key, Key], bool] = operator.eq
    common: Callable[[Sequence[int], Sequence[int]], int] = common_prefix
    least_anew: int = 1


RIGHT_REUSE = ReuseRules()
UNCHECKED = ReuseRules(same_key=lambda stored, wanted: True, common=lambda stored, wanted: len(stored))
"""Deliberately wrong: whatever is stored is used, as long as it is."""


class Hit(NamedTuple):
    """A stored cache cut back to its first n_reused tokens."""

    cache: KVCache
    n_reused: int


@dataclass(eq=False)
class PrefixStore:
    """Caches of finished prefixes. Caches never change, so a hit shares memory and spoils nothing."""

    rules: ReuseRules = RIGHT_REUSE
    _entries: list[tuple[Key, tuple[int, ...], KVCache]] = field(default_factory=list)

    def put(self, key: Key, token_ids: Sequence[int], cache: KVCache) -> None:
        """Store the cache of exactly these tokens. Raises ValueError where it is of another number."""
        tokens = tuple(int(token) for token in token_ids)
        if cache.n_processed != len(tokens):
            raise ValueError(f"the cache has processed {cache.n_processed} tokens, not the {len(tokens)} given")
        self._entries.append((key, tokens, cache))

    def find(self, key: Key, token_ids: Sequence[int], setting: Setting, at_least: int = 1) -> Hit | None:
        """The longest stored prefix of these tokens under this key, or None.

        At least the last token is left to compute: its hidden state is wanted, and a cache holds none.
        A prefix whose cache cannot be cut back, since what is needed was evicted, is passed over.
        """
        wanted = [int(token) for token in token_ids]
        best: Hit | None = None
        for stored_key, tokens, cache in self._entries:
            if not self.rules.same_key(stored_key, key):
                continue
            n_common = min(self.rules.common(tokens, wanted), len(wanted) - self.rules.least_anew, len(tokens))
            if n_common < at_least or (best is not None and n_common <= best.n_reused):
                continue
            try:
                best = Hit(crop(cache, n_common, setting.rules), n_common)
            except ValueError:
                continue
        return best


class Continuation(NamedTuple):
    """Rows of the last tokens, how many tokens were reused, and the rows that were projected."""

    hidden: np.ndarray  # (rows, d_model), float64
    n_reused: int
    projected_rows: int


def decode(
    decoder: LabDecoder, setting: Setting, token_ids: Sequence[int], hit: Hit | None, n_rows: int
) -> Continuation:
    """The last n_rows rows, computed behind a hit or, without one, from the first token on."""
    n_reused = 0 if hit is None else hit.n_reused
    step = decoder.step(token_ids[n_reused:], None if hit is None else hit.cache, setting.rules)
    rows = _numpy(step.hidden)[-n_rows:]
    return Continuation(rows, n_reused, paths.count_work(step).projected_rows)


def _numpy(hidden: Tensor) -> np.ndarray:
    return hidden.double().numpy()


def with_changed_weight(decoder: LabDecoder, amount: float = 0.5) -> LabDecoder:
    """The same decoder with `amount` added to the first element of the first layer's W_K."""
    other = LabDecoder(decoder.config)
    n_query = decoder.config.n_heads * decoder.config.head_dim
    other.projections = [weight.clone() for weight in decoder.projections]
    other.projections[0][0, n_query] += amount
    return other


PREFIX = (1, 2, 3, 4, 5, 6, 7, 8)
SUFFIX = (9, 10, 11, 12)
OTHER_SUFFIX = (20, 21, 22, 23)
SEEDS = (7, 19, 41)
CONDITIONS = ("same-prefix", "edited-prefix", "different-weights", "different-window", "different-scope", "new-suffix")


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


class Reuse(NamedTuple):
    """One request answered three ways: anew, by what the key allows, and by the stored prefix unchecked."""

    fresh: Continuation
    keyed: Continuation
    unchecked: Continuation

    def difference(self, way: Continuation) -> np.ndarray:
        """Largest difference from the fresh rows at each suffix position, (suffix,)."""
        return np.abs(way.hidden - self.fresh.hidden).max(axis=-1)


def reuse(stored: Request, asked: Request) -> Reuse:
    """What becomes of `asked` where the prefix of `stored` lies in the store: it is used as a whole or not at all."""
    cache = stored.decoder.step(stored.prefix, rules=stored.setting.rules).cache
    found = []
    for rules in (RIGHT_REUSE, UNCHECKED):
        store = PrefixStore(rules)
        store.put(stored.key, stored.prefix, cache)
        found.append(store.find(asked.key, asked.token_ids, asked.setting, at_least=len(stored.prefix)))
    ways = [decode(asked.decoder, asked.setting, asked.token_ids, hit, len(asked.suffix)) for hit in (None, *found)]
    return Reuse(*ways)


def asked_under(condition: str, stored: Request) -> Request:
    """The request that differs from `stored` in what the condition names."""
    if condition not in CONDITIONS:
        raise ValueError(f"condition is {condition!r}; it must be one of {', '.join(CONDITIONS)}")
    changes = {
        "same-prefix": {},
        "edited-prefix": {"prefix": (*stored.prefix[:2], 20, *stored.prefix[3:])},
        "different-weights": {"decoder": with_changed_weight(stored.decoder)},
        "different-window": {"setting": replace(stored.setting, windows=(4,))},
        "different-scope": {"scope": "another"},
        "new-suffix": {"suffix": OTHER_SUFFIX},
    }
    return stored._replace(**changes[condition])


def reuse_experiment(seeds: Sequence[int] = SEEDS) -> list[dict[str, object]]:
    """A row a seed and condition: what reusing a stored prefix does, unchecked and by its key.

    `unchecked_error` and `keyed_error` are the largest differences from fresh computation over the
    suffix, float64; `reused` whether the keyed store gave the prefix; `projected_rows` of the keyed way.
    """
    rows: list[dict[str, object]] = []
    for seed in seeds:
        setting = Setting(DecoderConfig(seed=seed))
        stored = Request(LabDecoder(setting.decoder), setting, "one", PREFIX, SUFFIX)
        for condition in CONDITIONS:
            found = reuse(stored, asked_under(condition, stored))
            rows.append(
                {
                    "seed": seed,
                    "condition": condition,
                    "unchecked_error": float(found.difference(found.unchecked).max()),
                    "keyed_error": float(found.difference(found.keyed).max()),
                    "reused": found.keyed.n_reused > 0,
                    "projected_rows": found.keyed.projected_rows,
                }
            )
    return rows
