"""Exact input rules: what is refused, and that the message says what is allowed."""

import re

import numpy as np
import pytest

from kvcore.cache import KVCache
from kvcore.config import (
    DTYPES,
    ITEMSIZE,
    TOLERANCE,
    DecoderConfig,
    check_choice,
    check_chunk_sizes,
    check_int,
    check_positions,
    check_token_ids,
    lab_token_ids,
)
from kvcore.model import LabDecoder
from kvcore.multihead import MultiHeadConfig
from kvcore.paths import cached, cropped_recomputation, full, prefix_recomputation
from kvcore.rules import sliding

BAD_TOKEN_IDS = {
    "floats": ([1.0, 2.0], "must be integers; got float64"),
    "a float among integers": ([1, 2.5], "must be integers; got float64"),
    "bools": ([True, False], "a bool is not one"),
    "an array of bools": (np.array([True, False]), "a bool is not one"),
    "one bool among integers": ([3, True, 4], "a bool is not one"),
    "one bool in a batch": ([[3, 4], [5, True]], "a bool is not one"),
    "one NumPy bool among integers": ([3, np.True_], "a bool is not one"),
    "text": (["1", "2"], "must be integers"),
    "nothing": ([], "must be integers; got none"),
    "an empty array": (np.empty(0, dtype=np.int64), "give at least one"),
    "a batch of nothing": (np.empty((2, 0), dtype=np.int64), "give at least one"),
    "one bare number": (5, re.escape("give at least one, as (n,) or (batch, n)")),
    "three axes": ([[[1, 2]]], re.escape("shape (1, 1, 2); give at least one, as (n,) or (batch, n)")),
    "rows of unequal length": ([[1], [2, 3]], "rows of equal length"),
    "a negative id": ([3, -1], "token id -1 is outside the vocabulary; ids go from 0 to 31"),
    "vocab_size itself": ([3, 32], "token id 32 is outside the vocabulary; ids go from 0 to 31"),
    "more than int64 holds": ([2**63], "outside the vocabulary"),
}


@pytest.mark.parametrize("case", BAD_TOKEN_IDS)
def test_token_ids_are_refused_by_every_path_not_rounded(case):
    token_ids, message = BAD_TOKEN_IDS[case]
    decoder = LabDecoder(DecoderConfig())
    entries = (
        lambda: check_token_ids(token_ids, 32),
        lambda: decoder.step(token_ids),
        lambda: full(decoder, token_ids),
        lambda: prefix_recomputation(decoder, token_ids),
        lambda: cached(decoder, token_ids),
        lambda: cropped_recomputation(decoder, token_ids, 4, sliding(4)),
    )
    for entry in entries:
        with pytest.raises(ValueError, match=message):
            entry()


@pytest.mark.parametrize("token_ids", [[0, 31], (0, 31), range(2), np.array([0, 31], dtype=np.uint8), [[0], [31]]])
def test_integers_inside_the_vocabulary_are_taken_unchanged(token_ids):
    checked = check_token_ids(token_ids, 32)
    assert checked.dtype == np.int64
    assert np.array_equal(checked, np.asarray(token_ids))


BAD_POSITIONS = {
    "negative": ([-1, 0], 0, "position -1 is negative; positions count from 0"),
    "with a gap": ([3, 5], 3, re.escape("positions [3, 5] have a gap; each must be one more than the last")),
    "repeated": ([3, 3], 3, "have a gap"),
    "falling": ([4, 3], 4, "have a gap"),
    "behind the cache's end": ([4, 5], 3, "has processed 3 tokens; start at 3"),
    "inside the cache": ([2, 3], 3, "position 2 does not follow the cache, which has processed 3 tokens; start at 3"),
    "too few": ([3], 3, re.escape("shape (1,) for 2 tokens; give one a token, as (2,)")),
    "a row too many": ([[3, 4]], 3, re.escape("shape (1, 2) for 2 tokens")),
    "floats": ([3.0, 4.0], 3, "positions must be integers; got float64"),
    "one bool": ([0, True], 0, "positions must be integers; a bool is not one"),
}


@pytest.mark.parametrize("case", BAD_POSITIONS)
def test_positions_that_do_not_follow_are_refused(case):
    positions, n_processed, message = BAD_POSITIONS[case]
    with pytest.raises(ValueError, match=message):
        check_positions(positions, 2, n_processed)
    decoder = LabDecoder(DecoderConfig())
    cache = decoder.step(range(n_processed)).cache if n_processed else KVCache.empty(2)
    with pytest.raises(ValueError, match=message):
        decoder.step([1, 2], cache, cache_position=positions)


def test_without_a_cache_a_call_may_start_anywhere():
    assert check_positions([7, 8], 2, None).tolist() == [7, 8]


BAD_CHUNKS = {
    "zero": ([5, 0, 19], "a chunk size is 0; it must be a whole number 1 or more"),
    "negative": ([5, -3, 22], "a chunk size is -3; it must be a whole number 1 or more"),
    "a float": ([5, 19.0], "a chunk size is 19.0; it must be a whole number 1 or more"),
    "a bool": ([True, 23], "a chunk size is True; it must be a whole number 1 or more"),
    "too few tokens": (
        [5, 3, 7],
        re.escape("chunks 5+3+7 cover 15 of 24 tokens; add 9 more or shorten the sequence"),
    ),
    "too many tokens": (
        [5, 3, 7, 9, 2],
        re.escape("chunks 5+3+7+9+2 cover 26 tokens but there are 24; remove 2 or lengthen the sequence"),
    ),
    "none": ([], re.escape("0 chunk(s) given; at least 1 are needed")),
}


@pytest.mark.parametrize("case", BAD_CHUNKS)
def test_chunk_sizes_must_be_positive_and_add_up(case):
    sizes, message = BAD_CHUNKS[case]
    with pytest.raises(ValueError, match=message):
        check_chunk_sizes(sizes, 24)
    with pytest.raises(ValueError, match=message):
        cached(LabDecoder(DecoderConfig()), lab_token_ids(24), sizes)


def test_chunk_sizes_that_add_up_are_kept_in_order():
    assert check_chunk_sizes([5, 3, 7, 9], 24, at_least=2) == (5, 3, 7, 9)
    with pytest.raises(ValueError, match="at least 2 are needed"):
        check_chunk_sizes([24], 24, at_least=2)


BAD_CONFIGS = {
    "heads that do not divide": ({"n_heads": 3}, "d_model 16 cannot be split into 3 heads; it must divide evenly"),
    "KV heads that do not divide": (
        {"n_heads": 4, "n_kv_heads": 3},
        "4 heads cannot share 3 KV heads; n_kv_heads must divide n_heads",
    ),
    "more KV heads than heads": ({"n_heads": 2, "n_kv_heads": 4}, "2 heads cannot share 4 KV heads"),
    "odd d_model": ({"d_model": 15}, "d_model is 15; it must be even"),
    "no layers": ({"n_layers": 0}, "n_layers is 0; it must be a whole number 1 or more"),
    "a bool": ({"n_layers": True}, "n_layers is True; it must be a whole number 1 or more"),
    "a float": ({"d_model": 16.0}, "d_model is 16.0; it must be a whole number 1 or more"),
    "a negative seed": ({"seed": -1}, "seed is -1; it must be a whole number 0 or more"),
    "another number format": ({"dtype": "int8"}, "dtype is 'int8'; it must be one of float64, float32"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_impossible_decoders_are_refused(case):
    arguments, message = BAD_CONFIGS[case]
    with pytest.raises(ValueError, match=message):
        DecoderConfig(**arguments)


def test_head_dim_and_tolerance_follow_from_the_config():
    config = DecoderConfig(d_model=24, n_heads=4, n_kv_heads=2, dtype="float16")
    assert config.head_dim == 6
    assert config.tolerance == 4e-3


def test_the_second_system_refuses_heads_that_do_not_divide():
    with pytest.raises(ValueError, match="d_model 64 cannot be split into 5 heads"):
        MultiHeadConfig(n_heads=5)
    with pytest.raises(ValueError, match="capacity is 0; it must be a whole number 1 or more"):
        MultiHeadConfig(capacity=0)


def test_the_contract_of_the_number_formats():
    assert TOLERANCE == {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
    assert ITEMSIZE == {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
    assert tuple(TOLERANCE) == DTYPES


def test_recorded_tokens():
    assert lab_token_ids(6).tolist() == [3, 10, 17, 24, 31, 6]
    assert lab_token_ids(3, vocab_size=5).tolist() == [3, 0, 2]


def test_a_number_outside_its_range_names_the_range():
    assert check_int("length", np.int64(7), 2, 256) == 7
    with pytest.raises(ValueError, match="length is 10000; it must be a whole number from 2 to 256"):
        check_int("length", 10_000, 2, 256)
    with pytest.raises(ValueError, match="length is 'x'; it must be a whole number from 2 to 256"):
        check_int("length", "x", 2, 256)
    with pytest.raises(ValueError, match="order is 'up'; it must be one of rows, columns"):
        check_choice("order", "up", ("rows", "columns"))


@pytest.mark.parametrize("crop", [0, -1, 2.0, True])
def test_a_crop_keeps_at_least_one_token(crop):
    with pytest.raises(ValueError, match=f"crop is {crop}; it must be a whole number 1 or more"):
        cropped_recomputation(LabDecoder(DecoderConfig()), lab_token_ids(4), crop, sliding(4))
