"""Decode paths: the same tokens in different calls, compared at every position."""

from functools import partial

import pandas as pd
import streamlit as st

from kvcore.config import DTYPES
from kvcore.figures import decode_paths as figures
from kvcore.studies.decode_paths import CONTROLS, D_MODELS, MAX_LAYERS, MAX_LENGTH, MODELS, PATHS, Config
from kvcore.studies.outcome import Outcome
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("paths")
default = Config()


def model_controls() -> dict:
    """Seed and shape of the lab decoder."""
    left, right = st.columns(2)
    with left:
        fields = {
            "n_layers": controls.slider("n_layers", "Layers", 1, MAX_LAYERS, default.n_layers),
            "seed": controls.slider("seed", "Seed of the weights", 0, 99, default.seed),
        }
    with right:
        fields["length"] = controls.slider("length", "Tokens", 2, MAX_LENGTH, default.length)
        fields["window"] = controls.slider("window", "Window W (keys, the query's own included)", 1, 64, default.window)
    with st.expander("Model, tokens and paths"):
        for column, (field, label, options) in zip(
            st.columns(4),
            [
                ("dtype", "Number format", DTYPES),
                ("d_model", "d_model", D_MODELS),
                ("n_heads", "Heads", (1, 2, 4, 8)),
                ("n_kv_heads", "KV heads", (1, 2, 4, 8)),
            ],
            strict=True,
        ):
            with column:
                fields[field] = controls.choice(field, label, options, getattr(default, field))
        fields["chunks"] = controls.text(
            "chunks", "Chunk sizes", default.chunks, help="They add up to the tokens; `...` at the end repeats them."
        )
        fields["token_ids"] = controls.text(
            "token_ids", "Token ids (empty: the lab's own)", "", placeholder="3, 10, 17, 24, 31, 6"
        )
        fields["paths"] = ",".join(controls.several("paths", "Paths", PATHS, PATHS))
        fields["controls"] = ",".join(controls.several("controls", "Deliberate mistakes", CONTROLS, CONTROLS))
    return fields


nav.header("decode_paths")
model = controls.choice("model", "System", MODELS, default.model)
if model == default.model:
    fields = model_controls()
else:
    st.markdown(
        "One layer on vectors with separate query, key, value and output projections: float32, batch 2, 4 heads,"
        " d_model 64. A prompt of 5 goes in with one call, then 3 vectors one at a time, from a cache preallocated for"
        " 32 positions."
    )
    fields = {"layer_seed": controls.slider("layer_seed", "Seed", 0, 99, default.layer_seed)}

try:
    result = cached.decode_paths(Config(model=model, **fields))
except ValueError as error:
    refuse(error)
    st.stop()

st.info(result.reading, icon=":material/menu_book:")
views = ["Every position", "By layer", "By dimension", "Table"]
if result.full_from_exact:
    views.append("From float64")
tabs = dict(zip(views, st.tabs(views, key="paths_view", on_change="rerun", bind="query-params"), strict=True))

if tabs["Every position"].open:
    with tabs["Every position"]:
        st.caption(" ".join(result.notes()))
        export.chart(
            figures.differences(result),
            "paths_differences",
            f"Largest difference from the reference at every position on a log axis. {result.reading}",
            lambda: result.tables()["differences"],
            result.arrays,
        )


def by_dimension(outcome: Outcome) -> pd.DataFrame:
    return pd.DataFrame(outcome.gap, index=pd.Index(outcome.position, name="position")).reset_index()


by_name = {outcome.name: outcome for outcome in result.outcomes}
for view, draw, numbers, what in [
    (
        "By layer",
        figures.by_layer,
        lambda outcome: pd.DataFrame(outcome.rows_by_layer()),
        "largest difference after each layer at each position",
    ),
    (
        "By dimension",
        figures.by_dimension,
        by_dimension,
        "difference at each position and hidden dimension after the last layer",
    ),
]:
    if tabs[view].open and by_name:
        with tabs[view]:
            shown = controls.choice("show", "Path", (*PATHS, *CONTROLS), "cropped recomputation")
            if (outcome := by_name.get(shown)) is None:
                st.markdown(f"{shown} was not run here; {', '.join(by_name)} can be drawn.")
                continue
            st.markdown(
                f"**{outcome.name}** against {outcome.against}: {what}; {outcome.comparison.in_words()}."
                f" {outcome.where} Grey cells are exactly 0."
            )
            export.chart(
                draw(outcome),
                f"paths_{view.replace(' ', '_').lower()}",
                f"{outcome.name}: {what}; {outcome.comparison.in_words()}",
                partial(numbers, outcome),
                outcome.arrays,
            )

if tabs["Table"].open:
    with tabs["Table"]:
        export.table(result.tables()["paths"], "paths_table", f"One row a path. {result.reading}", result.arrays)

if result.full_from_exact and tabs["From float64"].open:
    with tabs["From float64"]:
        st.markdown(
            "Every path, full included, against a float64 run of the same cast parameters. Where all lines lie"
            " together, the format is the reason; where one lies apart, its path is."
        )
        export.chart(
            figures.from_float64(result),
            "paths_from_float64",
            f"Distance of every path from the float64 run at every position. {result.reading}",
            lambda: result.tables()["paths"],
            result.arrays,
        )

export.command("decode_paths", result.config)
