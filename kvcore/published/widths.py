"""The width of a dense feed-forward, by the names and the defaults of its family."""

from __future__ import annotations

from collections.abc import Callable

from kvcore.published.reader import MISSING, Reader, short, whole_number

FOUR_TIMES = ("gpt2", "gpt_bigcode", "gptj", "gpt_neo", "codegen", "falcon", "phi-msft")
"""Families that take 4 · hidden_size where the file gives no width, or null."""


def dense_widths(reader: Reader, n_layers: int, d_model: int, key: str = "intermediate_size") -> list[int] | None:
    """One width a layer; None where neither the file nor the family gives one."""
    family = FAMILIES.get(reader.model_type)
    if family is not None:
        found = family(reader, d_model)
        return None if found is None else [found] * n_layers
    name = reader.name_in_file(key)
    if name is not None and isinstance(reader.raw[name], list):
        listed = reader.listed(key)
        if len(listed) != n_layers:
            raise ValueError(f"{name} has {len(listed):,} entries; the model has {n_layers:,} layers, one entry each")
        return [whole_number(name, each, "width") for each in listed]
    found = reader.whole(key, "width")
    if found is None and reader.model_type in FOUR_TIMES:
        return [_four_times(reader, d_model)] * n_layers
    return None if found is None else [found] * n_layers


def _four_times(reader: Reader, d_model: int) -> int:
    reader.told("feed-forward width", 4 * d_model, "derived", f"4 · hidden_size, as {reader.model_type} has it")
    return 4 * d_model


def _times(key: str, otherwise: int) -> Callable[[Reader, int], int]:
    """d_model times a factor that the file may give."""

    def width(reader: Reader, d_model: int) -> int:
        factor = reader.whole(key, "heads", fallback=otherwise)
        reader.told("feed-forward width", factor * d_model, "derived", f"{key} {factor} · the width")
        return factor * d_model

    return width


def _named(key: str, otherwise: int) -> Callable[[Reader, int], int]:
    return lambda reader, d_model: reader.whole(key, "width", fallback=otherwise)


def _half(key: str) -> Callable[[Reader, int], int | None]:
    """The file gives the gate and the way up together."""

    def width(reader: Reader, d_model: int) -> int | None:
        given = reader.whole(key, "width")
        if given is None:
            return None
        reader.told("feed-forward width", given // 2, "derived", f"{key} counts the gate and the way up together")
        return given // 2

    return width


def _lfm2(reader: Reader, d_model: int) -> int | None:
    """Two thirds, times a factor, rounded up to a multiple (Lfm2MLP of transformers 5.24)."""
    given = reader.whole("intermediate_size", "width")
    if given is None or not reader.flag("block_auto_adjust_ff_dim", otherwise=True):
        return given
    factor = reader.get("block_ffn_dim_multiplier")
    factor = 1.0 if factor is MISSING else factor
    if isinstance(factor, bool) or not (factor is None or (isinstance(factor, int | float) and 0 < factor <= 100)):
        raise ValueError(f"block_ffn_dim_multiplier is {short(factor)}; it must be a number above 0, at most 100")
    multiple = reader.whole("block_multiple_of", "width", fallback=256)
    width = 2 * given // 3 if factor is None else int(factor * (2 * given // 3))
    width = width if factor is None else multiple * -(-width // multiple)
    reader.told("feed-forward width", width, "derived", "two thirds of the width in the file, rounded up")
    return width


FAMILIES: dict[str, Callable[[Reader, int], int | None]] = {
    **dict.fromkeys(("bloom", "openai-gpt"), _four_times),
    "mpt": _times("expansion_ratio", 4),
    "gpt_neox_japanese": _times("intermediate_multiple_size", 4),
    "ctrl": _named("dff", 8192),
    "cpmant": _named("dim_ff", 10240),
    "recurrent_gemma": _half("intermediate_size"),
    "qwen": _half("intermediate_size"),
    "moshi": _half("ffn_dim"),
    "lfm2": _lfm2,
}
"""Families whose width follows from keys or by rules of their own."""
