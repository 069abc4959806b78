"""Numbers and lists in words: bytes with their unit, ratios of counts, one and many."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DECIMAL = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def short_bytes(n_bytes: int) -> str:
    """In the largest unit of 1024 that leaves 1 or more, to three digits: 12288 → "12 KiB"."""
    size, unit = float(n_bytes), 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.{4 if size >= 1000 else 3}g} {UNITS[unit]}"


def short_decimal(n_bytes: int) -> str:
    """In the largest unit of 1000 that leaves 1 or more, to three digits: 12288 → "12.3 kB"."""
    size, unit = float(n_bytes), 0
    while size >= 999.5 and unit < len(DECIMAL) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {DECIMAL[unit]}"


def both_units(n_bytes: int) -> str:
    """In units of 1024 and of 1000, which tools print under each other's names: "1.5 GiB (1.61 GB)"."""
    return f"{short_bytes(n_bytes)} ({short_decimal(n_bytes)})" if n_bytes >= 1000 else plural(n_bytes, "byte")


def context_in_words(n_tokens: int) -> str:
    """A number of tokens, in Ki or Mi where it is a whole number of them: 131072 → "128 Ki tokens"."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if n_tokens >= unit and n_tokens % unit == 0:
            return f"{n_tokens // unit:,} {name} tokens"
    return plural(n_tokens, "token")


def bytes_in_words(n_bytes: int) -> str:
    """Exact, and in the largest unit where that is another: "12,288 bytes (12 KiB)"."""
    exact = plural(n_bytes, "byte")
    return exact if n_bytes < 1024 else f"{exact} ({short_bytes(n_bytes)})"


def plural(n: int, noun: str) -> str:
    """ "1 token", "1,800 tokens"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def times_fewer(many: int, few: int) -> str:
    """How `few` compares with `many`: "12.5 times fewer", "3 fewer", "the same number of". No speed-up is meant."""
    if many == few:
        return "the same number of"
    word, ratio = ("fewer", many / few) if few < many else ("more", few / many)
    if ratio < 1.005:
        return f"{abs(many - few):,} {word}"
    return f"{ratio:,.0f} times {word}" if ratio >= 1000 else f"{ratio:.3g} times {word}"
