"""What bench measures is the same computation on both sides; how long it takes is no test."""

import numpy as np
import pytest
import torch

from kvcore import bench, paths, turns
from kvcore.bench import AGAINST_PLAIN, Setting
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.plain import PlainDecoder
from kvcore.threads import one_thread
from tests import oracle

TINY = Setting(5, 4, 2)


@pytest.mark.parametrize(("d_model", "n_heads", "n_layers"), [(16, 1, 2), (16, 4, 2), (8, 2, 3)])
def test_plain_decoder_equals_the_engine_at_every_position(d_model, n_heads, n_layers):
    config = DecoderConfig(seed=5, d_model=d_model, n_heads=n_heads, n_kv_heads=n_heads, n_layers=n_layers)
    plain, tokens = PlainDecoder(config), lab_token_ids(30)
    rows = [plain.step(token) for token in tokens.tolist()]
    np.testing.assert_allclose(rows, paths.full(LabDecoder(config), tokens).hidden, rtol=0, atol=1e-12)


def test_plain_decoder_equals_the_oracle_and_restarts_afresh():
    tokens = [3, 1, 4, 1, 5]
    expected = oracle.hidden_states(tokens, seed=2, vocab_size=6, d_model=4, n_heads=2, n_kv_heads=2)[-1]
    plain = PlainDecoder(DecoderConfig(seed=2, vocab_size=6, d_model=4, n_heads=2, n_kv_heads=2))
    for _ in range(2):
        np.testing.assert_allclose([plain.step(token) for token in tokens], expected, rtol=0, atol=1e-12)
        plain.restart()


def test_all_sides_decode_the_same_hidden_states():
    sides = (bench.token_cache, bench.plain, bench.prefix_recomputation)
    rows = [np.array([np.asarray(row).reshape(-1) for row in side(TINY)()]) for side in sides]
    assert rows[0].shape == (5, 4)
    for other in rows[1:]:
        np.testing.assert_allclose(other, rows[0], rtol=0, atol=1e-12)


def test_settings_and_targets_are_those_asked_for():
    found = [(s.length, s.d_model, s.n_heads, s.target) for s in AGAINST_PLAIN]
    assert found == [(24, 16, 1, 6), (4096, 64, 4, 0.8), (1024, 512, 8, 0.8)]
    assert all((s.decoder.n_layers, s.decoder.dtype) == (2, "float64") for s in AGAINST_PLAIN)


def test_sides_take_turns_after_a_warm_up_until_each_has_finished(monkeypatch):
    monkeypatch.setattr(turns, "TURN", 2)
    order = []

    def side(name, length):
        return lambda: (order.append(name) for _ in range(length))

    seconds = turns.measure([side("a", 3), side("b", 5)], runs=5, repeats=2)
    assert "".join(order) == "aabbabbb" * (1 + 5 * 2)
    assert [len(times) for times in seconds] == [5, 5]
    assert all(time > 0 for times in seconds for time in times)


def test_a_ratio_is_the_median_within_runs_and_never_a_bare_time(monkeypatch):
    monkeypatch.setattr(bench, "measure", lambda sides, runs, repeats: [[2.0, 3.0, 9.0], [1.0, 1.0, 2.0]])
    found = bench.against_plain(Setting(10, 4, 1, target=6, repeats=100), runs=3)
    assert (found.ratio, found.lowest, found.highest, found.runs) == (3, 2, 4.5, 3)
    assert (found.microseconds_a_token, found.against_microseconds_a_token) == (3000, 1000)
    assert "takes 3.00 times as long as" in found.line
    assert "2.00 to 4.50 over 3 runs" in found.line
    assert "target at most 6" in found.line
    assert {"name", "setting", "ratio", "against", "runs"} <= set(found.to_json())


def test_growth_compares_paths_at_each_length_and_lengths_of_each_path(monkeypatch):
    monkeypatch.setattr(bench, "measure", lambda sides, runs: [[4.0], [2.0], [32.0], [4.0]])
    found = list(bench.over_length((4, 8), runs=1))
    assert [(ratio.name, ratio.against, ratio.ratio) for ratio in found] == [
        ("prefix recomputation", "token cache", 2),
        ("prefix recomputation", "token cache", 8),
        ("prefix recomputation, a token", "prefix recomputation at T=4, a token", 4),
        ("token cache, a token", "token cache at T=4, a token", 1),
    ]


def test_quick_measures_the_smallest_setting_only(monkeypatch):
    monkeypatch.setattr(bench, "measure", lambda sides, runs, repeats: [[1.0] * runs, [2.0] * runs])
    assert [(ratio.ratio, ratio.runs) for ratio in bench.bench(runs=7, quick=True)] == [(0.5, 7)]


def test_threads_are_one_within_and_as_before_afterwards():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_verify_costs_is_measured_for_a_right_and_a_faulty_model():
    right, faulty = bench.costs(1)
    assert (right.name, faulty.name) == ("verify of a right model", "verify of a faulty model")
    for cost in (right, faulty):
        assert {"name", "setting", "ratio", "against", "runs"} <= set(cost.to_json())
        assert cost.ratio == pytest.approx(cost.own_seconds / cost.model_seconds)
        assert "target at most 1 s" in cost.line
