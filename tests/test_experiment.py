"""The recorded experiment: its figures, its arrays, its verdicts and its words."""

from dataclasses import replace

import numpy as np
import pytest

from kvcore import experiment, measures
from kvcore.measures import FIGURES, agrees, array_shapes, closed_form, verdict
from kvcore.protocol import Protocol
from kvcore.reading import read_experiment
from kvcore.recorded import load, recorded_figures
from tests import oracle

FIGURE = {figure.key: figure for figure in FIGURES}
SMALL = Protocol(seeds=(3,), length=6, chunk_sizes=(2, 2, 2), window=3, d_model=4, vocab_size=5)


@pytest.fixture(scope="module")
def recorded_run():
    return experiment.run()


@pytest.mark.parametrize("seed", [7, 19, 41])
def test_every_recorded_figure_is_computed_again(recorded_run, seed):
    (then,) = [result for result in load()["results"] if result["seed"] == seed]
    (now,) = [result for result in recorded_run.results() if result["seed"] == seed]
    assert list(now) == list(then)
    for key, kind in ((figure.key, figure.kind) for figure in FIGURES):
        if kind == "count":
            assert now[key] == then[key]
            assert type(now[key]) is int
        elif kind == "control":
            assert now[key] == pytest.approx(then[key], rel=0, abs=1e-9)
        else:
            assert 0 <= now[key] <= (0 if kind == "exact" else 1e-12)


def test_kinds_are_those_of_the_recorded_file():
    data = load()
    for kind in ("rounding", "control"):
        assert [figure.key for figure in FIGURES if figure.kind == kind] == data[kind]
    assert recorded_figures(Protocol()).keys() == {7, 19, 41}


def test_recorded_figures_belong_to_recorded_settings_only():
    assert recorded_figures(Protocol(seeds=(19, 8), tolerance=1e-9)).keys() == {19}
    for other in (Protocol(window=5), Protocol(n_layers=1), Protocol(chunk_sizes=(12, 12)), Protocol(dtype="float32")):
        assert recorded_figures(other) == {}


def test_a_row_for_each_seed_and_figure_says_whether_it_agrees(recorded_run):
    frame = recorded_run.to_frame()
    assert len(frame) == 45
    assert frame["agrees"].all()
    assert set(frame["verdict"]) == {measures.OK, measures.CAUGHT}
    counts = frame[frame["kind"] == "count"]
    assert (counts["computed"] == counts["formula"]).all()
    assert (counts["computed"] == counts["recorded"]).all()
    elsewhere = experiment.run(SMALL).to_frame()
    assert elsewhere["recorded"].isna().all()
    assert elsewhere["agrees"].isna().all()


@pytest.mark.parametrize(
    ("key", "step"), [("causal_future_error", 1e-300), ("cache_error", 2e-12), ("reset_position_error", 2e-9)]
)
def test_agreement_can_fail_for_each_kind(key, step):
    then = recorded_figures(Protocol())[7][key]
    assert agrees(FIGURE[key], then, then)
    assert not agrees(FIGURE[key], then + step, then)


def test_counts_agree_exactly_or_not_at_all():
    assert agrees(FIGURE["full_kv_bytes"], 12288, 12288)
    assert not agrees(FIGURE["full_kv_bytes"], 12289, 12288)


@pytest.mark.parametrize("protocol", [Protocol(), SMALL, replace(SMALL, n_layers=1, window=9)])
def test_arrays_have_the_names_and_shapes_of_the_contract(protocol):
    done = experiment.run(protocol)
    expected = {f"s{seed}_{n}": shape for seed in protocol.seeds for n, shape in array_shapes(protocol).items()}
    assert {name: array.shape for name, array in done.arrays().items()} == expected
    contract = (
        "tokens full masked unmasked perturbed_unmasked prefix cached chunked wrong good"
        " sliding sliding_cached reset cropped attention cache_bytes"
    )
    assert set(array_shapes(protocol)) == set(contract.split())
    kinds = {name.split("_", 1)[1]: array.dtype.name for name, array in done.arrays().items()}
    assert {name for name, kind in kinds.items() if kind == "int64"} == {"tokens", "cache_bytes"}
    assert set(kinds.values()) == {"int64", "float64"}


def test_arrays_equal_the_oracle():
    (run,) = experiment.run(SMALL).runs
    shape = {"seed": 3, "vocab_size": 5, "d_model": 4}
    tokens = [(7 * i + 3) % 5 for i in range(6)]
    edited = tokens[:3] + [(token + 1) % 5 for token in tokens[3:]]
    expected = {
        "full": oracle.hidden_states(tokens, **shape),
        "masked": oracle.hidden_states(edited, **shape),
        "unmasked": oracle.hidden_states(tokens, visible=oracle.everything, **shape),
        "perturbed_unmasked": oracle.hidden_states(edited, visible=oracle.everything, **shape),
        "sliding": oracle.hidden_states(tokens, visible=oracle.windowed(3), **shape),
        "cropped": oracle.cropped(tokens, 3, visible=oracle.windowed(3), **shape),
    }
    for name, by_layer in expected.items():
        np.testing.assert_allclose(run.arrays[name], by_layer[-1], rtol=0, atol=1e-12, err_msg=name)
    wrong = oracle.hidden_states(tokens[:4], visible=oracle.chunk_numbered_from_zero(2), **shape)
    np.testing.assert_allclose(run.arrays["wrong"], wrong[-1][2:4], rtol=0, atol=1e-12)
    assert run.arrays["tokens"].tolist() == tokens
    assert run.arrays["cache_bytes"].tolist() == [[t, 2 * 2 * t * 4 * 8] for t in range(1, 7)]
    np.testing.assert_allclose(run.arrays["attention"].sum(axis=1), 1, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "exact"),
    [({}, False), ({"n_layers": 1}, True), ({"window": 1}, True), ({"window": 24}, True), ({"window": 23}, False)],
)
def test_cropped_recomputation_is_expected_equal_where_it_is_right(change, exact):
    done = experiment.run(Protocol(seeds=(7,), **change))
    words = {figure.key: word for _, figure, word in done.verdicts()}
    assert words["cropped_recompute_error"] == (measures.EXPECTED_EQUAL if exact else measures.CAUGHT)
    assert ("expected equal, and equal" in done.reading) is exact
    assert done.passed


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_lower_precision_passes_with_its_own_tolerance(dtype):
    done = experiment.run(Protocol(seeds=(7,), dtype=dtype))
    assert done.passed
    assert done.protocol.tolerance == done.protocol.decoder(7).tolerance


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(seeds=(0,), length=2, chunk_sizes=(1, 1), window=9, d_model=2, vocab_size=2),
        Protocol(seeds=(5,), length=40, chunk_sizes=(39, 1), window=2, n_layers=6, d_model=128, vocab_size=1024),
    ],
)
def test_the_limits_of_the_contract_can_be_run(protocol):
    assert experiment.run(protocol).passed


def test_counted_work_equals_the_closed_form_for_other_settings():
    done = experiment.run(replace(SMALL, n_layers=3))
    assert {key: done.runs[0].figures[key] for key in done.closed_form} == done.closed_form


def test_the_reading_says_what_is_beyond_tolerance(recorded_run):
    strict = replace(recorded_run, protocol=Protocol(tolerance=1e-18))
    assert not strict.passed
    assert "4 of 4 correct paths go beyond the tolerance 1e-18" in strict.reading
    assert f"{max(result['sliding_error'] for result in strict.results()):.2g}" in strict.reading


def test_the_reading_says_what_a_wide_tolerance_misses(recorded_run):
    wide = replace(recorded_run, protocol=Protocol(tolerance=10.0))
    assert wide.passed
    assert wide.reading.count("misses") == 4
    assert "deliberate mistake" not in wide.reading
    between = replace(recorded_run, protocol=Protocol(tolerance=0.1))
    assert "smallest deliberate mistake that shows" in between.reading
    assert between.reading.count("misses") == 1


def test_the_reading_names_a_leak_and_a_miscount(recorded_run):
    results = recorded_run.results()
    leaking = [results[0] | {"causal_future_error": 1e-5, "prefix_score_elements": 1}, *results[1:]]
    words = read_experiment(Protocol(), leaking)
    assert "it does by 1e-05 for seed 7" in words
    assert "differ from their formulas: score elements of prefix recomputation" in words
    assert verdict(FIGURE["causal_future_error"], 1e-5, Protocol()) in measures.FAILURES


def test_the_reading_says_so_when_a_crop_that_should_be_right_is_not():
    protocol = Protocol(seeds=(7,), n_layers=1)
    results = experiment.run(protocol).results()
    words = read_experiment(protocol, [results[0] | {"cropped_recompute_error": 0.5}])
    assert "Cropped recomputation should be equal in this setting but is off by 0.5 for seed 7" in words
    assert verdict(FIGURE["cropped_recompute_error"], 0.5, protocol) == measures.BEYOND


def test_exact_equality_is_called_exact():
    results = [dict.fromkeys(measures.KEYS, 0) | {"seed": 1, "unmasked_future_change": 0.5} | closed_form(Protocol())]
    assert "Over 1 seed and 24 positions, every correct path equals its reference exactly" in read_experiment(
        Protocol(), results
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": ()}, "no seed"),
        ({"seeds": (1, 2, 1)}, "seed 1 is given twice"),
        ({"seeds": (-1,)}, "0 or more"),
        ({"seeds": (True,)}, "whole number"),
        ({"length": 1}, "from 2 to 256"),
        ({"length": 257}, "from 2 to 256"),
        ({"chunk_sizes": (24,)}, "at least 2"),
        ({"chunk_sizes": (5, 3)}, "add 16 more"),
        ({"chunk_sizes": (24, 0)}, "1 or more"),
        ({"window": 0}, "1 or more"),
        ({"n_layers": 7}, "from 1 to 6"),
        ({"d_model": 3}, "even"),
        ({"d_model": 130}, "from 2 to 128"),
        ({"vocab_size": 1}, "from 2 to 1024"),
        ({"dtype": "int8"}, "one of float64"),
        ({"tolerance": 0}, "positive finite"),
        ({"tolerance": float("nan")}, "positive finite"),
        ({"tolerance": float("inf")}, "positive finite"),
        ({"tolerance": "1e-12"}, "positive finite"),
    ],
)
def test_a_protocol_outside_the_contract_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Protocol(**change)
