"""Which raw tokens an output or a cache entry depends on, measured by editing each token in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from kvcore.cache import KVCache, LayerCache
from kvcore.model import LabDecoder
from kvcore.rules import sliding, windowed


@dataclass(frozen=True, eq=False)
class Slots:
    """The entries one step of a sliding cache attends over, and which raw tokens each has seen.

    `position` (entries,), absolute; `before` and `after` (entries,), the slot of each before and after
    the step, −1 for none; `seen` (n_layers, entries, tokens), True where editing that token changes the
    stored key or value.
    """

    position: np.ndarray
    before: np.ndarray
    after: np.ndarray
    seen: np.ndarray


def earliest_token(position: int, n_layers: int, window: int) -> int:
    """The law p − L·(W − 1); negative where that lies before the first token."""
    return position - n_layers * (window - 1)


def edited_copies(token_ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """Copies (n, n) of n token ids: in copy j, token j is replaced by (token + 1) mod vocab_size."""
    copies = np.tile(token_ids, (len(token_ids), 1))
    np.fill_diagonal(copies, (token_ids + 1) % vocab_size)
    return copies


def through_cache(decoder: LabDecoder, token_ids: np.ndarray, position: int, window: int) -> tuple[np.ndarray, Slots]:
    """How far editing each of the tokens 0..position moves that position's output through a sliding cache.

    The tokens before `position` fill the cache in one call and `position` is decoded from it. Returns
    the largest movement (position + 1,) and the slots of that step.
    """
    rules, before, after, hidden = sliding(window), [], [], []
    for ids in _unedited_and_edited(decoder, token_ids[: position + 1]):
        cache = decoder.step(ids[:, :-1], rules=rules).cache if position else KVCache.empty(decoder.config.n_layers)
        step = decoder.step(ids[:, -1:], cache, rules)
        before.append(cache.layers)
        after.append(step.cache.layers)
        hidden.append(step.hidden)

    old, new = before[0][0].position, after[0][0].position
    attended = np.append(old, position)
    n_evicted = len(attended) - len(new)
    seen = [_entries_moved(*pair) for pair in zip(*after, strict=True)]
    if n_evicted:
        gone = [_entries_moved(*pair)[:n_evicted] for pair in zip(*before, strict=True)]
        seen = [np.concatenate(pair) for pair in zip(gone, seen, strict=True)]
    return _moved(*hidden), Slots(attended, _slot_of(attended, old), _slot_of(attended, new), np.stack(seen))


def through_crop(decoder: LabDecoder, token_ids: np.ndarray, position: int, window: int, crop: int) -> np.ndarray:
    """The same, (position + 1,), where the last `crop` raw tokens are recomputed without a cache."""
    first = max(0, position + 1 - crop)
    where = np.arange(first, position + 1)
    rows = [
        decoder.step(ids[:, first:], rules=windowed(window), cache_position=where).hidden[:, -1:]
        for ids in _unedited_and_edited(decoder, token_ids[: position + 1])
    ]
    return _moved(*rows)


def feeds(attention: np.ndarray, position: int) -> np.ndarray:
    """Hidden states that reach `position` of the last layer, followed back along weights that are not 0.

    attention (n_layers, n_heads, T, T). Returns (n_layers + 1, T): row 0 the raw tokens, row l the
    hidden states after layer l.
    """
    used = attention.any(axis=1)
    reached = np.zeros((len(used) + 1, used.shape[-1]), dtype=bool)
    reached[-1, position] = True
    for layer in range(len(used) - 1, -1, -1):
        reached[layer] = reached[layer + 1] | used[layer][reached[layer + 1]].any(axis=0)
    return reached


def _unedited_and_edited(decoder: LabDecoder, token_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two batches of one shape: a copy and its edited twin go through the same arithmetic, bit by bit.

    So what does not depend on an edit moves by exactly 0, and not by rounding.
    """
    return np.tile(token_ids, (len(token_ids), 1)), edited_copies(token_ids, decoder.config.vocab_size)


def _moved(rows: Tensor, edited: Tensor) -> np.ndarray:
    """Largest absolute movement of each copy: (copies, …) twice → (copies,)."""
    return (edited - rows).abs().flatten(1).amax(dim=1).double().numpy()


def _entries_moved(layer: LayerCache, edited: LayerCache) -> np.ndarray:
    """Entries whose stored key or value an edit changes: (entries, copies)."""
    changed = (layer.key != edited.key) | (layer.value != edited.value)
    return changed.any(dim=-1).any(dim=1).numpy().T


def _slot_of(position: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The slot in `held` of each position, −1 where it is not held."""
    slot = np.searchsorted(held, position)
    return np.where(np.isin(position, held), slot, -1)
