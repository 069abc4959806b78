"""Saves a model's outputs for the upload. It needs NumPy alone: copy it to where the model runs."""

import numpy as np


def save_outputs(file, full, step, token_ids):
    """An NPZ with `full` (T, features), `token_ids`, and one array a split, named by its chunk sizes.

    full(token_ids) -> (T, features). step(token_ids, cache) -> (outputs (n, features), cache), cache None at first.
    """
    length = len(token_ids)
    half, third = (length + 1) // 2, max(0, length // 3 - 1)
    last = max(0, length - half - 2)
    splits = [
        [length],
        [1] * length,
        [half] + [1] * (length - half),
        [length - 2 * third - 1, third + 1, third],
        [2] * (length // 2) + [length % 2],
        [half, length - half],
        [1] * half + [min(2, length - half)] + [3] * (last // 3) + [last % 3],
    ]
    arrays = {"full": np.asarray(full(token_ids)), "token_ids": np.asarray(token_ids)}
    for sizes in splits:
        cache, start, rows = None, 0, []
        for size in filter(None, sizes):
            outputs, cache = step(token_ids[start : start + size], cache)
            rows.append(np.asarray(outputs))
            start += size
        arrays[",".join(str(size) for size in sizes if size)] = np.concatenate(rows)
    np.savez(file, **arrays)
