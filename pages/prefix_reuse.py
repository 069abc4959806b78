"""Prefix reuse: the recorded conditions, and a request of one's own beside a stored prefix."""

import streamlit as st

from kvcore.config import POSITIONS, DecoderConfig
from kvcore.figures import prefix_reuse as figures
from kvcore.prefix_experiment import PREFIX
from kvcore.studies.prefix_reuse import MAX_LAYERS, MAX_SUFFIX, MAX_WINDOW, STORAGE, Config, parse_suffix
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("reuse")
default = Config()
VIEWS = ["The experiment", "Try it"]
AMOUNTS = (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 0.5, 1.0)
LAST_ID = DecoderConfig.vocab_size - 1


def asked_for() -> dict:
    """What the request has other than what was stored."""
    fields = {}
    left, right = st.columns(2)
    with left:
        fields["edit_at"] = controls.optional(
            "edit_at", "Edit the prefix at position", 0, len(PREFIX) - 1, default.edit_at
        )
    with right:
        fields["edit_to"] = controls.slider("edit_to", "Token id put there", 0, LAST_ID, default.edit_to)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        fields["weight"] = controls.choice(
            "weight", "Added to a weight", AMOUNTS, default.weight,
            help="To the first element of the first layer's W_K.",
        )  # fmt: skip
        fields["positions"] = controls.choice("positions", "Positions", POSITIONS, default.positions)
        fields["window"] = controls.optional("window", "Window W (keys)", 1, MAX_WINDOW, default.window)
        fields["other_scope"] = controls.toggle(
            "other_scope", "Another scope", default.other_scope, help="The request comes from somebody else."
        )
    return fields


def stored_under() -> dict:
    """How the prefix was stored, and what both sides share."""
    fields = {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        fields["stored_window"] = controls.optional(
            "stored_window", "Stored with window", 1, MAX_WINDOW, default.stored_window
        )
        fields["stored_positions"] = controls.choice(
            "stored_positions", "Stored with positions", POSITIONS, default.stored_positions
        )
        fields["storage"] = controls.choice(
            "storage", "Cache of both", STORAGE, default.storage,
            help="`sliding` keeps the last W entries only, so that it may be too short to be cut back.",
        )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="bottom"):
        fields["n_layers"] = controls.number("n_layers", "Layers of both", 1, MAX_LAYERS, default.n_layers)
        fields["seed"] = controls.number("seed", "Seed of both", 0, 9999, default.seed)
        fields["suffix"] = controls.text(
            "suffix", "Suffix ids of the request", default.suffix, help=f"Up to {MAX_SUFFIX} ids from 0 to {LAST_ID}."
        )
    return fields


nav.header("prefix_reuse")
recorded, play = st.tabs(VIEWS, key=controls.key("view"), on_change="rerun", bind="query-params")
with play:
    st.markdown(
        f"Stored: the keys and values of ids {PREFIX[0]} to {PREFIX[-1]}. Choose what a request has other than that."
    )
    fields = asked_for()
    with st.expander("How the prefix was stored, and the suffix"):
        fields |= stored_under()
    answer = st.container()
try:
    parse_suffix(fields["suffix"])
except ValueError as error:
    with answer:
        refuse(error)
    fields["suffix"] = default.suffix
result = cached.prefix_reuse(Config(**fields))
tables = result.tables

if recorded.open:
    with recorded:
        st.info(result.experiment_reading, icon=":material/menu_book:")
        export.chart(
            figures.experiment(result),
            "reuse_experiment",
            "Difference from fresh computation under every condition, for three seeds, on a log axis."
            f" {result.experiment_reading}",
            lambda: tables()["experiment"],
            result.arrays,
        )
        st.markdown("**Why another scope must miss**")
        st.info(result.scope_reading, icon=":material/lock:")
        st.markdown(
            "Here a stored prefix is used as a whole or not at all; *Try it* uses the longest common prefix. A miss is"
            " fresh computation itself, so its difference is exactly 0. Counts are not a speed-up."
        )
        export.table(
            tables()["experiment"],
            "reuse_experiment_rows",
            f"One row a seed and condition. {result.experiment_reading}",
            result.arrays,
        )
if play.open:
    with answer:
        st.info(result.verdict, icon=":material/menu_book:")
        st.markdown(
            "Largest difference from fresh computation, float64. *Keyed* uses what the key allows; *unchecked* all that"
            " is stored, a deliberate mistake."
        )
        export.chart(
            figures.differences(result),
            "reuse_differences",
            f"Difference from fresh computation at every suffix position, on a log axis. {result.outcome}",
            lambda: tables()["differences"],
            result.arrays,
        )
        st.info(result.outcome, icon=":material/menu_book:")
        st.markdown(
            "Where each position's keys and values come from. A cross: what is stored is not what this request needs."
        )
        export.chart(
            figures.entries(result),
            "reuse_entries",
            f"Every position by way and layer: computed, or from the store. {result.outcome}",
            lambda: tables()["entries"],
            result.arrays,
        )
        st.markdown("What each way reused and projected. Fewer rows are no merit where the rows are wrong.")
        export.table(tables()["ways"], "reuse_ways", f"One row a way. {result.verdict}", result.arrays)
        st.markdown("What must be the same. The digest of the weights changes with any bit of them.")
        export.table(tables()["key"], "reuse_key", f"One row a field of the key. {result.verdict}", result.arrays)

export.command("prefix_reuse", result.config)
