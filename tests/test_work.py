"""Work counted as the engine runs, the closed forms, and plain sums: three ways to one number."""

from itertools import accumulate

import numpy as np
import pytest

from kvcore import paths, work
from kvcore.config import DTYPES, ITEMSIZE, DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.rules import RIGHT, sliding, windowed
from kvcore.work import Work

LENGTHS = [1, 2, 7, 12]
WINDOWS = [(1, 0), (3, 0), (3, 2), (12, 1), (15, 0)]
SPLITS = {1: [[1]], 2: [[2], [1, 1]], 7: [[7], [3, 4], [1, 5, 1]], 12: [[12], [5, 3, 4], [1, 10, 1]]}


def summed(n_layers, calls):
    """(new rows, keys) of each call, added up one by one as the definition says."""
    rows = scores = 0
    for _ in range(n_layers):
        for n_new, n_keys in calls:
            rows += 3 * n_new
            scores += n_new * n_keys
    return Work(rows, scores)


def tokens(length):
    return range(1, length + 1)


@pytest.fixture(params=[1, 3], ids=lambda n: f"{n} layers")
def decoder(request):
    return LabDecoder(DecoderConfig(d_model=8, n_layers=request.param, n_heads=4, n_kv_heads=2))


def n_layers(decoder):
    return decoder.config.n_layers


@pytest.mark.parametrize("length", LENGTHS)
def test_full_prefix_and_token_cache_count_what_the_formulas_say(decoder, length):
    ids, depth = lab_token_ids(length), n_layers(decoder)
    assert paths.full(decoder, ids).work == work.full(depth, length) == summed(depth, [(length, length)])
    counted = paths.prefix_recomputation(decoder, ids).work
    assert counted == work.prefix_recomputation(depth, length) == summed(depth, [(t, t) for t in tokens(length)])
    counted = paths.cached(decoder, ids).work
    assert counted == work.token_cache(depth, length) == summed(depth, [(1, t) for t in tokens(length)])


@pytest.mark.parametrize("sizes", [sizes for splits in SPLITS.values() for sizes in splits], ids=str)
def test_chunk_cache_counts_what_the_formula_says(decoder, sizes):
    counted = paths.cached(decoder, lab_token_ids(sum(sizes)), sizes).work
    calls = list(zip(sizes, accumulate(sizes), strict=True))
    assert counted == work.chunk_cache(n_layers(decoder), sizes) == summed(n_layers(decoder), calls)


@pytest.mark.parametrize("prompt", [0, 1, 5, 12, 20])
def test_a_prompt_and_then_tokens_is_the_chunk_cache_of_that_split(prompt):
    sizes = [min(prompt, 12)] * (prompt > 0) + [1] * max(0, 12 - prompt)
    assert work.prompt_then_tokens(2, prompt, 12) == work.chunk_cache(2, sizes)


@pytest.mark.parametrize(("window", "n_sinks"), WINDOWS)
@pytest.mark.parametrize("length", LENGTHS)
def test_sliding_cache_counts_what_the_formula_says(decoder, length, window, n_sinks):
    counted = paths.cached(decoder, lab_token_ids(length), None, sliding(window, n_sinks)).work
    calls = [(1, min(t, n_sinks + window + 1)) for t in tokens(length)]
    expected = work.sliding_cache(n_layers(decoder), length, window, n_sinks)
    assert counted == expected == summed(n_layers(decoder), calls)


@pytest.mark.parametrize("crop", [1, 3, 7, 12, 20])
@pytest.mark.parametrize("length", LENGTHS)
def test_cropped_recomputation_counts_what_the_formula_says(decoder, length, crop):
    counted = paths.cropped_recomputation(decoder, lab_token_ids(length), crop, windowed(3)).work
    calls = [(min(t, crop), min(t, crop)) for t in tokens(length)]
    expected = work.cropped_recomputation(n_layers(decoder), length, crop)
    assert counted == expected == summed(n_layers(decoder), calls)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(1, 1), (4, 4), (4, 1)])
def test_payload_bytes_are_those_of_the_kept_arrays(dtype, n_heads, n_kv_heads):
    config = DecoderConfig(d_model=8, n_heads=n_heads, n_kv_heads=n_kv_heads, dtype=dtype)
    decoder, ids = LabDecoder(config), lab_token_ids(9)
    for rules, kept in ((RIGHT, tokens(9)), (sliding(4, 1), [min(t, 5) for t in tokens(9)])):
        run = paths.cached(decoder, ids, None, rules)
        expected = [work.payload_bytes(config.n_layers, n, n_kv_heads, config.head_dim, ITEMSIZE[dtype]) for n in kept]
        assert [call.payload_bytes for call in run.calls] == expected
        assert run.payload_bytes == expected[-1]


def test_payload_bytes_add_up_the_arrays_themselves():
    cache = LabDecoder(DecoderConfig(n_heads=4, n_kv_heads=2)).step([[1, 2, 3], [4, 5, 6]]).cache
    assert cache.payload_bytes == sum(layer.key.nbytes + layer.value.nbytes for layer in cache.layers)


def test_the_contracts_numbers():
    decoder, ids = LabDecoder(DecoderConfig()), lab_token_ids(24)
    prefix, token = paths.prefix_recomputation(decoder, ids), paths.cached(decoder, ids)
    narrow = paths.cached(decoder, ids, None, sliding(4))
    assert prefix.work == (1800, 9800)
    assert token.work == (144, 600)
    assert (token.payload_bytes, narrow.payload_bytes, prefix.payload_bytes) == (12288, 2048, 0)
    assert work.prefix_recomputation(2, 24) == (1800, 9800)
    assert work.token_cache(2, 24) == (144, 600)
    assert work.payload_bytes(2, 24, 1, 16, 8) == 12288
    assert work.payload_bytes(2, 4, 1, 16, 8) == 2048


def test_masked_entries_are_counted_and_heads_and_batch_are_not():
    one = LabDecoder(DecoderConfig())
    four = LabDecoder(DecoderConfig(n_heads=4, n_kv_heads=2))
    ids = lab_token_ids(6)
    counts = {
        paths.full(one, ids).work,
        paths.full(one, ids, windowed(1)).work,
        paths.full(four, ids).work,
        paths.full(four, np.stack([ids, ids])).work,
    }
    assert counts == {Work(36, 72)}


def test_the_count_follows_the_run_and_not_the_formula():
    """A token cache that in truth recomputes does not count as one."""
    decoder, ids = LabDecoder(DecoderConfig()), lab_token_ids(8)
    spans = [(0, t) for t in tokens(8)]
    recomputing = paths.run_calls(decoder, ids, spans, with_cache=False).work
    assert recomputing != work.token_cache(2, 8)
    trimmed_late = paths.cached(decoder, ids, None, windowed(3)).work
    assert trimmed_late != work.sliding_cache(2, 8, 3)


def test_work_adds_part_by_part():
    assert Work(1, 2) + Work(10, 20) == Work(11, 22)
