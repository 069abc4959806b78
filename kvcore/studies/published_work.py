"""Work of published models with the cache and without it, and what bounds a decode step, in numbers and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcore.published.counts import PARTS, Counts
from kvcore.published.decoding import Bound, Step, bound_by, decode_step
from kvcore.published.layer import Description
from kvcore.published.work import Work, work
from kvcore.studies.published_fit import weight_bytes
from kvcore.units import both_units, context_in_words, plural, times_fewer

if TYPE_CHECKING:
    from kvcore.studies.published_models import Config
    from kvcore.studies.published_result import Result

WAYS = {"cached": "with the cache", "recomputed": "prefix recomputation"}
WORDS = ("", "thousand", "million", "billion", "trillion", "quadrillion", "quintillion", "sextillion")


def count_in_words(number: int) -> str:
    """To three digits, in thousands, millions and so on: 67_500_000_000_000 → "67.5 trillion"."""
    size, step = float(number), 0
    while size >= 999.5 and step < len(WORDS) - 1:
        size, step = size / 1000, step + 1
    return f"{size:.3g} {WORDS[step]}".strip() if size < 1000 else f"{number:.3g}"


def works(models: tuple[Description, ...], config: Config) -> list[Work]:
    """Prompt and new tokens of each model, the whole batch."""
    return [work(model, config.prompt, config.new_tokens, config.batch) for model in models]


def steps(models: tuple[Description, ...], config: Config) -> list[tuple[Step, Bound | None]]:
    """One decode step of each at the chosen context, and what bounds it where weights and hardware are given."""
    found = []
    for model, millions in zip(models, config.millions, strict=True):
        weights = weight_bytes(millions, config.weight_bits, 1) or None
        step = decode_step(model, config.context, config.batch, config.format, weights)
        given = config.peak_tflops and config.bandwidth and step.total is not None and step.bytes is not None
        bound = bound_by(step, config.peak_tflops * 1e12, config.bandwidth * 1e9) if given else None
        found.append((step, bound))
    return found


def row(model: str, way: str, counts: Counts) -> dict[str, Any]:
    """One row of the table: counts exact, and text where a part is not counted."""
    plain = {
        "token passes": counts.token_passes,
        "projected rows": counts.projected_rows,
        "score elements, allocated": counts.score_square,
        "score elements, visible": counts.score_causal,
    }
    flops = {f"FLOPs {part.replace('_', ' ')}": counts.flops[part] for part in PARTS}
    shown = {name: "not counted" if value is None else f"{value:,}" for name, value in (plain | flops).items()}
    return {"model": model, "way": way} | shown


def step_row(model: str, step: Step, bound: Bound | None) -> dict[str, Any]:
    """One row of the table of decode steps, in words."""
    times = {"memory takes at least": "memory_seconds", "arithmetic takes at least": "arithmetic_seconds"}
    return {
        "model": model,
        "K/V read": both_units(step.cache_bytes),
        "weights read": "not given" if step.weight_bytes is None else both_units(step.weight_bytes),
        "FLOPs": "not all counted" if step.total is None else f"{step.total:,}",
        "attention, FLOPs a byte": _digits(step.attention_intensity),
        "whole step, FLOPs a byte": _digits(step.intensity),
        "bound by": "not said" if bound is None else bound.bound,
        **{said: "not said" if bound is None else _time(getattr(bound, name)) for said, name in times.items()},
    }


def _flops(value: float) -> str:
    return "1 FLOP" if f"{value:.3g}" == "1" else f"{value:.3g} FLOPs"


def _digits(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3g}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def saved(result: Result) -> str:
    """What the cache saves, in counts, one paragraph a model."""
    return "\n\n".join(
        f"{model.name}: {_saved(done)}" for model, done in zip(result.models, result.works(), strict=True)
    )


def bounded(result: Result) -> str:
    """What a decode step reads and what bounds it, one paragraph a model."""
    return "\n\n".join(
        f"{model.name}: {_step(step, bound, result.config)}"
        for model, (step, bound) in zip(result.models, result.steps(), strict=True)
    )


def _saved(done: Work) -> str:
    cached, anew = done.cached, done.recomputed
    said = (
        f"with the cache {plural(cached.token_passes, 'token pass').replace('passs', 'passes')} and"
        f" {count_in_words(cached.counted)} FLOPs, by prefix recomputation {anew.token_passes:,} and"
        f" {count_in_words(anew.counted)}; that is {times_fewer(anew.counted, cached.counted)} FLOPs with the cache."
    )
    if done.reasons:
        listed = "; ".join(dict.fromkeys(f"{part.replace('_', ' ')}: {why}" for part, why in done.reasons.items()))
        said += f" Not counted: {listed}."
    return said


def _step(step: Step, bound: Bound | None, config: Config) -> str:
    at = f"a decode step at {context_in_words(config.context)}"
    reads = f"{at} reads {both_units(step.cache_bytes)} of keys and values"
    if step.attention_intensity is not None:
        reads += f" and attention makes {_flops(step.attention_intensity)} for each byte of them"
    if bound is not None:
        if bound.bound == "memory":
            return (
                f"{reads}; the whole step makes {step.intensity:.3g} FLOPs a byte, less than the {bound.ridge:.4g} of"
                " this hardware, so memory bounds it."
            )
        return (
            f"{reads}; the whole step makes {step.intensity:.3g} FLOPs a byte, not less than the {bound.ridge:.4g} of"
            " this hardware, so arithmetic bounds it."
        )
    if step.weight_bytes is None:
        return f"{reads}; give its parameters to see whether memory or arithmetic bounds the whole step."
    if not (config.peak_tflops and config.bandwidth):
        return f"{reads}; give both hardware figures to see whether memory or arithmetic bounds the whole step."
    return f"{reads}; what bounds the whole step is not said, since not all of its parts are counted."
