"""How many keys queries see, summed over positions in closed form: all, the last W, or those of the current chunk.

The query at position t, counted from 1, sees t keys, min(t, W) keys, or ((t − 1) mod C) + 1 keys.
"""

from __future__ import annotations

from dataclasses import dataclass


def sum_to(n: int) -> int:
    """1 + 2 + … + n."""
    return n * (n + 1) // 2


def sum_of_squares_to(n: int) -> int:
    """1² + 2² + … + n²."""
    return n * (n + 1) * (2 * n + 1) // 6


def sum_of_sums_to(n: int) -> int:
    """Σ t·(t + 1)/2 for t = 1 … n."""
    return n * (n + 1) * (n + 2) // 6


@dataclass(frozen=True)
class Visible:
    """All keys (neither is given), those of a window of W, or those of chunks of C."""

    window: int | None = None
    chunk: int | None = None

    def at(self, t: int) -> int:
        """Keys that the query at position t sees."""
        if self.chunk is not None:
            return (t - 1) % self.chunk + 1
        return t if self.window is None else min(t, self.window)

    def to(self, n: int) -> int:
        """Keys that the queries at positions 1 … n see, together."""
        if self.chunk is not None:
            whole, rest = divmod(n, self.chunk)
            return whole * sum_to(self.chunk) + sum_to(rest)
        most = n if self.window is None else min(n, self.window)
        return sum_to(most) + (n - most) * (self.window or 0)

    def prefixes_to(self, n: int) -> int:
        """`to` of every length 1 … n, together: what recomputing each prefix sees."""
        if self.chunk is not None:
            whole, rest = divmod(n, self.chunk)
            one = sum_to(self.chunk)
            before = self.chunk * one * sum_to(whole - 1) + whole * sum_of_sums_to(self.chunk - 1)
            return before + (rest + 1) * whole * one + sum_of_sums_to(rest)
        most = n if self.window is None else min(n, self.window)
        beyond = n - most
        return sum_of_sums_to(most) + beyond * sum_to(most) + (self.window or 0) * sum_to(beyond)
