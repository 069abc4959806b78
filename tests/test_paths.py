"""Every way of splitting the same tokens into calls gives the full path's result, at every position."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.config import DTYPES, DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.paths import cached, cropped_recomputation, full, prefix_recomputation
from kvcore.rules import RIGHT, KeepWindow, Rules, reset_position, sliding, windowed

reproducible = settings(max_examples=40, derandomize=True, deadline=None, database=None)


@st.composite
def cases(draw):
    """A decoder, tokens (or a batch of them), a split of them into calls, a window and sinks."""
    n_heads = draw(st.sampled_from([1, 2, 4]))
    n_kv_heads = draw(st.sampled_from([n for n in (1, 2, 4) if n_heads % n == 0]))
    config = DecoderConfig(
        seed=draw(st.integers(0, 50)),
        d_model=8,
        n_layers=draw(st.integers(1, 3)),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        dtype=draw(st.sampled_from(DTYPES)),
    )
    length = draw(st.integers(1, 12))
    shape = (draw(st.integers(1, 3)), length)
    token_ids = np.array(draw(st.lists(st.integers(0, 31), min_size=shape[0] * length, max_size=shape[0] * length)))
    borders = sorted(draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
    chunk_sizes = np.diff([0, *borders, length]).tolist()
    return config, token_ids.reshape(shape), chunk_sizes, draw(st.integers(1, length + 3)), draw(st.integers(0, 3))


def largest(run, reference):
    """The largest difference over all layers and positions."""
    assert run.by_layer.shape == reference.by_layer.shape
    return np.abs(run.by_layer - reference.by_layer).max()


@given(cases())
@reproducible
def test_any_split_into_calls_matches_full_at_every_position(case):
    config, token_ids, chunk_sizes, window, n_sinks = case
    decoder = LabDecoder(config)
    for rules in (RIGHT, windowed(window, n_sinks)):
        reference = full(decoder, token_ids, rules)
        assert largest(cached(decoder, token_ids, chunk_sizes, rules), reference) <= config.tolerance
        assert largest(cached(decoder, token_ids, None, rules), reference) <= config.tolerance
        assert largest(prefix_recomputation(decoder, token_ids, rules), reference) <= config.tolerance


@given(cases())
@reproducible
def test_sliding_cache_in_any_split_matches_windowed_full_at_every_position(case):
    config, token_ids, chunk_sizes, window, n_sinks = case
    decoder = LabDecoder(config)
    rules, reference = sliding(window, n_sinks), full(decoder, token_ids, windowed(window, n_sinks))
    for sizes in (chunk_sizes, None):
        run = cached(decoder, token_ids, sizes, rules)
        assert largest(run, reference) <= config.tolerance
        assert run.payload_bytes <= full_bytes(config, len(token_ids), window + n_sinks)


def full_bytes(config, batch, kept):
    itemsize = {"float64": 8, "float32": 4}.get(config.dtype, 2)
    return 2 * config.n_layers * batch * kept * config.n_kv_heads * config.head_dim * itemsize


@given(cases())
@reproducible
def test_a_batch_in_any_split_equals_each_sequence_alone(case):
    config, token_ids, chunk_sizes, window, n_sinks = case
    decoder = LabDecoder(config)
    together = cached(decoder, token_ids, chunk_sizes, sliding(window, n_sinks))
    for row, ids in enumerate(token_ids):
        alone = cached(decoder, ids, chunk_sizes, sliding(window, n_sinks))
        assert np.abs(together.by_layer[:, row] - alone.by_layer).max() <= config.tolerance


@given(cases())
@reproducible
def test_cropped_recomputation_matches_windowed_full_from_the_reach_on(case):
    config, token_ids, _, window, _ = case
    decoder, reach = LabDecoder(config), config.n_layers * (window - 1) + 1
    reference = full(decoder, token_ids, windowed(window))
    run = cropped_recomputation(decoder, token_ids, reach, windowed(window))
    assert np.abs(run.hidden - reference.hidden).max() <= config.tolerance


FAULTS = {
    "one key too few in the cached window": windowed(3),
    "one key too many in the cached window": windowed(5),
    "one entry too few kept": Rules(visible=windowed(4).visible, keep=KeepWindow(2)),
    "no sinks kept": Rules(visible=windowed(4, 1).visible, keep=KeepWindow(4)),
    "positions reset": reset_position(windowed(4)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_property_can_fail(fault):
    """What the properties above assert is beyond tolerance for each of these, in token and chunk cache alike."""
    decoder, token_ids = LabDecoder(DecoderConfig(d_model=8)), lab_token_ids(12)
    reference = full(decoder, token_ids, windowed(4, 1 if "sinks" in fault else 0))
    for sizes in (None, [3, 2, 4, 3]):
        assert largest(cached(decoder, token_ids, sizes, FAULTS[fault]), reference) > 1e-3


def test_keys_stored_under_the_wrong_position_are_caught():
    decoder, token_ids = LabDecoder(DecoderConfig()), lab_token_ids(12)
    reference = full(decoder, token_ids)

    def swapped(entries, key, value, position):
        return entries.append(key.flip(2), value, position)

    run = cached(decoder, token_ids, [5, 7], Rules(append=swapped))
    assert largest(run, reference) > 1e-2


@pytest.mark.parametrize("n_heads", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_low_precision_paths_agree_within_tolerance_and_are_all_off_from_float64(dtype, n_heads):
    """Cached may differ from full by rounding; both differ from exact, and neither by more than the tolerance."""
    config = DecoderConfig(dtype=dtype, n_heads=n_heads, n_kv_heads=max(1, n_heads // 2))
    decoder, token_ids = LabDecoder(config), lab_token_ids(24)
    exact = decoder.in_float64()
    causal, narrow = full(decoder, token_ids), full(decoder, token_ids, windowed(4))
    exact_causal, exact_narrow = full(exact, token_ids), full(exact, token_ids, windowed(4))
    runs = {
        "full": (causal, causal, exact_causal),
        "prefix recomputation": (prefix_recomputation(decoder, token_ids), causal, exact_causal),
        "token cache": (cached(decoder, token_ids), causal, exact_causal),
        "chunk cache": (cached(decoder, token_ids, [5, 3, 7, 9]), causal, exact_causal),
        "windowed full": (narrow, narrow, exact_narrow),
        "sliding cache": (cached(decoder, token_ids, None, sliding(4)), narrow, exact_narrow),
        "cropped to its reach": (cropped_recomputation(decoder, token_ids, 7, windowed(4)), narrow, exact_narrow),
    }
    for name, (run, reference, exact_run) in runs.items():
        assert np.abs(run.hidden - reference.hidden).max() <= config.tolerance, name
        distance = np.abs(run.hidden - exact_run.hidden).max()
        assert 0 < distance <= config.tolerance, name


def test_a_float64_run_is_at_distance_zero_from_itself():
    decoder, token_ids = LabDecoder(DecoderConfig()), lab_token_ids(24)
    assert np.array_equal(full(decoder, token_ids).by_layer, full(decoder.in_float64(), token_ids).by_layer)


def test_every_path_gives_each_position_once_and_in_order():
    decoder, token_ids = LabDecoder(DecoderConfig()), lab_token_ids(12)
    runs = (
        full(decoder, token_ids),
        prefix_recomputation(decoder, token_ids),
        cached(decoder, token_ids),
        cached(decoder, token_ids, [5, 7]),
        cropped_recomputation(decoder, token_ids, 3, windowed(4)),
    )
    for run in runs:
        assert run.position.tolist() == list(range(12))
        assert run.hidden.shape == (12, 16)


def test_calls_record_what_they_were_given_and_what_they_read():
    decoder, token_ids = LabDecoder(DecoderConfig()), lab_token_ids(6)
    chunk = cached(decoder, token_ids, [2, 3, 1], sliding(2, 1))
    assert [call.cache_position.tolist() for call in chunk.calls] == [[0, 1], [2, 3, 4], [5]]
    assert [call.key_position.tolist() for call in chunk.calls] == [[0, 1], [0, 1, 2, 3, 4], [0, 3, 4, 5]]
    crop = cropped_recomputation(decoder, token_ids, 2, windowed(2))
    assert [call.key_position.tolist() for call in crop.calls][-2:] == [[3, 4], [4, 5]]
    assert {call.payload_bytes for call in crop.calls} == {0}
