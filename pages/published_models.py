"""Published models: what their caches cost, what decides it, and what fits, side by side."""

import json

import streamlit as st

from kvcore.figures import published as figures
from kvcore.figures import published_layers, published_work
from kvcore.published.formats import FORMATS
from kvcore.published.sizes import CONVENTIONS
from kvcore.studies.published_curves import knees
from kvcore.studies.published_models import (
    MOST_BATCH,
    MOST_CONTEXT,
    MOST_DEVICES,
    MOST_MEMORY,
    MOST_PARAMETERS,
    WEIGHT_BITS,
    Config,
)
from kvcore.studies.published_result import Result
from kvcore.units import short_bytes, short_decimal
from pages.common import cached, export, model_choice, nav
from pages.common.controls import Controls, plain, refuse

controls = Controls("pub")
default = Config()

SLOTS = {"model": "Model", "second": "Compare with", "third": "Third model", "fourth": "Fourth model"}
CONTEXTS = sorted({1 << power for power in range(24)} | {n * 10**power for n in (1, 2, 5) for power in range(2, 7)})


def choices(*slots: str) -> dict[str, str]:
    """Select boxes beside each other, and what each gives."""
    texts = {}
    for column, field in zip(st.columns(len(slots)), slots, strict=True):
        with column:
            chosen = model_choice.choose(controls, field, SLOTS[field], getattr(default, field))
            texts[field] = model_choice.given(controls, field, chosen)
    return texts


def more_settings() -> tuple[dict[str, str], dict[str, int | str]]:
    """Further models, and everything but the context that a size is asked for."""
    with st.expander("More models, batch, number format, devices"):
        texts, found = choices("third", "fourth"), {}
        columns = st.columns(4)
        with columns[0]:
            found["batch"] = controls.number("batch", "Sequences at once", 1, MOST_BATCH, default.batch)
        with columns[1]:
            found["format"] = controls.choice("format", "Number format", tuple(FORMATS), default.format)
        with columns[2]:
            found["convention"] = controls.choice("convention", "Convention", tuple(CONVENTIONS), default.convention)
        with columns[3]:
            found["devices"] = controls.number("devices", "Devices", 1, MOST_DEVICES, default.devices)
        said = f"{found['format']}: {FORMATS[found['format']].sentence}. {found['convention']}: "
        st.caption(f"{said}{CONVENTIONS[found['convention']]}.")
    return texts, found


def work_settings(texts: dict[str, str]) -> dict[str, int]:
    """Prompt, memory, weights and hardware, for the views of work and of what fits."""
    with st.expander("Prompt, memory, weights, hardware"):
        found = {}
        numbers = [
            ("prompt", "Prompt, tokens", 1, MOST_CONTEXT),
            ("new_tokens", "New tokens", 1, MOST_CONTEXT),
            ("memory", "Memory of a device, GiB", 1, MOST_MEMORY),
            ("peak_tflops", "Peak, TFLOP/s", 0, 1_000_000),
            ("bandwidth", "Bandwidth, GB/s", 0, 1_000_000_000),
        ]
        columns = [*st.columns(3), *st.columns(3)]  # row by row, which is also their order on a phone
        for column, (field, label, low, high) in zip(columns, numbers, strict=False):
            with column:
                found[field] = controls.number(field, label, low, high, getattr(default, field))
        with columns[-1]:
            found["weight_bits"] = controls.choice("weight_bits", "Bits a weight", WEIGHT_BITS, default.weight_bits)
        shown = [field for field, text in texts.items() if text]
        for column, field in zip(st.columns(max(1, len(shown))), shown, strict=False):
            with column:
                name = "parameters" if field == "model" else f"{field}_parameters"
                label = f"Parameters of the {'first' if field == 'model' else field} model, millions"
                found[name] = controls.number(name, label, 0, MOST_PARAMETERS, 0)
        st.caption(
            "The first hardware figures are those printed for one A100; 0 leaves a figure out. The peak is the dense"
            " one of the format in use, for all devices together."
        )
    return found


def metrics(result: Result) -> None:
    """The first model's numbers, in units of 1024 and below them in units of 1000."""
    row = result.side_by_side().iloc[0]
    shown = {"Cache": "cache bytes"}
    if knees(result.models[0], result.config.convention):
        shown |= {"A token, no window full": "bytes a token", "One more token now": "bytes of one more token"}
    else:
        shown |= {"Each token": "bytes a token"}
    if row["bytes if all were full"] != row["cache bytes"]:
        shown |= {"If all layers were full": "bytes if all were full"}
    with st.container(horizontal=True):
        for label, column in shown.items():
            value = int(row[column])
            st.metric(label, short_bytes(value), short_decimal(value), delta_color="off", delta_arrow="off", width=160)


def by_layer(result: Result) -> None:
    """A strip a model, and the layers in runs."""
    letters = {kind: published_layers.LOOK[kind][0] for model in result.models for kind in model.kinds}
    st.markdown(
        "A cell is a layer, numbered from 0, read from left to right. "
        + ", ".join(f"{letter} {kind}: {published_layers.KINDS[kind]}" for kind, letter in letters.items())
        + "."
    )
    for number, (model, taken) in enumerate(zip(result.models, result.sizes, strict=True)):
        reading = result.layers_reading.split("\n\n")[number]
        st.info(plain(reading), icon=":material/menu_book:")
        table = result.layers()
        export.chart(
            published_layers.strip(model, taken),
            f"pub_strip_{number + 1}",
            f"The layers in order, one cell each, by what they keep. {reading}",
            lambda table=table, model=model: table[table["model"] == model.name],
            result.arrays,
        )


def with_and_without(result: Result) -> None:
    """FLOPs by part, and a decode step."""
    config = result.config
    st.info(plain(result.work_reading), icon=":material/menu_book:")
    st.markdown(
        f"A prompt of {config.prompt:,} tokens and {config.new_tokens:,} new ones, {config.batch:,} at once. One"
        " multiply-add is 2 FLOPs; scores count what is allocated, masked ones too. These are counts, not a speed-up."
    )
    export.chart(
        published_work.flops(result),
        "pub_flops",
        f"FLOPs by part on a log axis, with the cache and by prefix recomputation. {result.work_reading}",
        result.work,
        result.arrays,
    )
    st.info(plain(result.step_reading), icon=":material/menu_book:")
    copies = " Keys and values count once here, also where several devices hold copies." if config.devices > 1 else ""
    st.markdown(f"The times are the least that the given figures allow, not what a run takes.{copies}")
    export.table(result.decode_steps(), "pub_step", f"One row a model. {result.step_reading}", result.arrays)


def what_fits(result: Result) -> None:
    """Sequences against context, and both answers."""
    st.info(plain(result.fits_reading), icon=":material/menu_book:")
    st.markdown(
        "Counted are keys and values, fixed states of known size, and weights where parameters are given, dealt out"
        " evenly to the devices. Activations and what a framework takes for itself are not."
    )
    export.chart(
        figures.sequences(result),
        "pub_sequences",
        f"Sequences that fit against the context of each, on log axes. {result.fits_reading}",
        lambda: result.tables()["sequences"],
        result.arrays,
    )
    export.table(result.what_fits(), "pub_fits", f"One row a model. {result.fits_reading}", result.arrays)


def rules(result: Result) -> None:
    """Where each fact came from."""
    st.markdown(
        "How: *read* from the configuration, *absent* there and assumed by the family's own code, *null* there,"
        " *derived* from other facts, or *generic* where the family is not known."
    )
    table = result.rules()
    for number, model in enumerate(result.models, start=1):
        st.markdown(f"**{plain(model.name)}**")
        own = table[table["model"] == model.name].drop(columns="model")
        export.table(own, f"pub_rules_{number}", f"The rules that fired for {model.name}.", result.arrays)
        if model.source:
            st.markdown("Sources:\n\n" + "\n".join(f"- {plain(source)}" for source in model.source))
        if unconfirmed := result.unconfirmed(model):
            st.markdown(f"No source confirms: {plain(', '.join(unconfirmed))}.")


def conventions(result: Result) -> None:
    """The same model under each convention."""
    st.info(plain(result.conventions_reading), icon=":material/menu_book:")
    st.markdown("\n".join(f"- *{name}*: {sentence}." for name, sentence in CONVENTIONS.items()))
    export.chart(
        published_layers.conventions(result),
        "pub_conventions",
        f"Bytes under four conventions. {result.conventions_reading}",
        result.conventions,
        result.arrays,
    )
    sizes = result.conventions_side_by_side()
    export.table(sizes, "pub_convention_sizes", f"One row a model. {result.conventions_reading}", result.arrays)


def size(result: Result) -> None:
    """The sentence, the first model's numbers, the curve, and all models side by side."""
    st.info(plain(result.answer), icon=":material/menu_book:")
    if result.beside:
        st.caption(plain(result.beside))
    if len(result.models) > 1:
        st.markdown(f"**{plain(result.models[0].name)}**")
    metrics(result)
    export.chart(
        figures.payload(result),
        "pub_payload",
        f"Bytes of the cache against context on log axes. {result.growth_reading}",
        lambda: result.tables()["payload"],
        result.arrays,
    )
    st.markdown(plain(result.growth_reading))
    export.table(result.side_by_side(), "pub_models", f"One row a model. {result.answer}", result.arrays)
    st.download_button(
        "JSON of every model, layer by layer",
        lambda: json.dumps(result.to_json(), indent=1),
        "published_models.json",
        "application/json",
        key="pub_json",
        on_click="ignore",
    )


def details(result: Result) -> None:
    """The views, each computed when it is open."""
    views = {
        "By layer": by_layer,
        "With and without the cache": with_and_without,
        "What fits": what_fits,
        "Rules": rules,
        "Conventions": conventions,
    }
    tabs = st.tabs(list(views), key=controls.key("view"), on_change="rerun", bind="query-params")
    for tab, view in zip(tabs, views.values(), strict=True):
        if tab.open:
            with tab:
                view(result)


def command(config: Config) -> None:
    """The page's numbers again; a file is read from disk, and has a command of its own for its layers and rules."""
    shell = model_choice.commands(export.command_line("published_models", config), config)
    if len(shell) > 1:
        st.caption(
            "From a shell, with the path of each pasted or uploaded config.json in place of FILE: the same numbers and"
            " sentences, then one file layer by layer, with its rules."
        )
    else:
        st.caption("The same numbers and sentences from a shell:")
    for line in shell:
        st.code(line, language="bash", wrap_lines=True)


nav.header("published_models")
texts = choices("model", "second")
context = controls.stops("context", "Context, in tokens", CONTEXTS, default.context)
answer = st.container()
more, asked = more_settings()
texts |= more
asked |= work_settings(texts)
if not any(texts.values()):
    with answer:
        st.caption(f"Until a model can be read, the page shows {default.model}.")
    texts["model"] = default.model
try:
    result = cached.published_models(Config(**texts, context=context, **asked))
except ValueError as error:
    with answer:
        refuse(error)
else:
    with answer:
        size(result)
    details(result)
    command(result.config)
