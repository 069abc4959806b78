"""Stored prefixes: reused where they belong, never wrong, and every check of that shown to fail on a mistake."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from kvcore import prefix_experiment as reuse
from kvcore.config import POSITIONS, DecoderConfig
from kvcore.faults import FAULTS
from kvcore.model import LabDecoder
from kvcore.plain import PlainDecoder
from kvcore.prefix import (
    RIGHT_REUSE,
    Key,
    PrefixStore,
    ReuseRules,
    common_prefix,
    differing,
    key_of,
    reuse_experiment,
)
from kvcore.setting import STORAGE, Setting
from tests import oracle
from tests.test_setting import a_setting

TOLERANCE = 1e-12
SEEDS = (7, 19, 41)


@pytest.fixture(scope="module")
def rows():
    return reuse_experiment()


# The experiment


def check_row(row):
    """What must hold of one row; `assert` says what does not."""
    hit = row["condition"] in ("same-prefix", "new-suffix")
    assert row["keyed_error"] <= TOLERANCE
    assert row["reused"] is hit
    assert row["projected_rows"] == (24 if hit else 72)
    if row["condition"] in ("edited-prefix", "different-weights", "different-window"):
        assert row["unchecked_error"] > 1e-3
    else:
        assert row["unchecked_error"] <= TOLERANCE


def test_rows_are_the_seeds_times_the_conditions(rows):
    names = ["same-prefix", "edited-prefix", "different-weights", "different-window", "different-scope", "new-suffix"]
    assert [(row["seed"], row["condition"]) for row in rows] == [(seed, name) for seed in SEEDS for name in names]
    keys = ["seed", "condition", "unchecked_error", "keyed_error", "reused", "projected_rows"]
    assert all(list(row) == keys for row in rows)
    assert all(type(row["unchecked_error"]) is type(row["keyed_error"]) is float for row in rows)


@pytest.mark.parametrize("index", range(18))
def test_keyed_reuse_is_right_and_unchecked_reuse_wrong_exactly_where_something_deciding_differs(rows, index):
    check_row(rows[index])


def test_a_miss_is_fresh_computation_itself(rows):
    assert all(row["keyed_error"] == 0 for row in rows if not row["reused"])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_conditions_change_what_they_name(seed):
    stored = reuse.stored_request(seed)
    assert stored.prefix == (1, 2, 3, 4, 5, 6, 7, 8)
    assert stored.suffix == (9, 10, 11, 12)
    asked = {name: reuse.asked_under(name, stored) for name in reuse.CONDITIONS}
    assert asked["edited-prefix"].prefix == (1, 2, 20, 4, 5, 6, 7, 8)
    assert asked["new-suffix"].token_ids == (1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 23)
    assert asked["different-window"].setting.windows == (4,)
    changed = asked["different-weights"].decoder.projections[0] - stored.decoder.projections[0]
    assert changed[0, 16] == pytest.approx(0.5)  # columns 0–15 are W_Q's, 16–31 W_K's
    assert changed.count_nonzero() == 1
    fields = {name: differing(stored.key, request.key) for name, request in asked.items()}
    assert fields == {
        "same-prefix": (),
        "edited-prefix": (),
        "different-weights": ("weights",),
        "different-window": ("windows",),
        "different-scope": ("scope",),
        "new-suffix": (),
    }


def test_a_condition_of_another_name_is_refused():
    with pytest.raises(ValueError, match="condition is 'other'; it must be one of same-prefix, edited-prefix"):
        reuse.asked_under("other", reuse.stored_request(7))


@pytest.mark.parametrize("condition", [name for name in reuse.CONDITIONS if name != "different-weights"])
@pytest.mark.parametrize("seed", SEEDS)
def test_fresh_rows_are_the_oracles(seed, condition):
    """The oracle draws its own weights; the next test changes them."""
    stored = reuse.stored_request(seed)
    asked = reuse.asked_under(condition, stored)
    fresh = reuse.reuse(stored, asked).fresh.hidden
    expected = oracle.decode_setting(asked.decoder.config, asked.token_ids, asked.setting.windows, 0)
    assert np.abs(fresh - expected[8:]).max() <= TOLERANCE


@pytest.mark.parametrize("condition", ["same-prefix", "edited-prefix", "different-weights", "new-suffix"])
@pytest.mark.parametrize("seed", SEEDS)
def test_unchecked_error_is_that_of_a_plain_decoder_which_reads_another_prefix(seed, condition):
    """NumPy alone: the stored prefix by one decoder, then the request's suffix by the one that asks."""
    asked = reuse.asked_under(condition, reuse.stored_request(seed))

    def run(first, change):
        plain = PlainDecoder(DecoderConfig(seed=seed))
        if change == "before":
            plain.weights[0][1][0, 0] += 0.5
        for token in first:
            plain.step(token)
        if change == "after":
            plain.weights[0][1][0, 0] += 0.5
        return np.array([plain.step(token) for token in asked.suffix])

    weights = condition == "different-weights"
    fresh = run(asked.prefix, "before" if weights else "")
    stale = run(reuse.PREFIX, "after" if weights else "")
    (row,) = [row for row in reuse_experiment([seed]) if row["condition"] == condition]
    assert np.abs(stale - fresh).max() == pytest.approx(row["unchecked_error"], abs=TOLERANCE)


def without(*fields):
    """Two keys match whatever these fields are: a key that lacks them."""
    return lambda stored, wanted: set(differing(stored, wanted)) <= set(fields)


@pytest.mark.parametrize(
    ("mistake", "condition"),
    [
        (ReuseRules(same_key=without("weights")), "different-weights"),
        (ReuseRules(same_key=without("windows")), "different-window"),
        (ReuseRules(same_key=without("scope")), "different-scope"),
        (ReuseRules(common=lambda stored, wanted: len(stored)), "edited-prefix"),
    ],
)
def test_the_experiment_catches_a_key_that_lacks_something(monkeypatch, mistake, condition):
    monkeypatch.setattr(reuse, "PrefixStore", lambda: PrefixStore(mistake))
    for row in reuse_experiment([7]):
        if row["condition"] != condition:
            check_row(row)
            continue
        with pytest.raises(AssertionError):
            check_row(row)
        assert row["reused"]
        assert (row["keyed_error"] > 1e-3) == (condition != "different-scope")


# The store


def store_of(decoder, setting, tokens, rules=RIGHT_REUSE, scope=""):
    """A store with these tokens' cache, filled token by token so that any storage takes them."""
    cache = setting.empty_cache()
    for token in tokens:
        cache = decoder.step([token], cache, setting.rules).cache
    store = PrefixStore(rules)
    store.put(key_of(decoder, setting, scope), tokens, cache)
    return store


def continued(decoder, setting, tokens, hit):
    """The rows behind a hit, token by token; a hit on everything feeds the last token once more, as people do."""
    cache, rows = hit.cache, []
    for token in tokens[min(hit.n_reused, len(tokens) - 1) :]:
        step = decoder.step([token], cache, setting.rules)
        cache = step.cache
        rows.append(step.hidden[0].numpy())
    return np.array(rows)


def full_rows(decoder, setting, tokens):
    everything = Setting(setting.decoder, setting.windows, setting.n_sinks)
    return decoder.step(tokens, rules=everything.rules).hidden.numpy()


def error_behind(decoder, setting, tokens, hit):
    """How far the rows behind a hit are from the full path's."""
    rows = continued(decoder, setting, tokens, hit)
    return float(np.abs(rows - full_rows(decoder, setting, tokens)[-len(rows) :]).max())


@settings(max_examples=40, deadline=None)
@given(a_setting(), st.data())
def test_the_longest_common_prefix_equals_the_full_path_or_is_refused(case, data):
    setting, tokens, _ = case
    decoder, stored = LabDecoder(setting.decoder), tokens.tolist()
    n_kept = data.draw(st.integers(0, len(stored)))
    room = 6 if setting.storage != "preallocated" else setting.capacity - n_kept
    asked = stored[:n_kept] + data.draw(st.lists(st.integers(0, 31), max_size=min(6, room)))
    assume(asked)
    hit = store_of(decoder, setting, stored).find(key_of(decoder, setting), asked, setting)
    n_common = min(common_prefix(stored, asked), len(asked) - 1)
    if hit is None:
        evicts = setting.storage not in ("growing", "preallocated") and any(setting.windows)
        assert n_common == 0 or evicts
        return
    assert hit.n_reused == n_common
    assert error_behind(decoder, setting, asked, hit) <= TOLERANCE


def stored_with(setting, storage):
    """The same setting stored in another way; no sinks in a ring."""
    capacity = 24 if storage == "preallocated" else 6 if storage.startswith("ring") else None
    n_sinks = 0 if storage.startswith("ring") else setting.n_sinks
    return replace(setting, storage=storage, n_sinks=n_sinks, capacity=capacity)


def a_change(data, what, setting):
    """The same setting with one thing changed that a key holds."""
    decoder, window = setting.decoder, st.integers(1, 6)
    if what == "windows":
        return replace(setting, windows=(data.draw(window.filter(lambda w: (w,) != setting.windows)),))
    if what == "n_sinks":
        return replace(setting, n_sinks=data.draw(st.integers(1, 2)))
    if what == "storage":
        return stored_with(setting, data.draw(st.sampled_from([s for s in STORAGE if s != setting.storage])))
    changed = {
        "seed": {"seed": decoder.seed + 1},
        "positions": {"positions": data.draw(st.sampled_from([p for p in POSITIONS if p != decoder.positions]))},
        "heads": {"n_heads": 2, "n_kv_heads": 2},
    }
    return replace(setting, decoder=replace(decoder, **changed[what]))


CHANGES = ("seed", "heads", "positions", "windows", "n_sinks", "storage")


def never_wrong_in_another(what, data):
    """A store that holds a prefix of one setting either refuses another setting or is right in it."""
    decoder = DecoderConfig(seed=data.draw(st.integers(0, 5)), positions=data.draw(st.sampled_from(POSITIONS)))
    windows = (data.draw(st.integers(1, 6)), data.draw(st.sampled_from([None, 4])))
    free = [s for s in STORAGE if not s.startswith("ring")]
    storage = data.draw(st.sampled_from(free if what == "n_sinks" else STORAGE))
    stored_in = stored_with(Setting(decoder, windows), storage)
    asked_in = a_change(data, what, stored_in)
    length = data.draw(st.integers(7, 14))  # a ring has wrapped
    stored = data.draw(st.lists(st.integers(0, 31), min_size=length, max_size=length))
    asked = stored + data.draw(st.lists(st.integers(0, 31), min_size=3, max_size=6))
    asking = LabDecoder(asked_in.decoder)
    hit = store_of(LabDecoder(decoder), stored_in, stored).find(key_of(asking, asked_in), asked, asked_in)
    if hit is not None:
        assert error_behind(asking, asked_in, asked, hit) <= TOLERANCE


@pytest.mark.parametrize("what", CHANGES)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_a_prefix_stored_in_one_setting_is_never_wrong_in_another(what, data):
    never_wrong_in_another(what, data)


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("seed", {"weights": ""}),
        ("heads", {"heads": ()}),
        ("positions", {"positions": "", "weights": ""}),  # a learned table is among the weights
        ("windows", {"windows": ()}),
        ("n_sinks", {"n_sinks": 0}),
        ("storage", {"storage": "", "capacity": None}),
    ],
)
def test_that_property_catches_a_key_that_lacks_a_field(monkeypatch, what, fields):
    right_key = key_of
    monkeypatch.setitem(globals(), "key_of", lambda *arguments: right_key(*arguments)._replace(**fields))

    @settings(max_examples=100, deadline=None, phases=[Phase.generate], derandomize=True, database=None)
    @given(st.data())
    def property_of_a_lacking_key(data):
        never_wrong_in_another(what, data)

    with pytest.raises((AssertionError, ValueError)):
        property_of_a_lacking_key()


SMALL = Setting(DecoderConfig())
IN_RING = Setting(DecoderConfig(), (4,), storage="ring", capacity=6)
MATTERS = {
    "weights": (SMALL, replace(SMALL, decoder=DecoderConfig(seed=8))),
    "heads": (SMALL, replace(SMALL, decoder=DecoderConfig(n_heads=2, n_kv_heads=2))),
    "positions": (SMALL, replace(SMALL, decoder=DecoderConfig(positions="rotary"))),
    "windows": (SMALL, replace(SMALL, windows=(3,))),
    "n_sinks": (replace(SMALL, windows=(3,)), replace(SMALL, windows=(3,), n_sinks=1)),
    "storage": (IN_RING, Setting(DecoderConfig(), (4,), storage="sliding")),
    "capacity": (
        Setting(DecoderConfig(), storage="preallocated", capacity=10),
        Setting(DecoderConfig(), storage="preallocated", capacity=16),
    ),
}
"""Field of the key -> settings that differ in it; a store whose key lacks it gives wrong rows or cannot go on."""


@pytest.mark.parametrize("name", [name for name in Key._fields if name != "scope"])
def test_every_field_of_the_key_matters(name):
    stored_in, asked_in = MATTERS[name]
    decoder, tokens = LabDecoder(asked_in.decoder), list(range(1, 10))
    asked = [*tokens, 20, 21, 22, 23]
    key = key_of(decoder, asked_in)
    assert name in differing(key_of(LabDecoder(stored_in.decoder), stored_in), key)
    assert store_of(LabDecoder(stored_in.decoder), stored_in, tokens).find(key, asked, asked_in) is None
    lacking = ReuseRules(same_key=without(name, *(["capacity"] if name == "storage" else [])))
    hit = store_of(LabDecoder(stored_in.decoder), stored_in, tokens, lacking).find(key, asked, asked_in)
    assert hit.n_reused == 9
    if name in ("heads", "capacity"):
        with pytest.raises(ValueError, match=r"do not fit|exceed the capacity"):
            continued(decoder, asked_in, asked, hit)
    else:
        assert error_behind(decoder, asked_in, asked, hit) > 1e-3


def test_another_scope_is_numerically_the_same_and_still_missed():
    decoder, tokens = LabDecoder(SMALL.decoder), [1, 2, 3, 4]
    store = store_of(decoder, SMALL, tokens, scope="one")
    assert store.find(key_of(decoder, SMALL, "another"), [*tokens, 5], SMALL) is None
    hit = store.find(key_of(decoder, SMALL, "one"), [*tokens, 5], SMALL)
    assert error_behind(decoder, SMALL, [*tokens, 5], hit) <= TOLERANCE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_number_format_and_the_smallest_change_of_a_weight_are_in_the_digest(dtype):
    decoder = LabDecoder(SMALL.decoder)
    assert "weights" in differing(key_of(decoder, SMALL), key_of(LabDecoder(DecoderConfig(dtype=dtype)), SMALL))
    assert differing(key_of(decoder, SMALL), key_of(reuse.with_changed_weight(decoder, 1e-15), SMALL)) == ("weights",)
    learned = DecoderConfig(positions="learned")
    longer = replace(learned, max_positions=513)
    assert differing(key_of(LabDecoder(learned), SMALL), key_of(LabDecoder(longer), SMALL)) == ("weights",)
    assert key_of(decoder, SMALL) == key_of(LabDecoder(DecoderConfig()), SMALL)


def test_the_longest_of_several_stored_prefixes_is_found_and_the_last_token_left():
    decoder, key = LabDecoder(SMALL.decoder), key_of(LabDecoder(SMALL.decoder), SMALL)
    store = PrefixStore()
    for tokens in ([1, 2], [1, 2, 3, 4, 5], [1, 2, 3], [9, 9, 9, 9, 9, 9]):
        store.put(key, tokens, decoder.step(tokens).cache)
    found = {
        (1, 2, 3, 4, 7): 4,
        (1, 2, 3, 4, 5): 4,
        (1, 2, 3, 4, 5, 6): 5,
        (1, 2): 1,
        (1,): None,
        (8, 2, 3): None,
        (9, 9): 1,
    }
    for asked, n_reused in found.items():
        hit = store.find(key, asked, SMALL)
        assert (hit.n_reused if hit else None) == n_reused
        if hit:
            assert hit.cache.n_processed == n_reused
            assert error_behind(decoder, SMALL, list(asked), hit) <= TOLERANCE
    assert store.find(key, (1, 2, 3, 4, 7), SMALL, at_least=5) is None


def test_a_hit_spoils_nothing():
    """Two requests branch from one stored prefix, in turn."""
    decoder, key = LabDecoder(SMALL.decoder), key_of(LabDecoder(SMALL.decoder), SMALL)
    store = store_of(decoder, SMALL, [1, 2, 3, 4])
    for asked in ([1, 2, 3, 4, 5, 6], [1, 2, 20, 21], [1, 2, 3, 4, 5, 6]):
        assert error_behind(decoder, SMALL, asked, store.find(key, asked, SMALL)) <= TOLERANCE


def test_a_cache_of_another_number_of_tokens_is_not_stored():
    decoder = LabDecoder(SMALL.decoder)
    with pytest.raises(ValueError, match="the cache has processed 2 tokens, not the 3 given"):
        PrefixStore().put(key_of(decoder, SMALL), [1, 2, 3], decoder.step([1, 2]).cache)


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        ("prefix_reused_past_an_edit", [1, 2, 20, 4, 5, 6]),
        ("prefix_key_without_tokens", [1, 2, 20, 4, 5, 6]),
        ("last_token_fed_twice", [1, 2, 3, 4]),
    ],
)
def test_planted_reuse_mistakes_are_caught_and_the_right_rules_pass(fault, asked):
    decoder, key = LabDecoder(SMALL.decoder), key_of(LabDecoder(SMALL.decoder), SMALL)
    for rules, wrong in ((FAULTS[fault].reuse, True), (RIGHT_REUSE, False)):
        hit = store_of(decoder, SMALL, [1, 2, 3, 4], rules).find(key, asked, SMALL)
        assert (error_behind(decoder, SMALL, asked, hit) > 1e-3) == wrong
