"""Which keys may each new query read, what does the decoder do under that mask, and does the future leak?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kvcore import paths
from kvcore.cells import Cells, inside, parse_cells
from kvcore.compare import difference_by_position
from kvcore.config import DecoderConfig, check_choice, check_int, lab_token_ids
from kvcore.masks import EditedMask, Mask, rows_without_keys
from kvcore.model import LabDecoder, Step
from kvcore.rules import Rules, wrong_chunk_mask
from kvcore.studies.mask_result import Result

MAX_CACHED = 64
MAX_NEW = 32
MAX_SINKS = 4
MAX_LAYERS = 6
MAX_SEED = 9999
HEADS = (1, 2, 4)
D_MODEL = 16
ABSOLUTE, FROM_ZERO = NUMBERINGS = ("absolute", "from 0")


@dataclass(frozen=True)
class Config:
    """A call of `n_new` tokens on a cache of `n_cached`, its mask, and what of it is looked at.

    `flipped` holds cells flipped by hand as `query:key`, separated by commas; cells outside the mask
    are dropped. `row` is an absolute position, None the middle new one; `edit_from` the first edited
    token of the future-edit experiment, None the middle new one; layer and head count from 1.
    """

    n_cached: int = 5
    n_new: int = 3
    window: int | None = None
    n_sinks: int = 0
    causal: bool = True
    numbering: str = ABSOLUTE
    flipped: str = ""
    row: int | None = None
    layer: int = 1
    head: int = 1
    edit_from: int | None = None
    seed: int = 7
    n_layers: int = 2
    n_heads: int = 2
    n_kv_heads: int = 2

    def __post_init__(self) -> None:
        check_int("cached positions", self.n_cached, 0, MAX_CACHED)
        check_int("new tokens", self.n_new, 1, MAX_NEW)
        if self.window is not None:
            check_int("window", self.window, 1, MAX_CACHED + MAX_NEW)
        check_int("attention sinks", self.n_sinks, 0, MAX_SINKS)
        check_choice("numbering", self.numbering, NUMBERINGS)
        parse_cells(self.flipped)
        check_int("row", self.shown_row, self.n_cached, self.length - 1)
        check_int("the first edited token", self.first_edited, 0, self.length - 1)
        check_int("seed", self.seed, 0, MAX_SEED)
        check_int("layers", self.n_layers, 1, MAX_LAYERS)
        if self.n_heads not in HEADS:
            raise ValueError(f"heads are {self.n_heads!r}; allowed are {', '.join(map(str, HEADS))}")
        _ = self.decoder
        check_int("layer", self.layer, 1, self.n_layers)
        check_int("head", self.head, 1, self.n_heads)

    @property
    def length(self) -> int:
        """All keys of the call: cached and new positions."""
        return self.n_cached + self.n_new

    @property
    def shown_row(self) -> int:
        return self.n_cached + self.n_new // 2 if self.row is None else self.row

    @property
    def first_edited(self) -> int:
        return self.n_cached + self.n_new // 2 if self.edit_from is None else self.edit_from

    @property
    def decoder(self) -> DecoderConfig:
        return DecoderConfig(
            seed=self.seed,
            d_model=D_MODEL,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
        )

    @property
    def right(self) -> Rules:
        """Causal, with the window and sinks asked for, rows numbered by absolute position."""
        return Rules(visible=Mask(self.window, self.n_sinks))

    @property
    def unedited(self) -> Rules:
        """The mask as chosen, before cells are flipped by hand."""
        chosen = Rules(visible=Mask(self.window, self.n_sinks, self.causal))
        return wrong_chunk_mask(chosen) if self.numbering == FROM_ZERO else chosen

    @property
    def cells(self) -> Cells:
        """Flipped cells that lie in the mask."""
        return inside(parse_cells(self.flipped), self.n_cached, self.n_new)

    @property
    def edited(self) -> Rules:
        """The mask as it is run. A rule's mask sees rows as they are numbered, so the cells are numbered alike."""
        rules, query = self.unedited, np.arange(self.n_cached, self.length)
        numbered = dict(zip(query.tolist(), rules.mask_position(query).tolist(), strict=True))
        cells = frozenset((numbered[query], key) for query, key in self.cells)
        return replace(rules, visible=EditedMask(rules.visible, cells))


def _visible(rules: Rules, config: Config) -> np.ndarray:
    """The mask (n_new, length) that the call's rows get."""
    query = np.arange(config.n_cached, config.length)
    return rules.visible(rules.mask_position(query), np.arange(config.length))


class _Call:
    """The new tokens on a cache that was filled rightly, continued under any rules as often as wanted."""

    def __init__(self, decoder: LabDecoder, tokens: np.ndarray, config: Config) -> None:
        self._decoder, self._new = decoder, tokens[config.n_cached :]
        prefix = decoder.step(tokens[: config.n_cached], rules=config.right) if config.n_cached else None
        self._cache = prefix.cache if prefix else None
        self._cached_rows = prefix.hidden.numpy() if prefix else np.empty((0, D_MODEL))

    def step(self, rules: Rules) -> Step:
        return self._decoder.step(self._new, self._cache, rules)

    def rows(self, step: Step) -> np.ndarray:
        """Hidden states of all positions, cached and new, (length, d_model)."""
        return np.concatenate([self._cached_rows, step.hidden.numpy()])


def run(config: Config) -> Result:
    """The masks, the decoder under them, and the future-edit experiment.

    A mask with a row that sees no key is not run: the result then says so in `refusal` and has no
    weights and no movement, but its masks and the experiment stand.
    """
    decoder, tokens = LabDecoder(config.decoder), lab_token_ids(config.length)
    changed = tokens.copy()
    changed[config.first_edited :] = (changed[config.first_edited :] + 1) % config.decoder.vocab_size

    def leak(rules: Rules) -> np.ndarray:
        """Each position's change when the later tokens are edited, all tokens in one call."""
        return difference_by_position(*(paths.full(decoder, ids, rules).hidden for ids in (changed, tokens)))

    right, unedited, edited = config.right, config.unedited, config.edited
    masks = {"right": right, "unedited": unedited, "visible": edited}
    result = Result(
        config=config,
        **{name: _visible(rules, config) for name, rules in masks.items()},
        causal_change=leak(right),
        unmasked_change=leak(replace(right, visible=replace(right.visible, causal=False))),
    )
    empty = rows_without_keys(result.visible)
    if empty.size:
        return replace(result, refusal=_refusal(empty + config.n_cached))

    call, changed_call = _Call(decoder, tokens, config), _Call(decoder, changed, config)
    step = call.step(edited)
    rows = call.rows(step)
    return replace(
        result,
        moved=difference_by_position(rows, call.rows(call.step(unedited))),
        from_right=difference_by_position(rows, call.rows(call.step(right))),
        weights=np.stack([layer.weights[0].numpy() for layer in step.layers]),
        mask_change=difference_by_position(changed_call.rows(changed_call.step(edited)), rows),
    )


def _refusal(empty: np.ndarray) -> str:
    rows = "query " + str(empty[0]) if len(empty) == 1 else f"{len(empty)} queries, the first of them {empty[0]},"
    see = "sees" if len(empty) == 1 else "see"
    return f"this mask is not run: {rows} {see} no key, and attention needs at least one; flip a cell of that row back"
