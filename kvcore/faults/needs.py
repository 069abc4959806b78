"""What a setting must have for a fault to be in force, in words."""

from __future__ import annotations

from collections.abc import Callable

from kvcore.setting import Setting

Need = Callable[[Setting], str]


def a_window(setting: Setting) -> str:
    return "" if any(w is not None for w in setting.windows[: setting.decoder.n_layers]) else "needs a window"


def two_windows(setting: Setting) -> str:
    used = {setting.window(layer) for layer in range(setting.decoder.n_layers)}
    return "" if len(used) > 1 else "needs layers with different windows"


def two_layers(setting: Setting) -> str:
    return "" if setting.decoder.n_layers > 1 else "needs two layers or more"


def shared_heads(setting: Setting) -> str:
    some = 1 < setting.decoder.n_kv_heads < setting.decoder.n_heads
    return "" if some else "needs at least two KV heads, each shared by several heads"


def entering(setting: Setting) -> str:
    """Positions that a token enters with, added or turned."""
    return "" if setting.decoder.positions in ("sinusoidal", "learned", "rotary") else "needs positions of tokens"


def rotary(setting: Setting) -> str:
    return "" if setting.decoder.positions == "rotary" else "needs rotary positions"


def alibi(setting: Setting) -> str:
    return "" if setting.decoder.positions == "alibi" else "needs ALiBi"


def sinks(setting: Setting) -> str:
    return "" if setting.n_sinks else "needs attention sinks"


def all_of(*needs: Need) -> Need:
    def need(setting: Setting) -> str:
        return next((said for said in (one(setting) for one in needs) if said), "")

    return need
