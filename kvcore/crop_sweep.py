"""Cropped recomputation with every crop at every position, as one batch of equal spans a crop."""

from __future__ import annotations

import numpy as np

from kvcore.batch_positions import BeginsAt
from kvcore.config import check_int
from kvcore.masks import Mask
from kvcore.model import LabDecoder
from kvcore.rules import Rules


def crop_sweep(decoder: LabDecoder, token_ids: np.ndarray, largest_crop: int, window: int) -> np.ndarray:
    """Last rows of the last C raw tokens, for C = 1..largest_crop: float64 (largest_crop, T, d_model).

    Entry [C − 1, t] is row t of `paths.cropped_recomputation(decoder, token_ids, C, windowed(window))`.
    Spans of C tokens share one call: their tokens enter at their own absolute positions, and the window
    mask depends on differences of positions only. A crop longer than the past is the whole past, so
    there the row is that of the crop before. Raises ValueError for a crop below 1 or beyond T.
    """
    token_ids = np.asarray(token_ids)
    length = len(token_ids)
    check_int("the largest crop", largest_crop, 1, length)
    visible = Mask(window)
    rows = np.empty((largest_crop, length, decoder.config.d_model))
    for crop in range(1, largest_crop + 1):
        whole = crop - 1
        rows[crop - 1, :whole] = rows[crop - 2, :whole]
        begins_at = BeginsAt(np.arange(length - crop + 1))
        spans = token_ids[begins_at(np.arange(crop))]
        rules = Rules(visible=visible, input_position=begins_at)
        rows[crop - 1, whole:] = decoder.step(spans, rules=rules).hidden[:, -1].double().numpy()
    return rows
