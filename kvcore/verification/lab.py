"""The engine's own decoders as somebody else's: `full`, `step` and every hook, right or with one fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from kvcore.cache import KVCache
from kvcore.crop import crop
from kvcore.faults import Fault
from kvcore.model import LabDecoder
from kvcore.prefix import RIGHT_REUSE, Hit, PrefixStore, key_of
from kvcore.rules import ByLayer
from kvcore.setting import Setting

Model = dict[str, Any]
"""Keyword arguments of `verify`, but for token_ids."""


def model(setting: Setting, fault: Fault | None = None, hooks: bool = True) -> Model:
    """A decoder in a setting, its rules those of the fault, if one is given; without `hooks` only full and step.

    The full path is the right one; only a fault that the full path of such decoders has as well is in both.
    """
    decoder = LabDecoder(setting.decoder)
    right = Setting(setting.decoder, setting.windows, setting.n_sinks).rules
    rules = setting.rules if fault is None else fault.deviate(setting)
    reference = rules if fault is not None and fault.wrong_reference else right

    def full(token_ids: Sequence[int]) -> np.ndarray:
        return decoder.step(token_ids, rules=reference).hidden.double().numpy()

    def step(token_ids: Sequence[int], cache: KVCache | None) -> tuple[np.ndarray, KVCache]:
        cache = setting.empty_cache() if cache is None else cache
        done = decoder.step(token_ids, cache, rules)
        return done.hidden.double().numpy(), done.cache

    found: Model = {"full": full, "step": step}
    return found | _hooks(decoder, setting, rules, reference, fault) if hooks else found


def _hooks(decoder: LabDecoder, setting: Setting, rules: ByLayer, reference: ByLayer, fault: Fault | None) -> Model:
    go_back = crop if fault is None else fault.crop
    choices = RIGHT_REUSE if fault is None else fault.reuse

    def cropped(cache: KVCache, n_tokens: int) -> KVCache:
        return go_back(cache, n_tokens, rules)

    def reused(token_ids: Sequence[int], cache: KVCache, cached_ids: Sequence[int]) -> tuple[np.ndarray, KVCache]:
        store = PrefixStore(choices)
        key = key_of(decoder, setting)
        store.put(key, cached_ids, cache)
        hit = store.find(key, token_ids, setting) or Hit(setting.empty_cache(), 0)
        n_left = max(1, len(token_ids) - hit.n_reused)  # an exact hit runs the last token once more
        done = decoder.step(list(token_ids)[-n_left:], hit.cache, rules)
        return done.hidden.double().numpy(), done.cache

    return {
        "vocab_size": decoder.config.vocab_size,
        "copy": lambda cache: cache,  # caches never change, so the same object serves two branches
        "in_place": False,
        "crop": cropped,
        "reuse": reused,
        "layers": _by_layer(decoder, setting, rules, reference),
        "inspect": lambda cache: [(layer.key[0], layer.value[0], layer.position) for layer in cache.layers],
    }


def _by_layer(decoder: LabDecoder, setting: Setting, rules: ByLayer, reference: ByLayer) -> tuple[Callable, Callable]:
    def rows(hidden: list[Tensor]) -> np.ndarray:
        return np.stack([layer[0].double().numpy() for layer in hidden])

    def full(token_ids: Sequence[int]) -> np.ndarray:
        return rows([layer.hidden for layer in decoder.step(token_ids, rules=reference).layers])

    def step(token_ids: Sequence[int], cache: KVCache | None) -> tuple[np.ndarray, KVCache]:
        done = decoder.step(token_ids, setting.empty_cache() if cache is None else cache, rules)
        return rows([layer.hidden for layer in done.layers]), done.cache

    return full, step
