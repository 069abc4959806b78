"""The second recorded system: a multi-head layer, cached from preallocated room against uncached."""

import numpy as np
import pytest
import torch

from kvcore import multihead
from kvcore.attention import attention
from kvcore.cache import KVCache
from kvcore.multihead import MultiHeadConfig, MultiHeadLayer, run_multihead
from tests import oracle

step = MultiHeadLayer.step


def drawn(config):
    """The layer and all its vectors (batch, positions, d_model)."""
    rng = np.random.default_rng(config.seed)
    layer = MultiHeadLayer(config, rng)
    return layer, torch.from_numpy(rng.normal(size=(config.batch, 8, config.d_model))).to(torch.float32)


@pytest.mark.parametrize("seed", [42, 0, 1, 7])
def test_cached_matches_uncached_at_every_position(seed):
    run = run_multihead(MultiHeadConfig(seed=seed))
    assert run.cached.shape == run.uncached.shape == (2, 8, 64)
    assert np.abs(run.cached - run.uncached).max() <= 1e-5
    assert run.comparison.equal
    assert run.comparison.position.tolist() == list(range(8))
    assert run.comparison.largest == np.abs(run.cached - run.uncached).max()


@pytest.mark.parametrize(
    "setting",
    [
        {"n_heads": 1},
        {"n_heads": 64},
        {"batch": 1, "d_model": 6, "n_heads": 3},
        {"n_prompt": 1, "n_decode": 31},
        {"n_prompt": 31, "n_decode": 1},
        {"capacity": 8},
    ],
    ids=str,
)
def test_other_settings_match_too(setting):
    assert run_multihead(MultiHeadConfig(**setting)).comparison.equal


def test_the_recorded_setting_is_off_by_rounding_alone_and_keeps_what_it_says():
    run = run_multihead()
    assert 0 < run.comparison.largest < 1e-6
    assert run.cached_entries == 8
    assert run.payload_bytes == 2 * 2 * 8 * 64 * 4


def test_uncached_matches_the_definition_with_loops():
    """Weights and vectors drawn here in the contract's order, one dot product at a time."""
    config, rng = MultiHeadConfig(d_model=16), np.random.default_rng(42)
    w_q, w_k, w_v, w_o = (
        rng.normal(0, 1 / 16**0.5, (16, 16)).astype(np.float32).astype(float).tolist() for _ in range(4)
    )
    vectors = [*rng.normal(size=(2, 5, 16)).transpose(1, 0, 2), *rng.normal(size=(3, 2, 16))]
    run = run_multihead(config)
    for b in range(2):
        x = [vector[b].astype(np.float32).astype(float).tolist() for vector in vectors]
        queries, keys, values = ([oracle.times(row, w) for row in x] for w in (w_q, w_k, w_v))
        for i in range(8):
            context = []
            for head in range(4):
                own = slice(4 * head, 4 * head + 4)
                seen = range(i + 1)
                context += oracle.attend(queries[i][own], [keys[j][own] for j in seen], [values[j][own] for j in seen])
            assert np.abs(run.uncached[b, i] - oracle.times(context, w_o)).max() <= 1e-5


def test_going_past_the_capacity_is_an_error_that_loses_nothing():
    layer, x = drawn(MultiHeadConfig())
    whole = layer.step(x).hidden
    cache = layer.step(x[:, :5], KVCache.empty(1, capacity=7)).cache
    entries = cache.layers[0]
    key, value = entries.key.clone(), entries.value.clone()
    with pytest.raises(ValueError, match="5 cached and 3 new positions exceed the capacity of 7; at most 2 more fit"):
        layer.step(x[:, 5:], cache)
    assert torch.equal(entries.key, key)
    assert torch.equal(entries.value, value)
    out, cache, _ = layer.step(x[:, 5:7], cache)
    assert (out - whole[:, 5:7]).abs().max() <= 1e-5
    assert cache.layers[0].position.tolist() == list(range(7))


def test_a_run_longer_than_its_capacity_is_refused():
    with pytest.raises(ValueError, match="7 cached and 1 new positions exceed the capacity of 7"):
        run_multihead(MultiHeadConfig(capacity=7))


def over_unfilled_room(query, key, value, visible):
    """Planted: scores over all 32 preallocated slots, the unfilled ones zero and not masked."""
    missing = 32 - key.shape[2]
    padded = [torch.nn.functional.pad(part, (0, 0, 0, missing)) for part in (key, value)]
    return attention(query, *padded, np.pad(visible, ((0, 0), (0, missing)), constant_values=True))


def positions_from_zero(self, x, cache=None):
    """Planted: every call counts its rows from 0."""
    found = step(self, x, None if cache is None else KVCache(cache.layers, 0))
    n_processed = (0 if cache is None else cache.n_processed) + x.shape[1]
    return found._replace(cache=KVCache(found.cache.layers, n_processed))


def unmasked(query, key, value, visible):
    """Planted: the prompt's rows see each other's future."""
    return attention(query, key, value, np.ones_like(visible))


def own_scale(query, key, value, visible):
    """Planted: a decode step with a scale of its own."""
    return attention(query * (0.9 if len(visible) == 1 else 1), key, value, visible)


@pytest.mark.parametrize(
    ("where", "name", "fault", "first_wrong"),
    [
        (MultiHeadLayer, "step", positions_from_zero, 5),
        (multihead, "attention", own_scale, 5),
    ],
)
def test_a_fault_in_the_decode_step_is_caught_at_its_first_position(monkeypatch, where, name, fault, first_wrong):
    monkeypatch.setattr(where, name, fault)
    found = run_multihead().comparison
    assert found.largest > 1e-2
    assert found.first_beyond == first_wrong


@pytest.mark.parametrize("fault", [over_unfilled_room, unmasked])
def test_a_fault_of_both_sides_is_caught_by_the_other_reference(monkeypatch, fault):
    right = run_multihead().uncached
    monkeypatch.setattr(multihead, "attention", fault)
    run = run_multihead()
    assert np.abs(run.cached - right).max() > 1e-2


def test_scores_over_unfilled_room_in_the_cached_path_alone_are_caught(monkeypatch):
    def only_while_decoding(query, key, value, visible):
        return (over_unfilled_room if len(visible) == 1 else attention)(query, key, value, visible)

    monkeypatch.setattr(multihead, "attention", only_while_decoding)
    found = run_multihead().comparison
    assert found.first_beyond == 5
    assert found.largest > 1e-2
