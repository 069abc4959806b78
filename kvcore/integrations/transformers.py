"""Any causal language model of Hugging Face transformers as the `full` and `step` that `kvcore.verify` takes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

CACHES = ("dynamic", "static", "model")
MAX_LENGTH = 256
_CACHE_NAMES = ("cache", "past_key_values", "cache_params")
"""What versions of the library, and models of one version, call the cache they take and return."""


class State(NamedTuple):
    """A library cache and the tokens it has seen; the library's own count is missing for state-space models."""

    cache: Any
    n_tokens: int


@dataclass(frozen=True, eq=False)
class Wrapped:
    """A model behind the calls of `kvcore.verify`: `verify(wrapped.full, wrapped.step, ids, **wrapped.hooks())`."""

    full: Callable[[Sequence[int]], torch.Tensor]
    """Token ids -> logits (T, vocab_size), computed without a cache."""
    step: Callable[[Sequence[int], State | None], tuple[torch.Tensor, State]]
    """New ids and a cache, None at first -> their logits (n, vocab_size) and the cache, which is changed in place."""
    vocab_size: int
    crop: Callable[[State, int], State] | None
    """A copy that keeps the first n tokens; ValueError where they are gone. None where the library offers no crop."""
    copy: Callable[[State], State] = copy.deepcopy
    in_place: bool = True

    def hooks(self) -> dict[str, Any]:
        """Keyword arguments for `kvcore.verify`."""
        hooks = {"vocab_size": self.vocab_size, "copy": self.copy, "in_place": self.in_place, "crop": self.crop}
        return {name: value for name, value in hooks.items() if value is not None}


def wrap(
    model: PreTrainedModel, cache: str = "dynamic", max_length: int = MAX_LENGTH, positions: bool = True
) -> Wrapped:
    """The model with the library's growing cache, its preallocated one of `max_length`, or what it makes by itself.

    A call gets ids, the cache, and their absolute positions, as `generate` gives them; without `positions` the model
    counts by itself. Masks are the library's own. The model is put in evaluation mode. Raises ValueError for an unknown
    cache, or one that the library cannot build for this model.
    """
    if cache not in CACHES:
        raise ValueError(f"cache {cache!r} is unknown; choose one of {', '.join(CACHES)}")
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise ValueError(f"max_length {max_length!r} must be a whole number from 1 on")
    torch, name = library("torch"), _cache_argument(model)
    model.eval()
    empty = _empty_cache(model, cache, max_length)

    def told(before, ids):
        return _positions(model, before, ids) if positions else {}

    @torch.no_grad()
    def full(token_ids):
        return model(input_ids=_batch(model, token_ids), use_cache=False).logits[0]

    @torch.no_grad()
    def step(token_ids, state):
        before = State(empty(), 0) if state is None else state
        ids = _batch(model, token_ids)
        n_tokens = before.n_tokens + ids.shape[1]
        if cache == "static" and n_tokens > max_length:
            raise ValueError(f"{n_tokens} tokens do not fit the static cache of {max_length}; raise max_length")
        out = model(input_ids=ids, use_cache=True, **{name: before.cache}, **told(before, ids))
        kept = _returned_cache(out, before.cache)
        if kept is None:
            raise ValueError(f"{type(model).__name__} was asked for a cache and returned none; give it one")
        return out.logits[0], State(kept, n_tokens)

    # A cache that cannot crop when it is new never can; some stop being able to when their window is full.
    crop = _crop if getattr(empty(), "is_croppable", False) else None
    return Wrapped(full, step, model.config.get_text_config(decoder=True).vocab_size, crop)


def library(name: str = "transformers") -> ModuleType:
    """The library, imported when it is first needed; ValueError with what to install where it is missing."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ValueError(f"this needs {name}, which is not installed: pip install {name}") from error


def sentence(error: BaseException) -> str:
    """The telling line of a library's message, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


def _batch(model: PreTrainedModel, token_ids: Sequence[int]) -> torch.Tensor:
    torch = library("torch")
    return torch.as_tensor(token_ids, dtype=torch.long, device=model.device).reshape(1, -1)


def _cache_argument(model: PreTrainedModel) -> str:
    """What this model calls the cache that it takes."""
    if not callable(getattr(model, "forward", None)) or not hasattr(model, "config"):
        raise ValueError(f"a model of transformers is wanted, not {type(model).__name__}")
    taken = inspect.signature(model.forward).parameters
    found = next((name for name in _CACHE_NAMES if name in taken), None)
    if found is None:
        raise ValueError(f"{type(model).__name__} takes no cache: none of {', '.join(_CACHE_NAMES)} in its call")
    return found


def _empty_cache(model: PreTrainedModel, cache: str, max_length: int) -> Callable[[], Any]:
    """What makes a new cache; it is called once here, so that a refusal comes early."""
    if cache == "model":
        return lambda: None
    transformers = library()

    def empty():
        if cache == "static":
            return transformers.StaticCache(config=model.config, max_cache_len=max_length)
        return transformers.DynamicCache(config=model.config)

    try:
        empty()
    except Exception as error:
        raise ValueError(f"no {cache} cache for {type(model).__name__}: {sentence(error)}") from error
    return empty


def _positions(model: PreTrainedModel, state: State, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Absolute positions by the names this model knows, if it does: ALiBi models count for themselves."""
    torch, taken = library("torch"), inspect.signature(model.forward).parameters
    position = torch.arange(state.n_tokens, state.n_tokens + ids.shape[1], device=ids.device)
    named = {"position_ids": position[None], "cache_position": position}
    return {name: value for name, value in named.items() if name in taken}


def _returned_cache(out: Any, given: Any) -> Any:
    """What the model returned; some return none and fill the one they were given."""
    return next((out[name] for name in _CACHE_NAMES if out.get(name) is not None), given)


def _crop(state: State, n_tokens: int) -> State:
    """On a copy, since the library crops in place."""
    if not 0 <= n_tokens <= state.n_tokens:
        raise ValueError(f"{n_tokens} tokens cannot be kept of {state.n_tokens}")
    kept = copy.deepcopy(state.cache)
    relative = "tokens_to_remove" in inspect.signature(kept.crop).parameters
    try:
        kept.crop(n_tokens - state.n_tokens if relative else n_tokens)
    except Exception as error:
        raise ValueError(
            f"the library refuses to crop {state.n_tokens} tokens to {n_tokens}: {sentence(error)}"
        ) from error
    return State(kept, n_tokens)
