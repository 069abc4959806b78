"""Outputs of somebody else's model as float64 rows, and token ids in the container that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def rows_of(outputs: Any, n_rows: int, who: str) -> tuple[np.ndarray, str]:
    """Outputs (n_rows, features) as float64, and the name of their number format.

    Takes NumPy arrays, tensors on any device and nested lists; a leading batch axis of 1 is dropped.
    Raises ValueError for anything else, in a sentence that names `who` gave it.
    """
    array, name = _numbers(outputs, who)
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 1 and n_rows == array.shape[0]:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] != n_rows or array.shape[1] == 0:
        raise ValueError(f"{who} gave shape {array.shape} for {n_rows} tokens; it must give ({n_rows}, features)")
    return array, name


def last_rows_of(outputs: Any, most: int, who: str) -> np.ndarray:
    """Outputs (n, features) as float64, of whatever number of rows from 1 to `most`. Raises ValueError as above."""
    array, _ = _numbers(outputs, who)
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 2 or not 1 <= array.shape[0] <= most or array.shape[1] == 0:
        raise ValueError(f"{who} gave shape {array.shape}; it must give the last rows of {most}, as (n, features)")
    return array


def _numbers(outputs: Any, who: str) -> tuple[np.ndarray, str]:
    """Real numbers as float64, and the name of their format."""
    try:
        if hasattr(outputs, "detach"):
            outputs = outputs.detach().cpu()
            name = str(outputs.dtype).removeprefix("torch.")
            real = name != "bool" and not name.startswith("complex")
            array = outputs.double().numpy() if real else np.empty(0)
        else:
            array = np.asarray(outputs)
            name = array.dtype.name
            real = array.dtype.kind in "fiu" or name == "bfloat16"
    except ValueError:
        raise ValueError(f"{who} gave rows of unequal length; it must give one row of features a token") from None
    except Exception as error:  # whatever a stranger's object raises when it is read
        said = " ".join(str(error).split())[:160]
        raise ValueError(f"{who} gave {type(outputs).__name__}, which cannot be read as numbers: {said}") from error
    if not real:
        raise ValueError(f"{who} gave {name} values; it must give numbers, as (n, features)")
    return array.astype(np.float64), name


class TokenIds:
    """The caller's ids, and other ids in the same kind of container: list, tuple, NumPy array or tensor."""

    def __init__(self, token_ids: Any) -> None:
        self._given = token_ids
        try:
            plain = token_ids.tolist() if hasattr(token_ids, "tolist") else list(token_ids)
        except TypeError:
            raise ValueError(f"token_ids is {type(token_ids).__name__}; give a sequence of whole numbers") from None
        if not isinstance(plain, list):
            raise ValueError("token_ids is a single number; give a sequence of whole numbers, two or more")
        if any(isinstance(token, bool) or not isinstance(token, (int, np.integer)) for token in plain):
            raise ValueError("token_ids must be whole numbers in one sequence, without a batch axis")
        if len(plain) < 2:
            raise ValueError(f"{len(plain)} token id(s) given; at least 2 are needed")
        self.values: tuple[int, ...] = tuple(int(token) for token in plain)

    def like(self, values: Sequence[int]) -> Any:
        """These values as the caller gave theirs."""
        values = list(values)
        if hasattr(self._given, "new_tensor"):
            return self._given.new_tensor(values)
        if isinstance(self._given, np.ndarray):
            return np.array(values, dtype=self._given.dtype)
        return tuple(values) if isinstance(self._given, tuple) else values
