"""How long decoding takes, as ratios: against a plain NumPy decoder, of two paths, and of two lengths.

Each run starts from an empty cache and decodes T tokens, one at a time, on one thread. The sides
that are compared take turns within a run, at most 1024 tokens each, so that whatever else the machine
does slows both. Parameters are drawn beforehand, and each side first decodes one sequence that is not
counted. A ratio is the median over runs of time ÷ time within the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from kvcore.bench_verify import Cost, costs
from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.model import LabDecoder
from kvcore.plain import PlainDecoder
from kvcore.threads import one_thread
from kvcore.turns import Side, measure
from kvcore.units import plural

GROWTH_LENGTHS = (24, 64, 128, 256)


@dataclass(frozen=True)
class Setting:
    """Two layers, float64, as many KV heads as heads; `repeats` sequences make one run where one is too short."""

    length: int
    d_model: int
    n_heads: int
    target: float | None = None
    repeats: int = 1

    @property
    def decoder(self) -> DecoderConfig:
        return DecoderConfig(d_model=self.d_model, n_heads=self.n_heads, n_kv_heads=self.n_heads)

    def in_words(self) -> str:
        return f"T={self.length}, d_model={self.d_model}, {plural(self.n_heads, 'head')}, 2 layers, float64"


AGAINST_PLAIN = (
    Setting(24, 16, 1, target=6, repeats=20),
    Setting(4096, 64, 4, target=0.8),
    Setting(1024, 512, 8, target=0.8),
)


@dataclass(frozen=True)
class Ratio:
    """`name` takes `ratio` times as long as `against`: the median of `runs` runs, which lay in lowest..highest.

    The two times are means over the T tokens in microseconds a token, medians over the runs.
    """

    name: str
    setting: str
    ratio: float
    against: str
    runs: int
    lowest: float
    highest: float
    microseconds_a_token: float
    against_microseconds_a_token: float
    target: float | None = None

    @property
    def line(self) -> str:
        target = "" if self.target is None else f"; target at most {self.target:g}"
        return (
            f"{self.name} takes {self.ratio:.2f} times as long as {self.against} ({self.setting};"
            f" {self.microseconds_a_token:.0f} against {self.against_microseconds_a_token:.0f} µs a token;"
            f" {self.lowest:.2f} to {self.highest:.2f} over {plural(self.runs, 'run')}{target})"
        )

    def to_json(self) -> dict[str, str | int | float | None]:
        return asdict(self)


def bench(runs: int = 5, quick: bool = False) -> Iterator[Ratio | Cost]:
    """Each ratio as soon as it is measured; `quick` leaves only the smallest setting against plain NumPy."""
    with one_thread():
        for setting in AGAINST_PLAIN[: 1 if quick else None]:
            yield against_plain(setting, runs)
        if not quick:
            yield from over_length(GROWTH_LENGTHS, runs)
            yield from costs(runs)


def against_plain(setting: Setting, runs: int) -> Ratio:
    """The engine's token cache against the plain NumPy decoder that concatenates."""
    seconds = measure([token_cache(setting), plain(setting)], runs, setting.repeats)
    n_tokens = setting.length * setting.repeats
    name, against = "token cache", "a plain NumPy decoder that concatenates"
    return _ratio(name, against, setting.in_words(), *seconds, n_tokens, n_tokens, setting.target)


def over_length(lengths: Sequence[int], runs: int) -> Iterator[Ratio]:
    """Mean time a token over T: prefix recomputation against the token cache, then each against its shortest T."""
    settings = [Setting(length, d_model=16, n_heads=1) for length in lengths]
    sides = [side(setting) for setting in settings for side in (prefix_recomputation, token_cache)]
    seconds = measure(sides, runs)
    prefix, cached = seconds[0::2], seconds[1::2]
    for setting, one, other in zip(settings, prefix, cached, strict=True):
        n_tokens = setting.length
        yield _ratio("prefix recomputation", "token cache", setting.in_words(), one, other, n_tokens, n_tokens)
    shortest = settings[0]
    for name, times in (("prefix recomputation", prefix), ("token cache", cached)):
        for setting, one in zip(settings[1:], times[1:], strict=True):
            against = f"{name} at T={shortest.length}, a token"
            yield _ratio(f"{name}, a token", against, setting.in_words(), one, times[0], setting.length, lengths[0])


def token_cache(setting: Setting) -> Side:
    decoder, token_ids = LabDecoder(setting.decoder), lab_token_ids(setting.length)

    def sequence() -> Iterator[object]:
        cache = None
        for t in range(setting.length):
            step = decoder.step(token_ids[t : t + 1], cache)
            cache = step.cache
            yield step.hidden

    return sequence


def prefix_recomputation(setting: Setting) -> Side:
    decoder, token_ids = LabDecoder(setting.decoder), lab_token_ids(setting.length)
    return lambda: (decoder.step(token_ids[: t + 1]).hidden[-1] for t in range(setting.length))


def plain(setting: Setting) -> Side:
    token_ids = lab_token_ids(setting.length).tolist()
    decoder = PlainDecoder(setting.decoder)

    def sequence() -> Iterator[object]:
        decoder.restart()
        for token_id in token_ids:
            yield decoder.step(token_id)

    return sequence


def _ratio(
    name: str,
    against: str,
    setting: str,
    seconds: Sequence[float],
    against_seconds: Sequence[float],
    n_tokens: int,
    against_n_tokens: int,
    target: float | None = None,
) -> Ratio:
    mine = [1e6 * second / n_tokens for second in seconds]
    theirs = [1e6 * second / against_n_tokens for second in against_seconds]
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    return Ratio(
        name,
        setting,
        median(ratios),
        against,
        len(ratios),
        min(ratios),
        max(ratios),
        median(mine),
        median(theirs),
        target,
    )
