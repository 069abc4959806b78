"""What a caller may show besides `full` and `step`, checked before anything runs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kvcore.config import check_chunk_sizes, check_int


@dataclass(frozen=True)
class Hooks:
    """Each is optional; what it would have tested is then listed as not tested.

    vocab_size or alternatives: ids that edits may use. copy(cache) -> cache. in_place: False declares that
    step leaves the cache it is given as it was. crop(cache, n) -> the cache of the first n tokens.
    reuse(token_ids, cache, cached_ids) -> (outputs of the last rows, cache): answer token_ids with the
    help of a cache that holds cached_ids. layers = (full, step) as the caller's two functions, with outputs
    (n_layers, n, features). inspect(cache) -> a list over layers of (keys, values, positions), keys and values
    (…, entries, numbers), positions (entries,) or None. window: what the model says its window is.
    max_chunk: the longest call it takes. splits: more ways to split the caller's tokens.
    """

    vocab_size: int | None = None
    alternatives: Sequence[int] | None = None
    copy: Callable[[Any], Any] | None = None
    in_place: bool | None = None
    crop: Callable[[Any, int], Any] | None = None
    reuse: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    layers: tuple[Callable, Callable] | None = None
    inspect: Callable[[Any], Any] | None = None
    window: int | None = None
    max_chunk: int | None = None
    splits: Sequence[Sequence[int]] = ()

    def check(self, length: int) -> None:
        """Raises ValueError for a hook that is not what it must be."""
        for name in ("vocab_size", "window", "max_chunk"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        for name in ("copy", "crop", "reuse", "inspect"):
            hook = getattr(self, name)
            if hook is not None and not callable(hook):
                raise ValueError(f"{name} is {type(hook).__name__}; it must be a function")
        if self.layers is not None and not (
            isinstance(self.layers, (tuple, list)) and len(self.layers) == 2 and all(map(callable, self.layers))
        ):
            raise ValueError("layers must be two functions, (full, step), whose outputs are (n_layers, n, features)")
        if not (self.in_place is None or isinstance(self.in_place, bool)):
            raise ValueError(f"in_place is {self.in_place!r}; it must be True, False or left out")
        if self.alternatives is not None:
            try:
                any(map(operator.index, self.alternatives))
            except TypeError:
                raise ValueError("alternatives must be token ids, whole numbers in one sequence") from None
        try:
            splits = [tuple(sizes) for sizes in self.splits]
        except TypeError:
            raise ValueError("splits must be sequences of chunk sizes, such as [[5, 4, 3]]") from None
        for sizes in splits:
            check_chunk_sizes(sizes, length)

    def ids_for_edits(self, token_ids: Sequence[int]) -> list[int]:
        """Ids that may stand in for others: the caller's alternatives, else the vocabulary, else the given ids."""
        if self.alternatives is not None:
            return [int(token) for token in self.alternatives]
        if self.vocab_size is not None:
            return list(range(min(self.vocab_size, 4096)))
        return list(dict.fromkeys(token_ids))
