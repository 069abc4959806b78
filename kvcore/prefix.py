"""Stored prefixes: whose keys and values they are, and how much of one may be used again."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvcore.cache import KVCache
from kvcore.crop import crop
from kvcore.model import LabDecoder
from kvcore.setting import Setting


class Key(NamedTuple):
    """What decides a stored cache besides the tokens; two keys that differ in anything share nothing.

    `weights` is a digest of the parameters, `heads` the query and KV heads that share them, `scope` whom the
    prefix belongs to. `storage` and `capacity` decide in which slots the entries lie: a cache that evicts by
    slot must not get a ring, where slots are not in the order of time.
    """

    weights: str
    heads: tuple[int, int]
    positions: str
    windows: tuple[int | None, ...]
    n_sinks: int
    storage: str
    capacity: int | None
    scope: str


def key_of(decoder: LabDecoder, setting: Setting, scope: str = "") -> Key:
    """The key under which a prefix of this decoder, in this setting, may be used again."""
    digest = hashlib.sha256()
    learned = [] if decoder.learned is None else [decoder.learned]
    for tensor in (decoder.table, *decoder.projections, *learned):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.double().numpy().tobytes())
    config = decoder.config
    return Key(
        weights=digest.hexdigest(),
        heads=(config.n_heads, config.n_kv_heads),
        positions=config.positions,
        windows=tuple(setting.window(layer) for layer in range(config.n_layers)),
        n_sinks=setting.n_sinks,
        storage=setting.storage,
        capacity=setting.capacity,
        scope=scope,
    )


def differing(stored: Key, wanted: Key) -> tuple[str, ...]:
    """The fields in which two keys differ."""
    return tuple(name for name, one, other in zip(Key._fields, stored, wanted, strict=True) if one != other)


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


def reuse_experiment(seeds: Sequence[int] = (7, 19, 41)) -> list[dict[str, object]]:
    """A row a seed and condition: what reusing a stored prefix does, unchecked and by its key.

    `unchecked_error` and `keyed_error` are the largest differences from fresh computation over the
    suffix, float64; `reused` whether the keyed store gave the prefix; `projected_rows` of the keyed way.
    """
    from kvcore import prefix_experiment  # which is built on this module

    return prefix_experiment.rows(seeds)
