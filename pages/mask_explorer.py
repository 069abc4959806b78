"""Mask explorer: which keys each new query reads, what a wrong mask does, and whether the future leaks."""

import streamlit as st

from kvcore.cells import Cells, inside, parse_cells, write_cells
from kvcore.figures import mask_explorer as figures
from kvcore.studies.mask_explorer import HEADS, MAX_CACHED, MAX_LAYERS, MAX_NEW, MAX_SINKS, NUMBERINGS, Config
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("mask")
default = Config()
FLIPPED = controls.key("flipped")
CHART = "mask_cells"
SIDE_BY_SIDE = 32
"""Up to so many keys, two masks fit beside each other."""


def flipped_now() -> Cells:
    """The cells in the text field; text that is not cells counts as none, as it does on the page."""
    try:
        return parse_cells(st.session_state.get(FLIPPED, ""))
    except ValueError:
        return frozenset()


def flip(cells: Cells) -> None:
    st.session_state[FLIPPED] = write_cells(flipped_now() ^ cells)


def flip_clicked() -> None:
    points = st.session_state[f"{CHART}_chart"]["selection"]["points"]
    flip(frozenset((int(point["y"]), int(point["x"])) for point in points))


def reset() -> None:
    st.session_state[FLIPPED] = ""


def drop_outside(n_cached: int, n_new: int) -> None:
    """After a change of size, cells that are now outside leave the text field and the address."""
    cells = flipped_now()
    if kept := cells ^ inside(cells, n_cached, n_new):
        st.session_state[FLIPPED] = write_cells(cells - kept)


nav.header("mask_explorer")
sizes, rules = st.columns(2), st.columns(4, vertical_alignment="bottom")
with sizes[0]:
    n_cached = controls.slider("n_cached", "Cached positions", 0, MAX_CACHED, default.n_cached)
with sizes[1]:
    n_new = controls.slider("n_new", "New tokens", 1, MAX_NEW, default.n_new)
length = n_cached + n_new
with rules[0]:
    window = controls.optional("window", "Window W (keys, own included)", 1, MAX_CACHED + MAX_NEW, default.window)
with rules[1]:
    n_sinks = controls.slider("n_sinks", "Attention sinks", 0, MAX_SINKS, default.n_sinks)
with rules[2]:
    numbering = controls.choice(
        "numbering", "Query rows numbered", NUMBERINGS, default.numbering,
        help="`from 0` is a deliberate mistake: the rows of the new call are counted from 0 in the mask, as if"
        " nothing were cached.",
    )  # fmt: skip
with rules[3]:
    causal = controls.toggle("causal", "Causal mask", default.causal, help="Off is a deliberate mistake.")

picture = st.container()

drop_outside(n_cached, n_new)
by_hand = st.columns([2, 2, 3, 4], vertical_alignment="bottom")
middle = Config(n_cached=n_cached, n_new=n_new)
with by_hand[0]:
    row = controls.number("row", "Row (query)", n_cached, length - 1, default.row, placeholder=str(middle.shown_row))
with by_hand[1]:
    key = controls.number("key", "Key", 0, length - 1, 0)
row_shown = middle.shown_row if row is None else row
with by_hand[2], st.container(horizontal=True):
    st.button("Flip cell", key="mask_flip", on_click=flip, args=(frozenset({(row_shown, key)}),))
    st.button("Reset", key="mask_reset", on_click=reset)
with by_hand[3]:
    flipped = controls.text(
        "flipped", "Flipped cells", default.flipped, placeholder="5:3,6:7 (query:key)",
        help="Click a square, or choose row and key and flip; cells that a change of size puts outside are dropped.",
    )  # fmt: skip
text_form = st.container()

with st.expander("The decoder under this mask"):
    model = {}
    for column, (field, label, options) in zip(
        st.columns(4),
        [
            ("n_layers", "Layers", tuple(range(1, MAX_LAYERS + 1))),
            ("n_heads", "Heads", HEADS),
            ("n_kv_heads", "KV heads", HEADS),
            ("seed", "Seed", tuple(range(100))),
        ],
        strict=True,
    ):
        with column:
            model[field] = controls.choice(field, label, options, getattr(default, field))

movement = st.container()
st.subheader("Attention weights under this mask")
look = st.columns(2)
with look[0]:
    layer = controls.number("layer", "Layer", 1, model["n_layers"], default.layer)
with look[1]:
    head = controls.number("head", "Head", 1, model["n_heads"], default.head)
attention = st.container()
st.subheader("Does the future leak?")
edit_from = controls.number(
    "edit_from", "Edit the tokens from position", 0, length - 1, default.edit_from, placeholder=str(middle.first_edited)
)

try:
    parse_cells(flipped)
except ValueError as error:
    with picture:
        refuse(error)
    flipped = ""
try:
    result = cached.mask_explorer(
        Config(
            n_cached=n_cached, n_new=n_new, window=window, n_sinks=n_sinks, causal=causal, numbering=numbering,
            flipped=flipped, row=row, layer=layer, head=head, edit_from=edit_from, **model,
        )
    )  # fmt: skip
except ValueError as error:
    with picture:
        refuse(error)
    st.stop()

tables = result.tables
with picture:
    st.info(result.mask_reading, icon=":material/menu_book:")
    if result.refusal:
        refuse(ValueError(result.refusal))
    beside = length <= SIDE_BY_SIDE
    places = [st.container()] if result.is_right else st.columns(2) if beside else [st.container(), st.container()]
    with places[0]:
        deliberate = "" if result.is_right else ": deliberately not the right one"
        st.markdown(f"**The mask that is run{deliberate}.** Click a square to flip it.")
        export.chart(
            figures.mask(result),
            CHART,
            f"The mask of {n_new} new queries over {length} keys. {result.mask_reading}",
            lambda: tables()["cells"],
            result.arrays,
            on_select=flip_clicked,
            selection_mode="points",
        )
    if not result.is_right:
        with places[1]:
            st.markdown("**The right mask**, with the cells that differ marked.")
            export.chart(
                figures.right_mask(result),
                "mask_right",
                f"The right mask of the same queries and keys; {result.mask_reading}",
                lambda: tables()["rows"],
                result.arrays,
            )
with text_form:
    st.code(result.text, language=None, height=min(300, 40 + 24 * n_new))

with movement:
    st.subheader("Which positions move")
    st.markdown(
        f"The mask goes into all {model['n_layers']} layers and all heads of the decoder; the cached positions were"
        " computed before, under the right mask. Largest difference of the hidden states at each position."
    )
    export.chart(
        figures.movement(result),
        "mask_movement",
        f"How far each position moves, on a log axis. {result.mask_reading}",
        lambda: tables()["movement"],
        result.arrays,
    )
with attention:
    export.chart(
        figures.weights(result),
        "mask_weights",
        f"Attention weights of layer {layer}, head {head}, from 0 to 1; masked cells are hollow.",
        lambda: tables()["weights"],
        result.arrays,
    )

st.markdown(
    f"Each token from position {result.config.first_edited} on becomes (token + 1) mod 32. A position before it must"
    " not notice. Leaving the causal mask out is a deliberate mistake."
)
st.info(result.leak_reading, icon=":material/menu_book:")
export.chart(
    figures.future_edit(result),
    "mask_future",
    f"How far each position moves when later tokens are edited, on a log axis. {result.leak_reading}",
    lambda: tables()["future edit"],
    result.arrays,
)
