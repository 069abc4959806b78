"""The lab decoder against the slow oracle, at every position and after every layer."""

import numpy as np
import pytest
import torch

from kvcore.config import DTYPES, DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.paths import full
from kvcore.rules import RIGHT, Rules, windowed
from tests import oracle

SHAPES = {
    "the recorded decoder": {},
    "another seed": {"seed": 41},
    "one layer": {"n_layers": 1},
    "four layers": {"n_layers": 4},
    "four heads": {"n_heads": 4, "n_kv_heads": 4},
    "four heads on two": {"n_heads": 4, "n_kv_heads": 2},
    "eight heads on one": {"n_heads": 8, "n_kv_heads": 1, "n_layers": 3},
    "small": {"d_model": 2, "vocab_size": 5, "n_layers": 1},
}
MASKS = {
    "causal": (RIGHT, oracle.causal),
    "window 1": (windowed(1), oracle.windowed(1)),
    "window 4": (windowed(4), oracle.windowed(4)),
    "window 3 and 2 sinks": (windowed(3, 2), oracle.windowed(3, 2)),
    "window beyond T": (windowed(99), oracle.windowed(99)),
}


def setting(config):
    """The oracle's words for a configuration."""
    names = ("seed", "vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads")
    return {name: getattr(config, name) for name in names}


def tokens_for(config, length=12):
    return lab_token_ids(length, config.vocab_size)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_full_path_matches_the_oracle_at_every_position_and_layer(shape, mask):
    config, (rules, visible) = DecoderConfig(**SHAPES[shape]), MASKS[mask]
    tokens = tokens_for(config)
    expected = oracle.hidden_states(tokens.tolist(), visible=visible, **setting(config))
    run = full(LabDecoder(config), tokens, rules)
    assert run.by_layer.shape == (config.n_layers, 12, config.d_model)
    assert np.abs(run.by_layer - expected).max() <= config.tolerance
    assert np.array_equal(run.hidden, run.by_layer[-1])


@pytest.mark.parametrize("seed", [7, 19, 41])
def test_the_recorded_setting_matches_the_oracle_at_all_24_positions(seed):
    config = DecoderConfig(seed=seed)
    expected = oracle.hidden_states(lab_token_ids(24).tolist(), seed=seed)
    assert np.abs(full(LabDecoder(config), lab_token_ids(24)).by_layer - expected).max() <= 1e-12


@pytest.mark.parametrize(
    "deviation",
    [
        {"seed": 8},
        {"n_heads": 2, "n_kv_heads": 2},
        {"visible": oracle.windowed(11)},
        {"first": 1},
        {"cast": "float32"},
    ],
    ids=lambda deviation: "-".join(deviation),
)
def test_the_oracle_comparison_can_fail(deviation):
    tokens = lab_token_ids(12)
    expected = oracle.hidden_states(tokens.tolist(), **deviation)
    assert np.abs(full(LabDecoder(DecoderConfig()), tokens).by_layer - expected).max() > 1e-9


def test_parameters_are_drawn_in_the_order_of_the_definition():
    config = DecoderConfig(seed=3, vocab_size=7, d_model=8, n_layers=2, n_heads=4, n_kv_heads=2)
    table, layers, _ = oracle.parameters(3, 7, 8, 2, 4, 2, "float64")
    decoder = LabDecoder(config)
    assert decoder.table.tolist() == table
    for projection, (w_q, w_k, w_v) in zip(decoder.projections, layers, strict=True):
        assert torch.equal(projection, torch.cat([torch.tensor(w, dtype=torch.float64) for w in (w_q, w_k, w_v)], 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_parameters_are_cast_once_and_computed_in_their_dtype(dtype):
    exact, decoder = LabDecoder(DecoderConfig()), LabDecoder(DecoderConfig(dtype=dtype))
    wanted = getattr(torch, dtype)
    assert torch.equal(decoder.table, exact.table.to(wanted))
    for projection, drawn in zip(decoder.projections, exact.projections, strict=True):
        assert torch.equal(projection, drawn.to(wanted))
    step = decoder.step([1, 2, 3])
    assert step.hidden.dtype == wanted
    assert {layer.key.dtype for layer in step.cache.layers} == {wanted}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_float64_run_of_cast_parameters_matches_the_oracle(dtype):
    """A lower precision is measured against its own cast parameters, not against the uncast ones."""
    config, tokens = DecoderConfig(dtype=dtype), lab_token_ids(12)
    run = full(LabDecoder(config).in_float64(), tokens)
    assert np.abs(run.by_layer - oracle.hidden_states(tokens.tolist(), cast=dtype)).max() <= 1e-12
    assert np.abs(run.by_layer - oracle.hidden_states(tokens.tolist())).max() > 1e-9


def test_a_batch_equals_each_sequence_alone():
    config = DecoderConfig(n_heads=4, n_kv_heads=2)
    decoder = LabDecoder(config)
    batch = np.stack([lab_token_ids(9), lab_token_ids(9)[::-1], np.zeros(9, dtype=int)])
    together = full(decoder, batch, windowed(4)).by_layer
    assert together.shape == (2, 3, 9, 16)
    for row, token_ids in enumerate(batch):
        assert np.abs(together[:, row] - full(decoder, token_ids, windowed(4)).by_layer).max() <= 1e-12


def test_without_a_cache_a_call_starts_where_it_is_told():
    tokens = lab_token_ids(5)
    hidden = LabDecoder(DecoderConfig()).step(tokens, cache_position=np.arange(7, 12)).hidden.numpy()
    assert np.abs(hidden - oracle.hidden_states(tokens.tolist(), first=7)[-1]).max() <= 1e-12
    assert np.abs(hidden - oracle.hidden_states(tokens.tolist())[-1]).max() > 1e-3


def test_hidden_states_lie_between_minus_one_and_one():
    hidden = full(LabDecoder(DecoderConfig(n_layers=6)), lab_token_ids(64)).by_layer
    assert np.abs(hidden).max() < 1


def test_a_row_that_sees_nothing_is_refused_in_every_call():
    def blind_from_3(query_position, key_position):
        return np.where(query_position[:, None] < 3, key_position <= query_position[:, None], False)

    decoder = LabDecoder(DecoderConfig())
    with pytest.raises(ValueError, match="query row 3 sees no key; every query must see at least one"):
        decoder.step(lab_token_ids(5), rules=Rules(visible=blind_from_3))


def test_weights_of_every_layer_and_head_sum_to_one_and_are_zero_where_masked():
    config = DecoderConfig(n_layers=3, n_heads=4, n_kv_heads=2)
    [call] = full(LabDecoder(config), lab_token_ids(10), windowed(3, 1), record_attention=True).calls
    assert call.attention.shape == (3, 1, 4, 10, 10)
    assert np.abs(call.attention.sum(axis=-1) - 1).max() <= 1e-14
    seen = np.array([[oracle.windowed(3, 1)(i, j) for j in range(10)] for i in range(10)])
    assert (call.attention[..., ~seen] == 0).all()
    assert (call.attention[..., seen] > 0).all()


def test_a_cache_of_another_decoder_or_batch_is_refused():
    decoder = LabDecoder(DecoderConfig())
    deeper = LabDecoder(DecoderConfig(n_layers=3)).step([1]).cache
    with pytest.raises(ValueError, match="the cache has 3 layers; this decoder has 2"):
        decoder.step([2], deeper)
    pair = decoder.step([[1, 2], [3, 4]]).cache
    with pytest.raises(ValueError, match="the cache holds 2 sequence"):
        decoder.step([5], pair)
    single = LabDecoder(DecoderConfig(dtype="float32"))
    with pytest.raises(ValueError, match=r"as torch\.float32; new entries"):
        decoder.step([5], single.step([1]).cache)
