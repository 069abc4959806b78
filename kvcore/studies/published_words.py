"""Published models in words: each sentence is made from one result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvcore.published.layer import Description
from kvcore.published.sizes import CONVENTIONS, Size, bytes_per_token
from kvcore.published.words import decides, guessed
from kvcore.published.work import parameters
from kvcore.studies import published_curves as curves
from kvcore.studies.published_fit import Fits
from kvcore.units import both_units, context_in_words, plural, short_bytes

if TYPE_CHECKING:
    from kvcore.studies.published_result import Result


def answer(result: Result) -> str:
    """What decides each model's cache, one paragraph a model, and which keeps least."""
    said = [f"{model.name}: {decides(model, result.config.ask)} {guessed(model)}".strip() for model in result.models]
    return "\n\n".join([*said, *_least(result)])


def _least(result: Result) -> Iterator[str]:
    """How far apart the models are, where there are more than one."""
    taken = {model.name: size.bytes for model, size in zip(result.models, result.sizes, strict=True)}
    if len(taken) < 2:
        return
    least, most = min(taken, key=taken.get), max(taken, key=taken.get)
    if taken[least] == taken[most]:
        yield "All of them take the same."
    elif taken[least] == 0:
        yield f"{least} keeps no keys and values; {most} takes most."
    elif taken[most] < 1.05 * taken[least]:
        yield "All of them take about the same."
    else:
        others = "the other" if len(taken) == 2 else f"{most}, which takes most"
        yield f"{least} takes least, {taken[most] / taken[least]:.1f} times less than {others}."


def beside(result: Result) -> str:
    """What the bytes do not hold: fixed states, contexts that a file does not allow, parts on other devices."""
    said = [*_states(result), *_beyond(result)]
    ask = result.config.ask
    if ask.devices > 1:
        listed = ", ".join(
            f"{both_units(size.bytes_per_device)} for {model.name}"
            for model, size in zip(result.models, result.sizes, strict=True)
        )
        said.append(f"On each of {ask.devices} devices: {listed}; the cache above is that of all devices together.")
    return " ".join(said)


def _states(result: Result) -> Iterator[str]:
    for model, size in zip(result.models, result.sizes, strict=True):
        if size.fixed_state_bytes is None:
            yield f"{model.name} also holds a state of fixed size; how large it is its file does not tell."
        elif size.fixed_state_bytes:
            yield (
                f"{model.name} also holds a state of fixed size, {both_units(size.fixed_state_bytes)}, which is not"
                " in the cache above."
            )


def _beyond(result: Result) -> Iterator[str]:
    context = result.config.context
    for model in result.models:
        if model.max_context and context > model.max_context:
            yield (
                f"The file of {model.name} stops at {context_in_words(model.max_context)}; beyond that the bytes are"
                " arithmetic only."
            )


def growth(result: Result) -> str:
    """What the curve shows: what one token costs before and after the windows are full."""
    ask = result.config.ask
    return "\n\n".join(f"{model.name}: {_growth(model, ask)}" for model in result.models)


def _growth(model: Description, ask) -> str:
    first = bytes_per_token(model, ask.format, ask.convention)
    if not first:
        return "no token adds anything."
    now, knees = curves.one_more(model, ask), curves.knees(model, ask.convention)
    if not knees:
        return f"each token adds {both_units(first)}, at every context."
    full = f"while no window is full each token adds {both_units(first)}"
    last = f"from {context_in_words(knees[-1])} on"
    if ask.context < knees[0]:
        return f"{full}, as here; windows are full from {context_in_words(knees[0])} on."
    adds = both_units(now) if now else "nothing more"
    return f"{full}; {'here' if ask.context < knees[-1] else last} it adds {adds}."


def layers(model: Description, size: Size) -> str:
    """Which kind of layer holds the bytes."""
    shares = {
        kind: sum(layer.bytes for layer in size.layers if layer.kind == kind)
        for kind in dict.fromkeys(layer.kind for layer in size.layers)
    }
    holding = {kind: each for kind, each in shares.items() if each}
    if not holding:
        return f"{model.name}: no layer keeps keys or values."
    if len(shares) == 1:
        (kind,) = shares
        if model.n_layers == 1:
            return f"{model.name}: its only layer is {kind} and keeps {both_units(size.bytes)}."
        return f"{model.name}: all {model.n_layers:,} layers are {kind} and keep {_each(size)}."
    listed = ", ".join(
        f"the {model.kinds[kind]} {kind} {'hold' if model.kinds[kind] > 1 else 'holds'}"
        f" {100 * each / size.bytes:.3g} % of the bytes"
        for kind, each in holding.items()
    )
    rest = {kind: count for kind, count in model.kinds.items() if kind not in holding}
    keep = "keeps" if sum(rest.values()) == 1 else "keep"
    none = f"; {' and '.join(f'{count} {kind}' for kind, count in rest.items())} {keep} nothing that grows"
    return f"{model.name}: of {plural(model.n_layers, 'layer')}, {listed}{none if rest else ''}."


def _each(size: Size) -> str:
    each = {layer.bytes for layer in size.layers}
    if len(each) == 1:
        return f"the same, {both_units(each.pop())} each"
    return f"from {both_units(min(each))} to {both_units(max(each))} each"


def fits(result: Result) -> str:
    return "\n\n".join(_fit(*each, result) for each in zip(result.models, result.fits, strict=True))


def _fit(model: Description, found: Fits, result: Result) -> str:
    ask = result.config.ask
    if found.sequences is None:
        return f"{model.name}: weights of {both_units(found.weights)} leave nothing of {short_bytes(found.memory)}."
    weights = (
        f"beside {both_units(found.weights)} of weights"
        if found.weights
        else f"with no weights counted{_weights_there_are(model)}"
    )
    unknown = any(layer.state_elements is None for layer in model.layers)
    many = f"{plural(found.sequences.number, 'sequence')} of {context_in_words(ask.context)}"
    fitting = "fits" if found.sequences.number == 1 else "fit"
    if not found.sequences.number:
        many, fitting = f"not one sequence of {context_in_words(ask.context)}", "fits"
    said = f"{model.name}: {weights}, {many} {fitting} into {short_bytes(found.memory)}"
    if found.sequences.unbounded:
        return f"{model.name}: what it keeps is so small that no number of sequences counted here fills the memory."
    said += " (its fixed state, whose size is not known, left out)" if unknown else ""
    over = both_units(found.weights + found.sequences.next_bytes - found.memory)
    said += f"; one{' more' if found.sequences.number else ''} would be {over} too much"
    each = "One sequence" if ask.batch == 1 else f"Each of {plural(ask.batch, 'sequence')}"
    if found.longest.unbounded:
        return f"{said}. {each} fits, however long it grows."
    if not found.longest.number:
        return f"{said}. {each} cannot hold even 1 token."
    grows = f"{said}. {each} may hold {plural(found.longest.number, 'token')}"
    if model.max_context and found.longest.number > model.max_context:
        grows += f", more than the {model.max_context:,} of its file"
    return f"{grows}."


def _weights_there_are(model: Description) -> str:
    """How many parameters the visitor could count, where the shapes tell."""
    known = parameters(model)
    return f" (its matrices hold {round(known / 1e6):,} million parameters)" if known else ""


def conventions(model: Description, result: Result) -> str:
    """Why tools print different sizes for the same model: layer by layer, against live."""
    said = []
    for name in list(CONVENTIONS)[1:]:
        total, different = curves.by_convention(model, result.config.ask, name)
        if not different:
            said.append(f"{name} is the same")
            continue
        shown = [
            f"{plural(count, 'layer')} {'count' if count > 1 else 'counts'} {there:,} {_what(tokens)} instead of"
            f" {live:,}"
            for count, live, there, tokens in different[:2]
        ]
        more = "" if len(different) < 3 else ", and more layers differ"
        said.append(f"{name} makes {both_units(total)}, since {' and '.join(shown)}{more}")
    return f"{model.name}, against live: {'; '.join(said)}."


def _what(tokens: bool) -> str:
    return "tokens" if tokens else "bytes a token"
