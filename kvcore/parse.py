"""Text that a person types, as numbers: one place for the page and the command line."""

from __future__ import annotations

import re
from itertools import cycle

from kvcore.config import check_chunk_sizes

MORE = ("...", "…")
"""Behind chunk sizes: repeat them until all tokens are covered."""


def integers(text: str, what: str, example: str, at_most: int) -> tuple[int, ...]:
    """Whole numbers separated by commas or spaces.

    Raises ValueError for anything else, for none, and for more than `at_most`.
    """
    words = re.split(r"[,;\s]+", text.strip(" \t\r\n,;"))
    if words == [""]:
        raise ValueError(f"{what} are empty; give whole numbers separated by commas, such as {example}")
    if len(words) > at_most:
        raise ValueError(f"{len(words):,} {what} are too many; at most {at_most} are allowed")
    for word in words:
        if not re.fullmatch(r"-?[0-9]{1,12}", word):
            raise ValueError(
                f"{_shortened(word)} is no whole number; give {what} as whole numbers with commas, such as {example}"
            )
    return tuple(int(word) for word in words)


def chunk_sizes(text: str, length: int) -> tuple[int, ...]:
    """Chunk sizes such as `5,3,7,9`, which must add up to `length`; with `...` behind, they repeat until they do."""
    text, repeat = text.strip(), False
    for dots in MORE:
        if text.endswith(dots):
            text, repeat = text.removesuffix(dots), True
    sizes = integers(text, "chunk sizes", "5,3,7,9", at_most=256)
    if not repeat:
        return check_chunk_sizes(sizes, length)
    if min(sizes) < 1:
        raise ValueError(f"a chunk size is {min(sizes)}; it must be a whole number 1 or more")
    covered: list[int] = []
    for size in cycle(sizes):
        left = length - sum(covered)
        if left == 0:
            return tuple(covered)
        covered.append(min(size, left))
    raise AssertionError("cycle never ends")


def names(text: str, what: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Names separated by commas, each once and in the order of `allowed`; the empty text gives none."""
    given = [word.strip() for word in text.split(",") if word.strip()]
    for word in given:
        if word not in allowed:
            raise ValueError(f"{_shortened(word)} is no {what}; allowed are {', '.join(allowed)}")
    return tuple(name for name in allowed if name in given)


def _shortened(word: str) -> str:
    return repr(word if len(word) <= 24 else word[:24] + "…")
