"""Somebody else's model as the battery sees it: sequences in, rows out, and what went wrong on the way."""

from __future__ import annotations

import copy as copying
import linecache
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np

from kvcore.verification.outputs import TokenIds, rows_of
from kvcore.verification.plan import Sizes


@dataclass(frozen=True)
class Failure:
    """A call that raised. `deliberate`: the model's own code said so with a raise or assert."""

    said: str
    deliberate: bool
    position: int
    n_tokens: int

    def in_words(self) -> str:
        did = "refused" if self.deliberate else "broke off with an error in"
        return f"step {did} a call of {self.n_tokens} token(s) at position {self.position}: {self.said}"


@dataclass(eq=False)
class Run:
    """Rows (positions, features) of one sequence under one split, or where it failed; the cache at its end."""

    rows: np.ndarray | None
    failure: Failure | None = None
    cache: Any = None


@dataclass(eq=False)
class Subject:
    """The caller's two functions. `seconds` is the time spent inside them."""

    full_function: Callable[[Any], Any]
    step_function: Callable[[Any, Any], tuple[Any, Any]]
    ids: TokenIds
    dtype: str = ""
    seconds: float = 0.0
    calls: int = 0
    _known: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def _timed(self, function: Callable, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.seconds += time.perf_counter() - begin
            self.calls += 1

    def full(self, token_ids: Sequence[int]) -> np.ndarray:
        """Rows (T, features) of the full forward; each sequence is asked for once."""
        key = tuple(token_ids)
        if key not in self._known:
            self._known[key] = self.full_anew(key)
        return self._known[key]

    def full_anew(self, token_ids: tuple[int, ...]) -> np.ndarray:
        """As `full`, asked for whatever was asked before."""
        try:
            outputs = self._timed(self.full_function, self.ids.like(token_ids))
        except Exception as error:  # whatever a stranger's model raises
            raise ValueError(f"full raised {said(error)} for {len(token_ids)} tokens") from error
        rows, name = rows_of(outputs, len(token_ids), "full")
        self.dtype = self.dtype or name
        return rows

    def try_full(self, token_ids: Sequence[int]) -> np.ndarray | None:
        """As above, or None where the model does not take these tokens."""
        try:
            return self.full(token_ids)
        except Exception:  # whatever a stranger's model raises: these tokens were not the caller's own
            return None

    def run(self, token_ids: Sequence[int], sizes: Sizes, cache: Any = None, first: int = 0) -> Run:
        """The tokens from position `first` on, split into calls; stops at the first call that fails."""
        rows, at = [], first
        for size in sizes:
            new = token_ids[at : at + size]
            try:
                answer = self._timed(self.step_function, self.ids.like(new), cache)
            except Exception as error:
                return Run(None, Failure(said(error), _deliberate(error.__traceback__), at, size), cache)
            if not isinstance(answer, (tuple, list)) or len(answer) != 2:
                raise ValueError(f"step gave {type(answer).__name__}; it must give (outputs, cache)")
            outputs, cache = answer
            rows.append(rows_of(outputs, size, "step")[0])
            at += size
        if len({part.shape[1] for part in rows}) > 1:
            raise ValueError("step gave rows of different widths in different calls; all must have the same features")
        return Run(np.concatenate(rows), None, cache)


def find_copy(copy: Callable[[Any], Any] | None, cache: Any) -> Callable[[Any], Any] | None:
    """The caller's way to copy a cache, or deepcopy where that works on this one; else None."""
    if copy is not None:
        return copy
    try:
        copying.deepcopy(cache)
    except Exception:
        return None
    return copying.deepcopy


def holds_arrays(cache: Any, depth: int = 4) -> bool:
    """Whether keys and values could lie in the cache itself; a bare number or handle holds none."""
    if isinstance(cache, np.ndarray) or hasattr(cache, "detach") or hasattr(cache, "__array__"):
        return True
    if depth == 0 or isinstance(cache, (int, float, str, bytes, type(None))):
        return False
    if isinstance(cache, dict):
        parts = list(cache.values())
    elif isinstance(cache, (list, tuple, set)):
        parts = list(cache)
    else:
        slots = [name for kind in type(cache).__mro__ for name in getattr(kind, "__slots__", ())]
        parts = list(getattr(cache, "__dict__", {}).values()) + [getattr(cache, name, None) for name in slots]
    if len(parts) > 8 and all(isinstance(part, (int, float)) for part in parts):
        return True  # numbers in a list are numbers all the same
    return any(holds_arrays(part, depth - 1) for part in parts)


def said(error: BaseException) -> str:
    """The kind of error and its first line, short."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__


def _deliberate(traceback: TracebackType | None) -> bool:
    """Whether the innermost Python line is a raise or an assert: somebody meant to refuse."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return False
    line = linecache.getline(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno).strip()
    return line.startswith(("raise", "assert"))
