"""Mask explorer: which keys each new query reads, what a wrong mask does, and whether the future leaks."""

import streamlit as st

from kvcore.cells import Cells, inside, parse_cells, write_cells
from kvcore.figures import mask_explorer as figures
from kvcore.studies.mask_explorer import HEADS, MAX_CACHED, MAX_LAYERS, MAX_NEW, MAX_SEED, MAX_SINKS, NUMBERINGS, Config
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("mask")
default = Config()
FLIPPED = controls.key("flipped")
CHART = "mask_cells"
MIDDLE = "middle"  # the middle new row, where none is chosen
VIEWS = ["Movement", "Attention weights", "Future edit"]
SIDE_BY_SIDE = 32  # up to so many keys, two masks fit beside each other


def flipped_now() -> Cells | None:
    """The cells in the text field; None where it cannot be read, and then it stays as it is."""
    try:
        return parse_cells(st.session_state.get(FLIPPED, ""))
    except ValueError:
        return None


def flip(cells: Cells) -> None:
    """Nothing happens to a text that cannot be read: the page says what is wrong with it."""
    if (now := flipped_now()) is not None:
        st.session_state[FLIPPED] = write_cells(now ^ cells)


def flip_clicked() -> None:
    points = st.session_state[f"{CHART}_chart"]["selection"]["points"]
    flip(frozenset((int(point["y"]), int(point["x"])) for point in points))


def reset() -> None:
    st.session_state[FLIPPED] = ""


def drop_outside(n_cached: int, n_new: int) -> None:
    """After a change of size, cells that are now outside leave the text field and the address."""
    cells = flipped_now() or frozenset()
    if kept := cells ^ inside(cells, n_cached, n_new):
        st.session_state[FLIPPED] = write_cells(cells - kept)


nav.header("mask_explorer")
with st.container(horizontal=True):
    n_cached = controls.slider("n_cached", "Cached positions", 0, MAX_CACHED, default.n_cached)
    n_new = controls.slider("n_new", "New tokens", 1, MAX_NEW, default.n_new)
length = n_cached + n_new
with st.container(horizontal=True, vertical_alignment="bottom"):
    window = controls.optional(
        "window",
        "Window (keys)",
        1,
        MAX_CACHED + MAX_NEW,
        default.window,
        help="A query sees itself and the W − 1 keys before it.",
    )
    n_sinks = controls.slider(
        "n_sinks",
        "Attention sinks",
        0,
        MAX_SINKS,
        default.n_sinks,
        help="The first keys, which a window never hides; without a window they change nothing.",
    )
    numbering = controls.choice(
        "numbering", "Rows numbered", NUMBERINGS, default.numbering,
        help="`from 0` is a deliberate mistake: the rows of the new call are counted from 0 in the mask, as if"
        " nothing were cached.",
    )  # fmt: skip
    causal = controls.toggle("causal", "Causal", default.causal, help="Off is a deliberate mistake.")

picture = st.container()

drop_outside(n_cached, n_new)
start = Config(n_cached=n_cached, n_new=n_new)
with st.container(horizontal=True, vertical_alignment="bottom"):
    row = controls.optional("row", "Row (query)", n_cached, length - 1, default.row, none=MIDDLE)
    row_shown = start.shown_row if row is None else row
    key = controls.number("key", "Key", 0, length - 1, 0)
    st.button(f"Flip {row_shown}:{key}", key="mask_flip", on_click=flip, args=(frozenset({(row_shown, key)}),))
    st.button("Reset", key="mask_reset", on_click=reset)
    flipped = controls.text(
        "flipped", "Flipped cells (query:key)", default.flipped, placeholder="5:3,6:7",
        help="Click a square, or choose row and key and flip; cells that a change of size puts outside are dropped.",
    )  # fmt: skip
text_form = st.container()

with st.expander("The decoder under this mask"), st.container(horizontal=True):
    model = {
        "n_layers": controls.number("n_layers", "Layers", 1, MAX_LAYERS, default.n_layers),
        "n_heads": controls.choice("n_heads", "Heads", HEADS, default.n_heads),
        "n_kv_heads": controls.choice("n_kv_heads", "KV heads", HEADS, default.n_kv_heads),
        "seed": controls.number("seed", "Seed", 0, MAX_SEED, default.seed),
    }

movement, attention, future = st.tabs(VIEWS, key=controls.key("view"), on_change="rerun", bind="query-params")
with attention, st.container(horizontal=True):
    layer = controls.number("layer", "Layer", 1, model["n_layers"], default.layer)
    head = controls.number("head", "Head", 1, model["n_heads"], default.head)
with future:
    edit_from = controls.optional(
        "edit_from", "Edit the tokens from position", 0, length - 1, default.edit_from, none=MIDDLE
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
        wrong = "" if result.is_right else ", deliberately wrong"
        st.markdown(f"**The mask that is run**{wrong}: click to flip.")
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
            st.markdown("**The right mask**, differing cells marked.")
            export.chart(
                figures.right_mask(result),
                "mask_right",
                f"The right mask of the same queries and keys; {result.mask_reading}",
                lambda: tables()["rows"],
                result.arrays,
            )
with text_form:
    st.code(result.text, language=None, height=min(300, 40 + 24 * n_new))

if movement.open:
    with movement:
        st.markdown(
            f"The mask goes into all heads of all {model['n_layers']} layers; cached positions were computed before,"
            " under the right mask. Largest difference of the hidden states at each position."
        )
        export.chart(
            figures.movement(result),
            "mask_movement",
            f"How far each position moves, on a log axis. {result.mask_reading}",
            lambda: tables()["movement"],
            result.arrays,
        )
if attention.open:
    with attention:
        st.markdown(
            "How much of each visible key a query takes: a row sums to 1. Hollow or hatched cells are masked, not 0."
        )
        export.chart(
            figures.weights(result),
            "mask_weights",
            f"Attention weights of layer {layer}, head {head}, from 0 to 1; masked cells are hollow or hatched, not 0.",
            lambda: tables()["weights"],
            result.arrays,
        )
if future.open:
    with future:
        st.markdown(
            f"Each token from position {result.config.first_edited} on becomes (token + 1) mod"
            f" {result.config.decoder.vocab_size}. A position before it must not notice. Leaving the causal mask out"
            " is a deliberate mistake."
        )
        st.info(result.leak_reading, icon=":material/menu_book:")
        export.chart(
            figures.future_edit(result),
            "mask_future",
            f"How far each position moves when later tokens are edited, on a log axis. {result.leak_reading}",
            lambda: tables()["future edit"],
            result.arrays,
        )

export.command("mask_explorer", result.config)
