"""Settings in which a fault is in force: what a visitor chose, and the rest as the fault needs it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product

from kvcore.config import POSITIONS, DecoderConfig, check_choice
from kvcore.faults import Fault
from kvcore.setting import Setting

PATTERNS = {"none": (None,), "all": (True,), "local, global": (True, None), "local, local, global": (True, True, None)}
"""Which layers have the window, as a pattern that repeats: True has it, None sees everything."""

NO_WINDOW = "none"


@dataclass(frozen=True)
class Shape:
    """What a fault may need of a setting; None stands for a choice that is left to the fault."""

    positions: str | None = None
    pattern: str | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    n_sinks: int | None = None

    def setting(self, window: int = 4, **decoder: object) -> Setting:
        """The setting of a complete shape. Raises ValueError for heads that cannot be shared, and the like."""
        check_choice("positions", self.positions, POSITIONS)
        check_choice("pattern", self.pattern, tuple(PATTERNS))
        windows = tuple(window if has_it else None for has_it in PATTERNS[self.pattern])
        heads = {"n_heads": self.n_heads, "n_kv_heads": self.n_kv_heads}
        return Setting(DecoderConfig(positions=self.positions, **heads, **decoder), windows, self.n_sinks)


SIMPLEST = {
    "n_heads": (1, 4),
    "n_kv_heads": (1, 2),
    "n_sinks": (0, 1),
    "pattern": ("none", "all", "local, global"),
    "positions": ("sinusoidal", "rotary", "alibi"),
}
"""What is tried for a choice that is left to the fault, the simplest first."""


def fitting(fault: Fault, chosen: Shape = Shape(), window: int = 4, **decoder: object) -> Shape:
    """`chosen` completed by the simplest choices under which the fault is in force.

    Where none fits what is chosen, by the simplest of all: `fault.needs` then says what is missing.
    """
    given = {field.name: getattr(chosen, field.name) for field in fields(chosen)}
    options = {name: tries if given[name] is None else (given[name],) for name, tries in SIMPLEST.items()}
    found = [replace(chosen, **dict(zip(options, tried, strict=True))) for tried in product(*options.values())]
    found.sort(key=_complexity)
    for shape in found:
        try:
            setting = shape.setting(window, **decoder)
        except ValueError:
            continue
        if not fault.needs(setting):
            return shape
    return found[0]


def _complexity(shape: Shape) -> int:
    """How many steps from the simplest choices."""
    found = 0
    for name, tries in SIMPLEST.items():
        value = getattr(shape, name)
        found += tries.index(value) if value in tries else 0
    return found
