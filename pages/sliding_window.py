"""Sliding window: the cache of W slots beside the last W tokens recomputed, what the slots have seen, and why."""

import streamlit as st

from kvcore.figures import sliding_window as figures
from kvcore.figures.reach_cone import cone
from kvcore.studies.sliding_window import MAX_LAYERS, MAX_LENGTH, MAX_WINDOW, Config
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("slide")
default = Config()
# The step's default exists at every length: an address leaves out what stands at its default.
SHORTEST = default.step + 1

nav.header("sliding_window")
left, middle, right = st.columns(3)
with left:
    window = controls.slider("window", "Window W (keys, own included)", 1, MAX_WINDOW, default.window)
with middle:
    n_layers = controls.slider("n_layers", "Layers L", 1, MAX_LAYERS, default.n_layers)
with right:
    crop = controls.slider("crop", "Raw tokens recomputed C", 1, MAX_LENGTH, default.crop)
answer = st.container()
with st.expander("Tokens and seed"):
    left, right = st.columns(2)
    with left:
        length = controls.slider("length", "Tokens T", SHORTEST, MAX_LENGTH, default.length)
    with right:
        seed = controls.slider("seed", "Seed of the weights", 0, 99, default.seed)
differences = st.container()
if st.session_state.get(controls.key("step"), 0) >= length:
    # Streamlit would show the default now and the old step again once it fits, behind an address that says otherwise.
    del st.session_state[controls.key("step")]
step = controls.slider("step", "Step: the position p that is decoded", 0, length - 1, default.step)

try:
    result = cached.sliding_window(
        Config(window=window, n_layers=n_layers, crop=crop, step=step, length=length, seed=seed)
    )
except ValueError as error:
    with answer:
        refuse(error)
    st.stop()

tables = result.tables
with answer:
    st.info(result.answer, icon=":material/menu_book:")
with differences:
    deliberate = "" if result.cropping_is_right else " and so, with this C, is recomputing"
    st.markdown(
        "Largest difference of the hidden states, float64, from the windowed full path. Resetting positions is a"
        f" deliberate mistake{deliberate}."
    )
    export.chart(
        figures.differences(result),
        "slide_differences",
        f"Difference from the windowed full path at every position, on a log axis. {result.answer}",
        lambda: tables()["differences"],
        result.arrays,
    )

slots, reach, sweep = st.tabs(
    ["Slots", "Reach", "Crop sweep"],
    key=controls.key("view"),
    on_change="rerun",
    bind="query-params",
)
if slots.open:
    with slots:
        st.info(result.slots_reading, icon=":material/menu_book:")
        st.markdown(
            f"Solid marks are the hidden states that reach the output of position {step}, followed back along attention"
            " weights that are not 0. From each state in the box a slot of the next layer is made; what stands left of"
            " the dashed line the recomputation never sees."
        )
        export.chart(
            cone(result),
            "slide_cone",
            f"Positions against layers: hidden states that reach the output of position {step}. {result.slots_reading}",
            lambda: tables()["cone"],
            result.arrays,
        )
        st.markdown(
            "The entries this step attends over, with their slots before and after it. *Saw*: raw tokens whose editing"
            " changes the stored key or value."
        )
        export.table(tables()["slots"], "slide_slots", f"One row an entry. {result.slots_reading}", result.arrays)
if reach.open:
    with reach:
        st.info(result.reach_reading, icon=":material/menu_book:")
        export.chart(
            figures.movement(result),
            "slide_reach",
            f"How far editing each raw token moves output {step}, on a log axis. {result.reach_reading}",
            lambda: tables()["reach"],
            result.arrays,
        )
if sweep.open:
    with sweep:
        st.info(result.sweep_reading, icon=":material/menu_book:")
        export.chart(
            figures.crops(result),
            "slide_crops",
            f"Difference against the number of raw tokens recomputed, on a log axis. {result.sweep_reading}",
            lambda: tables()["crops"],
            result.arrays,
        )

export.command("sliding_window", result.config)
