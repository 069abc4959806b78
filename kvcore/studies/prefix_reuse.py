"""When may a stored prefix be used again, and what does using it unchecked do? One request, answered three ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcore.config import POSITIONS, DecoderConfig, check_choice, check_int, check_token_ids
from kvcore.model import LabDecoder
from kvcore.parse import integers
from kvcore.prefix import reuse_experiment
from kvcore.prefix_experiment import (
    EDIT_AT,
    EDIT_TO,
    OTHER_SCOPE,
    PREFIX,
    SCOPE,
    SUFFIX,
    Request,
    edited,
    reuse,
    with_changed_weight,
)
from kvcore.setting import Setting
from kvcore.studies.prefix_result import Entries, Result

MAX_SUFFIX = 6
MAX_LAYERS = 4
MAX_WINDOW = len(PREFIX) + MAX_SUFFIX
MAX_WEIGHT = 10
STORAGE = ("growing", "sliding")


@dataclass(frozen=True)
class Config:
    """The prefix of ids 1 to 8 is stored; a request differs from it in what is chosen here.

    `edit_at` is the prefix position whose token becomes `edit_to`, None for no edit; `weight` is added to the
    first element of the first layer's W_K; `window`, `positions` and `other_scope` are the request's,
    `stored_window` and `stored_positions` those under which the prefix was stored. Storage, layers and seed
    are the same for both.
    """

    edit_at: int | None = EDIT_AT
    edit_to: int = EDIT_TO
    weight: float = 0.0
    window: int | None = None
    positions: str = "sinusoidal"
    other_scope: bool = False
    suffix: str = ",".join(map(str, SUFFIX))
    stored_window: int | None = None
    stored_positions: str = "sinusoidal"
    storage: str = "growing"
    n_layers: int = 2
    seed: int = 7

    def __post_init__(self) -> None:
        if self.edit_at is not None:
            check_int("the edited position", self.edit_at, 0, len(PREFIX) - 1)
        check_int("the token put there", self.edit_to, 0, DecoderConfig.vocab_size - 1)
        if type(self.weight) not in (int, float) or not abs(self.weight) <= MAX_WEIGHT:  # not a number is no number
            raise ValueError(
                f"what is added to the weight is {self.weight}; it must be a number from −{MAX_WEIGHT} to {MAX_WEIGHT}"
            )
        for name, window in (("window", self.window), ("the stored window", self.stored_window)):
            if window is not None:
                check_int(name, window, 1, MAX_WINDOW)
        check_choice("positions", self.positions, POSITIONS)
        check_choice("the stored positions", self.stored_positions, POSITIONS)
        if not isinstance(self.other_scope, bool):
            raise ValueError(f"other_scope is {self.other_scope!r}; it must be true or false")
        parse_suffix(self.suffix)
        check_choice("storage", self.storage, STORAGE)
        check_int("layers", self.n_layers, 1, MAX_LAYERS)
        check_int("seed", self.seed, 0)

    @property
    def stored(self) -> Request:
        """Whose prefix lies in the store."""
        return self._request(self.stored_positions, self.stored_window)

    @property
    def asked(self) -> Request:
        """Who asks."""
        request = self._request(self.positions, self.window)
        changed = {}
        if self.edit_at is not None:
            changed["prefix"] = edited(request.prefix, self.edit_at, self.edit_to)
        if self.weight:
            changed["decoder"] = with_changed_weight(request.decoder, self.weight)
        if self.other_scope:
            changed["scope"] = OTHER_SCOPE
        return request._replace(**changed)

    def _request(self, positions: str, window: int | None) -> Request:
        config = DecoderConfig(seed=self.seed, n_layers=self.n_layers, positions=positions)
        setting = Setting(config, (window,), storage=self.storage)
        return Request(LabDecoder(config), setting, SCOPE, PREFIX, parse_suffix(self.suffix))


def parse_suffix(text: str) -> tuple[int, ...]:
    """Ids behind the prefix, such as `9,10,11,12`."""
    suffix = integers(text, "suffix ids", "9,10,11,12", MAX_SUFFIX)
    check_token_ids(suffix, DecoderConfig.vocab_size)
    return suffix


def run(config: Config) -> Result:
    """The recorded conditions, and the chosen request answered anew, by the key and unchecked."""
    stored, asked = config.stored, config.asked
    return Result(
        config=config,
        experiment=tuple(reuse_experiment()),
        stored_key=stored.key,
        asked_key=asked.key,
        stored_ids=np.array(stored.prefix),
        asked_ids=np.array(asked.token_ids),
        ways=reuse(stored, asked),
        entries=_entries(stored, asked),
    )


def _entries(stored: Request, asked: Request) -> Entries:
    """Every stored key and value beside the one that the request needs."""
    there, needed = stored.run_prefix(), asked.run_prefix()
    difference = [
        np.maximum(*((one - other).abs().amax(dim=(0, 1, 3)).numpy() for one, other in pairs))
        for pairs in (
            ((one.key, other.key), (one.value, other.value))
            for one, other in zip(there.layers, needed.layers, strict=True)
        )
    ]
    position = np.arange(len(stored.prefix))
    return Entries(np.stack(difference), np.stack([np.isin(position, layer.position) for layer in there.cache.layers]))
