"""Where a command computes: bad input was refused before, so a ValueError in here is a fault of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def computing() -> Iterator[None]:
    """Raises RuntimeError in place of a ValueError, so that no fault of ours is told as bad input."""
    try:
        yield
    except ValueError as error:
        raise RuntimeError("the computation failed; the request was valid, so this is a fault of the lab") from error
