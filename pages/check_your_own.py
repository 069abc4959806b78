"""Check your own: `verify` on a decoder of the lab, on the visitor's model by a template, and on saved outputs."""

import inspect

import streamlit as st

from kvcore.config import POSITIONS
from kvcore.figures import architectures
from kvcore.integrations import record
from kvcore.studies import own_words
from kvcore.studies.check_your_own import MAX_LENGTH, MAX_WINDOW, MIN_LENGTH, MISTAKES, Config, example
from kvcore.verification import saved_file, saving, template
from pages.common import cached, export, nav, verified
from pages.common.controls import Controls, plain, refuse

controls = Controls("own")
default = Config()

nav.header("check_your_own")
st.markdown(
    "Here `kvcore.verify` meets a decoder of the lab that stands in for yours. The tabs below the chart check your own."
)
fault = controls.choice("fault", "Deliberate mistake in the cache", MISTAKES, default.fault)
answer = st.container()
with st.expander("Decoder: positions, window, tokens, seed"):
    left, right = st.columns(2)
    with left:
        positions = controls.choice("positions", "Positions", POSITIONS, default.positions)
        length = controls.slider("length", "Tokens T", MIN_LENGTH, MAX_LENGTH, default.length)
    with right:
        window = controls.optional("window", "Window W", 1, MAX_WINDOW, default.window)
        seed = controls.slider("seed", "Seed of the weights", 0, 99, default.seed)

config, result = default, None
with answer:
    try:
        config = Config(fault=fault, positions=positions, window=window, length=length, seed=seed)
        with st.spinner("verify runs every check, and then the lab's own mistakes to compare with …"):
            result = cached.check_your_own(config)
        st.info(result.reading, icon=":material/menu_book:")
        verified.picture(result.report, "own_differences")
    except ValueError as error:
        refuse(error)

report, model, saved, published = st.tabs(
    ["Report", "Your model", "Saved outputs", "Published models"],
    key=controls.key("view"),
    on_change="rerun",
    bind="query-params",
)
if report.open and result is not None:
    with report:
        verified.ranking(result.report)
        verified.checks(result.report, "own_report")
if model.open:
    with model:
        st.markdown(
            "1. Write two functions around your model. `full(token_ids)` gives the outputs of all tokens,"
            " `(T, features)`, without a cache. `step(token_ids, cache)` gives `(outputs, cache)` for the new tokens"
            " alone; `cache` is `None` at the start.\n"
            "2. Put the lab's folder `kvcore` beside your code, `pip install -r requirements.txt`, and call"
            " `kvcore.verify(full, step, token_ids)` with ids of your own: different ones, 12 or more.\n"
            "3. Print the report. What it lists as *not tested* needs one more function; it says which."
        )
        st.markdown("To copy: this file runs as it stands and finds the line that is marked as a deliberate mistake.")
        source = inspect.getsource(template)
        st.code(source, language="python", height=420)
        st.download_button("my_model.py", source, "my_model.py", "text/x-python", key="own_template", on_click="ignore")
        st.markdown(
            "`python my_model.py` prints the report. `python -m kvcore verify my_model:make_model` does so too and"
            " exits with 0 where all is well, 1 at a fault and 2 for bad input. In a test, call"
            " `kvcore.testing.assert_cache_equivalent(*make_model())`."
        )
if saved.open:
    with saved:
        st.markdown(
            "Where the lab cannot run beside your model, save its outputs: `full`, and one array for each split of the"
            " tokens, named by its chunk sizes. This function needs NumPy alone."
        )
        st.code(inspect.getsource(saving), language="python", height=300)
        what = "right in every rule" if config.mistake is None else f"with the deliberate mistake {config.fault}"
        st.markdown(f"An example to try: the outputs of the decoder above, {plain(what)}.")
        st.download_button(
            "Example NPZ",
            lambda: example(config),
            "example_outputs.npz",
            "application/octet-stream",
            key="own_example",
            on_click="ignore",
        )
        uploaded = st.file_uploader(
            f"An NPZ of saved outputs, up to {saved_file.MAX_BYTES // 2**20} MB, {saved_file.MAX_TOKENS} tokens and"
            f" {saved_file.MAX_SPLITS} splits",
            type="npz",
            key=controls.key("file"),
            max_upload_size=saved_file.MAX_BYTES // 2**20,
            help="Only numbers are read: nothing in the file is run, and pickled objects are refused.",
        )
        if uploaded is None:
            st.caption(
                "What you upload is not part of the address. From a shell: `python -m kvcore verify --saved FILE`."
            )
        else:
            try:
                found = cached.saved_report(uploaded.getvalue())
                said = f"{own_words.verdict(found)} {own_words.suspects(found)}".strip()
                st.info(said, icon=":material/menu_book:")
                verified.picture(found, "own_saved")
                verified.ranking(found)
                verified.checks(found, "own_saved_report")
            except ValueError as error:
                refuse(error)
if published.open:
    with published:
        stored = record.load()
        marks = ", ".join(f"{mark} {verdict}" for verdict, (mark, _) in architectures.LOOK.items())
        table = record.to_frame(stored)
        st.info(record.in_words(stored), icon=":material/inventory_2:")
        st.markdown(
            "Recorded, and not computed here: what `verify` said of the cache of transformers, for small random-weight"
            f" models of each architecture. The command is `{stored['made_by']}`. Marks: {marks}."
        )
        export.chart(
            architectures.figure(table),
            "own_architectures",
            f"Architectures against cache and attention; each cell holds a verdict. {record.in_words(stored)}",
            lambda: table,
            lambda: record.arrays(table),
        )
        st.markdown("**Where it is wrong**\n\n" + "\n".join(f"- {plain(line)}" for line in record.wrong(stored)))

if result is not None:
    export.command("check_your_own", config)
