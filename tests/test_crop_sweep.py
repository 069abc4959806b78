"""Every crop at every position as one batch a crop: the same rows as one call a position."""

import numpy as np
import pytest

from kvcore import paths
from kvcore.batch_positions import BeginsAt, EachItsOwn
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.crop_sweep import crop_sweep
from kvcore.model import LabDecoder
from kvcore.rules import absolute, from_zero, windowed


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 3, 20])
def test_sweep_matches_cropped_recomputation_at_every_position_and_crop(n_layers, window):
    decoder, tokens = LabDecoder(DecoderConfig(n_layers=n_layers, n_heads=2)), lab_token_ids(13)
    swept = crop_sweep(decoder, tokens, 13, window)
    for crop in range(1, 14):
        expected = paths.cropped_recomputation(decoder, tokens, crop, windowed(window)).hidden
        np.testing.assert_allclose(swept[crop - 1], expected, rtol=0, atol=1e-14)


def test_wrong_positions_would_be_seen():
    decoder, tokens = LabDecoder(DecoderConfig()), lab_token_ids(13)
    spans = np.lib.stride_tricks.sliding_window_view(tokens, 5).copy()
    from_the_start = decoder.step(spans, rules=windowed(4)).hidden[:, -1].numpy()
    swept = crop_sweep(decoder, tokens, 5, 4)[4, 4:]
    np.testing.assert_allclose(from_the_start[0], swept[0], atol=1e-14)
    assert np.abs(from_the_start[1:] - swept[1:]).max(axis=-1).min() > 1e-2


@pytest.mark.parametrize("largest", [0, 14, True, 2.0])
def test_crops_outside_the_tokens_are_refused(largest):
    with pytest.raises(ValueError, match=r"the largest crop is .* from 1 to 13"):
        crop_sweep(LabDecoder(DecoderConfig()), lab_token_ids(13), largest, 4)


def test_rows_of_a_batch_enter_at_their_own_positions():
    call = np.array([4, 5])
    np.testing.assert_array_equal(BeginsAt(np.array([0, 7]))(call - 4), [[0, 1], [7, 8]])
    np.testing.assert_array_equal(EachItsOwn((absolute, from_zero))(call), [[4, 5], [0, 1]])
