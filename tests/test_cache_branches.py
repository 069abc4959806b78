"""A call never changes what an older cache reads, so two continuations can branch from one prefix."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from kvcore.cache import KVCache, LayerCache
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.paths import full
from kvcore.rules import RIGHT, sliding, windowed
from tests.painted import same, snapshot

KINDS = {
    "growing": (lambda: KVCache.empty(2), RIGHT, RIGHT),
    "preallocated": (lambda: KVCache.empty(2, capacity=32), RIGHT, RIGHT),
    "sliding": (lambda: KVCache.empty(2), sliding(4), windowed(4)),
    "sliding in preallocated room": (lambda: KVCache.empty(2, capacity=16), sliding(4), windowed(4)),
    "sliding with sinks": (lambda: KVCache.empty(2), sliding(3, 2), windowed(3, 2)),
    "window 1": (lambda: KVCache.empty(2), sliding(1), windowed(1)),
}


def overwrite(self, key, value, position):
    """Planted: an append writes behind its own entries, whoever else has written there."""
    room, start, stop = self._room, self._start, self._stop
    if room is None or stop + len(position) > room.slots:
        room, start, stop = self._larger_room(key, len(self) + len(position)), 0, len(self)
    room.write(stop, key, value, position)
    return LayerCache(self.capacity, room, start, stop + len(position))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_prefix", [1, 5, 9])
@pytest.mark.parametrize("order", ["one, other", "other, one", "in turns"])
def test_two_continuations_of_one_prefix_are_both_right_in_either_order(kind, n_prefix, order):
    empty, rules, reference_rules = KINDS[kind]
    decoder = LabDecoder(DecoderConfig())
    prefix, tails = lab_token_ids(n_prefix), {"one": [1, 2, 3, 4, 5, 6], "other": [9, 8, 7, 6, 5, 4]}
    root = decoder.step(prefix, empty(), rules).cache
    taken, caches, rows = snapshot(root), dict.fromkeys(tails, root), {name: [] for name in tails}

    names = ["one", "other"] * 6 if order == "in turns" else [n for n in order.split(", ") for _ in range(6)]
    for name in names:
        step = decoder.step([tails[name][len(rows[name])]], caches[name], rules)
        caches[name] = step.cache
        rows[name].append(step.hidden[0].numpy())
        assert same(root, taken)
    for name, tail in tails.items():
        reference = full(decoder, [*prefix, *tail], reference_rules).hidden[n_prefix:]
        assert np.abs(np.array(rows[name]) - reference).max() <= 1e-12, name


@pytest.mark.parametrize("kind", KINDS)
def test_no_older_cache_changes_over_a_run_with_branches(kind):
    empty, rules, _ = KINDS[kind]
    decoder, cache, older = LabDecoder(DecoderConfig()), empty(), []
    for token in lab_token_ids(12).tolist():
        cache = decoder.step([token], cache, rules).cache
        older.append((cache, snapshot(cache)))
        decoder.step([31, 30], cache, rules)
    assert all(same(*pair) for pair in older)


@pytest.mark.parametrize("kind", ["growing", "preallocated", "sliding"])
def test_a_branch_that_overwrites_the_other_is_caught(kind, monkeypatch):
    monkeypatch.setattr(LayerCache, "append", overwrite)
    empty, rules, reference_rules = KINDS[kind]
    decoder, prefix = LabDecoder(DecoderConfig()), lab_token_ids(5)
    root = decoder.step(prefix[4:], decoder.step(prefix[:4], empty(), rules).cache, rules).cache
    one = decoder.step([1], root, rules).cache
    taken = snapshot(one)
    decoder.step([9], root, rules)
    assert not same(one, taken)
    hidden = decoder.step([2], one, rules).hidden[0].numpy()
    assert np.abs(hidden - full(decoder, [*prefix, 1, 2], reference_rules).hidden[-1]).max() > 1e-3


def test_threads_that_continue_one_prefix_each_get_their_own_slots():
    decoder, prefix_ids, n_threads = LabDecoder(DecoderConfig()), [3, 10, 17, 24], 4
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            prefix = decoder.step([31], decoder.step(prefix_ids).cache).cache  # its room has space left
            with ThreadPoolExecutor(n_threads) as pool:
                found = list(pool.map(lambda token, prefix=prefix: decoder.step([token], prefix), range(n_threads)))
            for token, step in enumerate(found):
                again = decoder.step([0], step.cache).hidden
                whole = decoder.step([*prefix_ids, 31, token, 0]).hidden[-2:]
                assert (torch.cat([step.hidden, again]) - whole).abs().max() <= 1e-12
    finally:
        sys.setswitchinterval(interval)


def test_entries_of_another_width_are_refused_and_appending_works_outside_of_inference_mode():
    cache = LabDecoder(DecoderConfig()).step([1, 2]).cache
    cache = LabDecoder(DecoderConfig()).step([3], cache).cache.layers[0]
    with pytest.raises(ValueError, match=r"of 16 numbers as torch\.float64; new entries of"):
        cache.append(torch.zeros(1, 1, 1, 8).double(), torch.zeros(1, 1, 1, 8).double(), np.array([3]))
    longer = cache.append(torch.ones(1, 1, 1, 16).double(), torch.ones(1, 1, 1, 16).double(), np.array([3]))
    assert longer.position.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="1 keys for 2 positions"):
        cache.append(torch.ones(1, 1, 1, 16).double(), torch.ones(1, 1, 1, 16).double(), np.array([3, 4]))
