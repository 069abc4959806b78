"""A setting in which a fault is in force: three layers, shared KV heads, and whatever else it needs."""

from __future__ import annotations

from itertools import product

from kvcore.config import DecoderConfig
from kvcore.faults.fault import Fault
from kvcore.setting import Setting

WINDOW = 4
_SCHEMES = ("rotary", "sinusoidal", "alibi")
_PATTERNS: tuple[tuple[int | None, ...], ...] = ((None,), (WINDOW,), (WINDOW, None))


def example(fault: Fault, seed: int = 0) -> Setting:
    """The first of a few settings that has what the fault needs, rotary positions and no window before others."""
    for n_sinks, scheme, windows in product((0, 2), _SCHEMES, _PATTERNS):
        decoder = DecoderConfig(seed=seed, d_model=32, n_layers=3, n_heads=4, n_kv_heads=2, positions=scheme)
        setting = Setting(decoder, windows, n_sinks)
        if not fault.needs(setting):
            return setting
    raise AssertionError(f"no setting has what {fault.name} needs")
