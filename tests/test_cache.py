"""What a layer keeps, painted before and after, and what it refuses."""

import numpy as np
import pytest

from kvcore.cache import KVCache, LayerCache
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.paths import full
from kvcore.rules import sliding, windowed
from tests.painted import appended, entries, painted, same, snapshot


def test_an_empty_cache_holds_nothing():
    cache = LayerCache()
    assert (len(cache), cache.position.tolist(), cache.payload_bytes, cache.allocated_entries) == (0, [], 0, 0)
    assert KVCache.empty(3).payload_bytes == 0


def test_appending_puts_new_entries_behind_the_old():
    cache = appended(LayerCache(), 0, 1, 2)
    assert painted(cache) == [0, 1, 2]
    assert painted(appended(cache, 3)) == [0, 1, 2, 3]
    assert painted(appended(cache, 3, 4, 5, 6)) == [0, 1, 2, 3, 4, 5, 6]
    assert painted(cache) == [0, 1, 2]


def test_a_full_window_moves_on_by_one():
    before = appended(LayerCache(), 0, 1, 2, 3).keep_last(4)
    attended = appended(before, 4)
    after = attended.keep_last(4)
    assert [painted(before), painted(attended), painted(after)] == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 2, 3, 4]]


def test_a_window_that_is_not_full_evicts_nothing():
    assert painted(appended(LayerCache(), 0, 1, 2).keep_last(4)) == [0, 1, 2]
    assert painted(appended(LayerCache(), 0, 1, 2, 3).keep_last(3, n_first=1)) == [0, 1, 2, 3]


def test_sinks_stay_in_front_while_the_window_moves():
    cache = appended(LayerCache(), 0, 1, 2, 3).keep_last(3, n_first=1)
    shown = [painted(cache)]
    for position in (4, 5, 6):
        cache = appended(cache, position).keep_last(3, n_first=1)
        shown.append(painted(cache))
    assert shown == [[0, 1, 2, 3], [0, 2, 3, 4], [0, 3, 4, 5], [0, 4, 5, 6]]


def test_window_1_keeps_the_newest_entry_alone():
    cache, shown = LayerCache(), []
    for position in range(4):
        cache = appended(cache, position).keep_last(1)
        shown.append(painted(cache))
    assert shown == [[0], [1], [2], [3]]
    assert painted(appended(LayerCache(), 0, 1, 2).keep_last(1, n_first=1)) == [0, 2]


def test_a_chunk_longer_than_the_window_leaves_its_own_end():
    cache = appended(LayerCache(), 0, 1, 2, 3).keep_last(4)
    assert painted(appended(cache, *range(4, 11)).keep_last(4)) == [7, 8, 9, 10]
    assert painted(appended(cache, *range(4, 11)).keep_last(4, n_first=2)) == [0, 1, 7, 8, 9, 10]


@pytest.mark.parametrize(("window", "n_sinks"), [(1, 0), (3, 0), (3, 2), (1, 1), (20, 0)])
def test_every_layer_of_a_sliding_cache_holds_sinks_and_the_window(window, n_sinks):
    decoder, cache = LabDecoder(DecoderConfig(n_layers=3)), None
    for end, token in enumerate(lab_token_ids(12).tolist(), start=1):
        cache = decoder.step([token], cache, sliding(window, n_sinks)).cache
        kept = [p for p in range(end) if p < n_sinks or p >= end - window]
        assert [layer.position.tolist() for layer in cache.layers] == [kept] * 3
        assert cache.n_processed == end
        assert cache.payload_bytes == 2 * 3 * len(kept) * 16 * 8


def test_going_past_the_capacity_names_the_numbers_and_loses_nothing():
    cache = appended(LayerCache(capacity=4), 0, 1, 2)
    with pytest.raises(ValueError, match="3 cached and 2 new positions exceed the capacity of 4; at most 1 more fit"):
        appended(cache, 3, 4)
    assert painted(cache) == [0, 1, 2]
    filled = appended(cache, 3)
    with pytest.raises(ValueError, match="4 cached and 1 new positions exceed the capacity of 4; at most 0 more fit"):
        appended(filled, 4)
    assert painted(filled) == [0, 1, 2, 3]
    assert filled.allocated_entries == 4


def test_a_decoder_that_ran_out_of_room_goes_on_where_it_was():
    decoder, token_ids = LabDecoder(DecoderConfig()), lab_token_ids(8)
    cache = decoder.step(token_ids[:6], KVCache.empty(2, capacity=8)).cache
    taken = snapshot(cache)
    with pytest.raises(ValueError, match="6 cached and 3 new positions exceed the capacity of 8"):
        decoder.step([1, 2, 3], cache)
    assert same(cache, taken)
    step = decoder.step(token_ids[6:], cache)
    assert np.abs(step.hidden.numpy() - full(decoder, token_ids).hidden[6:]).max() <= 1e-12
    assert {layer.allocated_entries for layer in step.cache.layers} == {8}


def test_a_sliding_cache_decodes_on_in_room_for_one_more_than_its_window():
    decoder, cache, token_ids = LabDecoder(DecoderConfig()), KVCache.empty(2, capacity=5), lab_token_ids(24)
    rows = []
    for token in token_ids:
        step = decoder.step([token], cache, sliding(4))
        cache = step.cache
        rows.append(step.hidden[0].numpy())
    assert np.abs(np.array(rows) - full(decoder, token_ids, windowed(4)).hidden).max() <= 1e-12
    assert {layer.allocated_entries for layer in cache.layers} == {5}


def test_entries_of_another_batch_or_dtype_are_refused_and_nothing_is_lost():
    cache = appended(LayerCache(), 0, 1)
    key, value, position = entries(2)
    with pytest.raises(ValueError, match="the cache holds 1 sequence"):
        cache.append(key.expand(2, 1, 1, 2), value.expand(2, 1, 1, 2), position)
    with pytest.raises(ValueError, match=r"of 2 numbers as torch\.float32 do not fit"):
        cache.append(key.float(), value.float(), position)
    assert painted(appended(cache, 2)) == [0, 1, 2]
