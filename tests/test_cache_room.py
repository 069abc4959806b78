"""What a step copies and what a cache keeps allocated, counted entry by entry and byte by byte."""

import pytest

from kvcore.cache import LayerCache, _Room
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.rules import sliding
from tests.painted import appended, painted


def copied_entries(monkeypatch):
    """The number of entries in each write into a room from now on."""
    sizes, write = [], _Room.write

    def counted(self, start, key, value, position):
        sizes.append(len(position))
        write(self, start, key, value, position)

    monkeypatch.setattr(_Room, "write", counted)
    return sizes


def copy_all(self, key, value, position):
    """Planted: every append moves to a room of its own."""
    room = self._larger_room(key, len(self) + len(position))
    room.write(len(self), key, value, position)
    return LayerCache(self.capacity, room, 0, room.filled)


def hold_on(self, n_last, n_first=0):
    """Planted: eviction only looks away."""
    return LayerCache(self.capacity, self._room, max(self._start, self._stop - n_last), self._stop)


@pytest.mark.parametrize("n_tokens", [1, 2, 5, 11, 23, 24, 95, 300])
def test_appending_one_at_a_time_copies_fewer_than_three_entries_a_token(n_tokens, monkeypatch):
    sizes, cache = copied_entries(monkeypatch), LayerCache()
    for position in range(n_tokens):
        cache = appended(cache, position)
    assert painted(cache) == list(range(n_tokens))
    assert n_tokens <= sum(sizes) < 3 * n_tokens


def test_decoding_with_preallocated_room_copies_each_entry_once(monkeypatch):
    sizes, cache = copied_entries(monkeypatch), LayerCache(capacity=64)
    for position in range(64):
        cache = appended(cache, position)
    assert sizes == [1] * 64


@pytest.mark.parametrize("window", [1, 4, 16])
def test_a_sliding_window_copies_a_bounded_number_a_token(window, monkeypatch):
    sizes, cache = copied_entries(monkeypatch), LayerCache()
    for position in range(300):
        cache = appended(cache, position).keep_last(window)
    assert painted(cache) == list(range(300 - window, 300))
    assert sum(sizes) < 3 * 300


def test_sinks_cost_one_copy_of_what_is_kept_a_token(monkeypatch):
    """The window and the sinks in front of it do not lie side by side, so eviction moves them together."""
    sizes, cache = copied_entries(monkeypatch), LayerCache()
    for position in range(300):
        cache = appended(cache, position).keep_last(4, n_first=2)
    assert sum(sizes) <= 300 * (4 + 2 + 1)


def test_a_cache_that_copies_all_entries_is_caught(monkeypatch):
    monkeypatch.setattr(LayerCache, "append", copy_all)
    sizes, cache = copied_entries(monkeypatch), LayerCache()
    for position in range(24):
        cache = appended(cache, position)
    assert sum(sizes) == 24 * 25 // 2
    assert sum(sizes) >= 3 * 24


def room_bytes(cache):
    return cache.key.untyped_storage().nbytes(), cache.value.untyped_storage().nbytes()


def bounded(cache, kept):
    """Room for at most four times the kept entries and two more, in the count and in the storage itself."""
    most = 4 * kept + 2
    return cache.allocated_entries <= most and max(room_bytes(cache)) <= most * cache.key[:, :, 0].nbytes


@pytest.mark.parametrize(("window", "n_sinks"), [(1, 0), (4, 0), (16, 0), (4, 2), (1, 3)])
@pytest.mark.parametrize("chunks", [[1] * 60, [500, *[1] * 40], [7] * 20, [3, 100, 1, 1, 100, 1], [4, 4, 4, 4]])
def test_a_sliding_cache_does_not_keep_evicted_entries_alive(window, n_sinks, chunks):
    cache, done = LayerCache(), 0
    for size in chunks:
        cache = appended(cache, *range(done, done + size)).keep_last(window, n_sinks)
        done += size
        assert bounded(cache, window + n_sinks)


def test_a_sliding_cache_that_only_looks_away_is_caught(monkeypatch):
    monkeypatch.setattr(LayerCache, "keep_last", hold_on)
    cache = appended(LayerCache(), *range(500)).keep_last(4)
    assert painted(cache) == [496, 497, 498, 499]
    assert cache.payload_bytes == 2 * 4 * 2 * 8
    assert not bounded(cache, 4)


def test_the_decoder_lets_a_long_prompt_go():
    decoder = LabDecoder(DecoderConfig())
    cache = decoder.step(lab_token_ids(200), None, sliding(4)).cache
    assert all(bounded(layer, 4) for layer in cache.layers)
    assert cache.n_processed == 200
