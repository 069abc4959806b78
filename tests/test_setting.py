"""Every combination of positions, windows, sinks and storage: any split of the tokens gives the full path's result."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.config import POSITIONS, DecoderConfig
from kvcore.crop import crop
from kvcore.model import LabDecoder
from kvcore.paths import cached, full, prefix_recomputation
from kvcore.rules import from_zero
from kvcore.setting import STORAGE, Setting
from tests import oracle

TOLERANCE = 1e-12


@st.composite
def a_setting(draw):
    """A setting, distinct-ish token ids, chunk sizes that its storage takes."""
    n_kv_heads = draw(st.sampled_from([1, 2]))
    decoder = DecoderConfig(
        seed=draw(st.integers(0, 5)),
        d_model=16,
        n_layers=draw(st.integers(1, 4)),
        n_heads=n_kv_heads * draw(st.sampled_from([1, 2])),
        n_kv_heads=n_kv_heads,
        positions=draw(st.sampled_from(POSITIONS)),
    )
    window = st.one_of(st.none(), st.integers(1, 7))
    windows = draw(st.one_of(st.tuples(window), st.tuples(window, window, st.none())))
    storage = draw(st.sampled_from(STORAGE))
    n_sinks = 0 if storage.startswith("ring") else draw(st.integers(0, 2))
    length = draw(st.integers(2, 14))
    widest = max([w for w in windows if w], default=1)
    capacity = None
    if storage == "preallocated":
        capacity = length + draw(st.integers(0, 3))
    elif storage.startswith("ring"):
        capacity = widest + draw(st.integers(0, 4))
    most = capacity - widest + 1 if storage == "ring" and any(windows) else length
    sizes = []
    while sum(sizes) < length:
        sizes.append(draw(st.integers(1, min(most, length - sum(sizes)))))
    tokens = draw(st.lists(st.integers(0, 31), min_size=length, max_size=length))
    return Setting(decoder, windows, n_sinks, storage, capacity), np.array(tokens), sizes


def run(setting, tokens, sizes):
    return cached(LabDecoder(setting.decoder), tokens, sizes, setting.rules, setting.empty_cache()).hidden


def reference(setting, tokens):
    """All tokens in one call; what is stored does not matter there."""
    everything = Setting(setting.decoder, setting.windows, setting.n_sinks)
    return full(LabDecoder(setting.decoder), tokens, everything.rules).hidden


@settings(max_examples=200, deadline=None)
@given(a_setting())
def test_any_split_equals_the_full_path_at_every_position(case):
    setting, tokens, sizes = case
    assert np.abs(run(setting, tokens, sizes) - reference(setting, tokens)).max() <= TOLERANCE


@settings(max_examples=60, deadline=None)
@given(a_setting(), st.data())
def test_a_cropped_cache_continues_as_if_it_had_never_gone_further(case, data):
    setting, tokens, sizes = case
    decoder, cache, at = LabDecoder(setting.decoder), setting.empty_cache(), 0
    for size in sizes:
        cache, at = decoder.step(tokens[at : at + size], cache, setting.rules).cache, at + size
    n_kept = data.draw(st.integers(0, len(tokens) - 1))
    try:
        shorter = crop(cache, n_kept, setting.rules)
    except ValueError:
        assert setting.storage not in ("growing", "preallocated")
        return
    again = decoder.step(tokens[n_kept : n_kept + 1], shorter, setting.rules)
    assert np.abs(again.hidden.numpy() - reference(setting, tokens)[n_kept : n_kept + 1]).max() <= TOLERANCE
    assert cache.n_processed == len(tokens)


@settings(max_examples=40, deadline=None)
@given(a_setting())
def test_two_branches_of_one_prefix_do_not_disturb_each_other(case):
    setting, tokens, _ = case
    decoder = LabDecoder(setting.decoder)
    cache, half = setting.empty_cache(), len(tokens) // 2
    for token in tokens[:half]:
        cache = decoder.step([token], cache, setting.rules).cache
    other = (tokens + 1) % setting.decoder.vocab_size
    branches = [cache, cache]
    for at in range(half, len(tokens)):
        steps = [
            decoder.step(ids[at : at + 1], branch, setting.rules)
            for ids, branch in zip((tokens, other), branches, strict=True)
        ]
        branches = [step.cache for step in steps]
        for ids, step in zip((tokens, other), steps, strict=True):
            continued = np.concatenate([tokens[:half], ids[half:]])
            gap = step.hidden.numpy() - reference(setting, continued)[at : at + 1]
            assert np.abs(gap).max() <= TOLERANCE


@settings(max_examples=40, deadline=None)
@given(a_setting())
def test_full_path_equals_the_oracle(case):
    setting, tokens, _ = case
    expected = oracle.decode_setting(setting.decoder, tokens, setting.windows, setting.n_sinks)
    assert np.abs(reference(setting, tokens) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("positions", POSITIONS)
def test_prefix_recomputation_equals_full(positions):
    decoder = LabDecoder(DecoderConfig(positions=positions, n_heads=2, n_kv_heads=2))
    tokens = np.arange(10)
    assert np.abs(prefix_recomputation(decoder, tokens).hidden - full(decoder, tokens).hidden).max() <= TOLERANCE


@pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "none"])
def test_positions_matter(positions):
    """Each scheme is in force: without it the same parameters give other rows."""
    tokens = np.arange(10)
    without = full(LabDecoder(DecoderConfig(positions="none")), tokens).hidden
    assert np.abs(full(LabDecoder(DecoderConfig(positions=positions)), tokens).hidden - without).max() > 1e-3


def test_the_property_can_fail():
    """Rotary positions that start anew with every call are beyond tolerance."""
    setting = Setting(DecoderConfig(positions="rotary"))
    wrong = tuple(replace(rules, rotary_position=from_zero) for rules in setting.rules)
    tokens = np.arange(10)
    rows = cached(LabDecoder(setting.decoder), tokens, [4, 3, 3], wrong).hidden
    assert np.abs(rows - reference(setting, tokens)).max() > 1e-3


def test_a_ring_refuses_a_chunk_that_would_overwrite_what_it_needs():
    setting = Setting(windows=(4,), storage="ring", capacity=8)
    assert run(setting, np.arange(10), [5, 5]).shape == (10, 16)
    with pytest.raises(ValueError, match="takes at most 5 with window 4"):
        run(setting, np.arange(10), [6, 4])


@pytest.mark.parametrize(("back", "taken"), [(5, True), (6, False)])
def test_a_ring_goes_back_by_at_most_capacity_minus_window_plus_one(back, taken):
    setting = Setting(windows=(4,), storage="ring", capacity=8)
    decoder, cache = LabDecoder(setting.decoder), None
    for token in range(20):
        cache = decoder.step([token], cache, setting.rules).cache
    if taken:
        assert crop(cache, 20 - back, setting.rules).n_processed == 20 - back
    else:
        with pytest.raises(ValueError, match="no longer holds position 11"):
            crop(cache, 20 - back, setting.rules)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"windows": ()}, "no window given"),
        ({"windows": (0,)}, "window is 0"),
        ({"storage": "heap"}, "must be one of growing"),
        ({"storage": "ring"}, "capacity of a ring cache is None"),
        ({"storage": "ring", "windows": (4,), "capacity": 3}, "4 or more"),
        ({"storage": "ring", "windows": (4,), "capacity": 8, "n_sinks": 1}, "takes n_sinks 0"),
        ({"capacity": 3}, "a growing cache has no capacity"),
    ],
)
def test_bad_settings_say_what_is_allowed(fields, says):
    with pytest.raises(ValueError, match=says):
        Setting(**fields)
