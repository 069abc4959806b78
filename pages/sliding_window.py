"""Sliding window: the cache of W slots beside the last W tokens recomputed, what the slots have seen, and why."""

import streamlit as st

from kvcore.figures import sliding_window as figures
from kvcore.studies.sliding_window import MAX_LAYERS, MAX_LENGTH, MAX_WINDOW, Config
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("slide")
default = Config()
SHORTEST = default.step + 1
"""So that the step's default exists at every length: an address leaves out what stands at its default."""

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
st.subheader("What the slots know")
step = controls.slider("step", "Step: the position p that is decoded", 0, length - 1, default.step)

try:
    result = cached.sliding_window(
        Config(window=window, n_layers=n_layers, crop=crop, step=step, length=length, seed=seed)
    )
except ValueError as error:
    with answer:
        refuse(error)
    st.stop()

tables, deliberate = result.tables, "" if result.cropping_is_right else " and so, with this C, is recomputing"
with answer:
    st.info(result.answer, icon=":material/menu_book:")
with differences:
    st.markdown(
        "Largest difference of the hidden states from the windowed full path. Resetting positions is a deliberate"
        f" mistake{deliberate}."
    )
    export.chart(
        figures.differences(result),
        "slide_differences",
        f"Difference from the windowed full path at every position, on a log axis. {result.answer}",
        lambda: tables()["differences"],
        result.arrays,
    )

st.markdown(
    f"{result.slots_reading} Marked are the hidden states that reach the output of position {step}, followed back along"
    " attention weights that are not 0. A slot of the next layer is made from each state in the box; what stands left of"
    " the dashed line is never seen by the recomputation."
)
export.chart(
    figures.cone(result),
    "slide_cone",
    f"Positions against layers: hidden states that reach the output of position {step}. {result.slots_reading}",
    lambda: tables()["cone"],
    result.arrays,
)
st.markdown(
    "The entries this step attends over, before and after eviction. *Has seen*: measured by editing each token."
)
export.table(tables()["slots"], "slide_slots", f"One row an entry. {result.slots_reading}", result.arrays)

st.subheader("Which raw tokens move the output")
st.info(result.reach_reading, icon=":material/menu_book:")
export.chart(
    figures.movement(result),
    "slide_reach",
    f"How far editing each raw token moves the output of position {step}, on a log axis. {result.reach_reading}",
    lambda: tables()["reach"],
    result.arrays,
)

st.subheader("How many raw tokens are enough")
st.info(result.sweep_reading, icon=":material/menu_book:")
export.chart(
    figures.crops(result),
    "slide_crops",
    f"Difference against the number of raw tokens recomputed, on a log axis. {result.sweep_reading}",
    lambda: tables()["crops"],
    result.arrays,
)
