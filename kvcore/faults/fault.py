"""What a fault is: a small named deviation from the rules of a right step, with what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from kvcore.cache import KVCache, LayerCache
from kvcore.crop import crop
from kvcore.masks import Visible
from kvcore.prefix import RIGHT_REUSE, ReuseRules
from kvcore.rotary import rotate
from kvcore.rules import Entries, Rules
from kvcore.setting import Setting

Pattern = tuple[Rules, ...]
"""The rules of a step, one a layer."""

Crop = Callable[[KVCache, int, Pattern], KVCache]


def anywhere(setting: Setting) -> str:
    """No condition: the fault can show in every setting."""
    return ""


@dataclass(frozen=True)
class Fault:
    """One mistake that people make.

    `fault_class` is its code in the catalogue of reports, `also` further classes that list it. `sentence`
    says what goes wrong, `wrong` and `right` are the two rules in short, `reported` names public reports,
    and `hidden_by` the splits or lengths under which it does not show.

    `deviate`
    gives the wrong rules from a setting whose cache grows, anew for every decoder, since some faults
    remember; `needs` says in words what a setting lacks for the fault to be in force, or nothing.
    `crop` and `reuse` are how it goes back and reuses prefixes, right but for the faults that lie there.
    `wrong_reference` marks a fault that the full path of such decoders has as well, `across_sequences`
    what one sequence leaves for the next, and `shown_by` names the hook without which a checker cannot
    see it.
    """

    name: str
    fault_class: str
    sentence: str
    wrong: str
    right: str
    reported: tuple[str, ...]
    hidden_by: str
    deviate: Callable[[Setting], Pattern] = lambda setting: setting.rules
    needs: Callable[[Setting], str] = anywhere
    also: tuple[str, ...] = ()
    crop: Crop = crop
    reuse: ReuseRules = RIGHT_REUSE
    wrong_reference: bool = False
    across_sequences: bool = False
    shown_by: str = ""

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")


def change(setting: Setting, **choices: object) -> Pattern:
    """The right rules with these choices replaced in every layer."""
    return tuple(replace(rules, **choices) for rules in setting.rules)


def change_masks(setting: Setting, wrong: Callable[[Visible], Visible]) -> Pattern:
    """The right rules with every layer's mask replaced by what `wrong` makes of it."""
    return tuple(replace(rules, visible=wrong(rules.visible)) for rules in setting.rules)


def place(setting: Setting, position: Callable[[np.ndarray], np.ndarray]) -> Pattern:
    """The right rules with tokens entering, and queries and keys turning, at other positions."""
    return change(setting, input_position=position, rotary_position=position)


def cached(position: np.ndarray) -> bool:
    """Whether a call at these positions has a cache behind it."""
    return bool(position[0] > 0)


def single(position: np.ndarray) -> bool:
    """Whether a call at these positions is one token with a cache behind it."""
    return cached(position) and len(position) == 1


def when(applies: Callable[[np.ndarray], bool], wrong: Visible, right: Visible) -> Visible:
    """The wrong mask in calls whose query positions `applies` holds for, the right one in the others."""
    return lambda query, key: (wrong if applies(query) else right)(query, key)


def or_everything(visible: np.ndarray) -> np.ndarray:
    """Rows that see no key see all: softmax over equal very negative scores spreads evenly."""
    visible[~visible.any(axis=-1)] = True
    return visible


def turn_keys(entries: LayerCache, by: np.ndarray) -> Entries:
    """The entries with their keys turned by so many more positions (entries,)."""
    return Entries(rotate(entries.key, by), entries.value, entries.position)


def restricted(wrong: Pattern, right: Pattern, when: Callable[[np.ndarray], bool]) -> Pattern:
    """The wrong rules in calls at positions for which `when` holds, the right ones in the others."""
    return tuple(_restricted(one, other, when) for one, other in zip(wrong, right, strict=True))


def _restricted(wrong: Rules, right: Rules, when: Callable[[np.ndarray], bool]) -> Rules:
    in_force = [wrong]

    def choose(name: str, decides: bool = False) -> Callable:
        def choice(*arguments: object) -> object:
            if decides:
                in_force[0] = wrong if when(arguments[-1]) else right
            return getattr(in_force[0], name)(*arguments)

        return choice

    # A layer asks for its rotary positions or appends before anything else of it is asked for.
    first = ("input_position", "rotary_position", "append")
    rest = ("visible", "keep", "mask_position", "rotate", "distance", "head_order", "read")
    chosen = {name: choose(name, decides=True) for name in first} | {name: choose(name) for name in rest}
    return Rules(**chosen)


def stored(key: Tensor, value: Tensor, position: np.ndarray) -> LayerCache:
    """A growing cache that holds just these entries."""
    return LayerCache().append(key, value, position)


def remembering(make: Callable[[list], dict[str, object]], setting: Setting) -> Pattern:
    """The right rules with choices that share a memory, one a layer."""
    return tuple(replace(rules, **make([])) for rules in setting.rules)


def all_if_none(right: Visible) -> Visible:
    """The mask, but that rows which would see no key see all."""
    return lambda query, key: or_everything(right(query, key))
