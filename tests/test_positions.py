"""Position vectors against the definition, one number at a time."""

import numpy as np
import pytest

from kvcore.positions import sinusoidal
from tests import oracle


@pytest.mark.parametrize("d_model", [2, 6, 16, 128])
def test_position_vectors_match_the_definition_column_by_column(d_model):
    positions = np.array([0, 1, 2, 23, 255, 4095])
    expected = np.array([oracle.position_vector(int(p), d_model) for p in positions])
    assert np.abs(sinusoidal(positions, d_model) - expected).max() <= 1e-12


def test_position_zero_is_sine_zero_and_cosine_one():
    assert sinusoidal(np.array([0]), 4).tolist() == [[0.0, 1.0, 0.0, 1.0]]


def test_positions_differ_from_one_another_and_from_another_order_of_columns():
    vectors = sinusoidal(np.arange(24), 16)
    assert np.unique(vectors, axis=0).shape == (24, 16)
    halves = np.concatenate([vectors[:, 0::2], vectors[:, 1::2]], axis=1)
    assert np.abs(halves - vectors).max() > 0.1
