"""Fault bench: one mistake switched on beside the right step, and which check notices which mistake."""

import streamlit as st

from kvcore.config import DTYPES, POSITIONS
from kvcore.faults import FAULTS
from kvcore.figures import check_matrix as matrix_figures
from kvcore.figures import fault_bench as figures
from kvcore.figures import fault_grids as grids
from kvcore.studies import check_matrix, fault_facts, fault_words
from kvcore.studies.check_row import CHECKS, MAX_MODELS, MIN_LENGTH
from kvcore.studies.check_row import MAX_LENGTH as MAX_MATRIX_LENGTH
from kvcore.studies.fault_bench import HEADS, MAX_LAYERS, MAX_LENGTH, MAX_SINKS, Config
from kvcore.studies.fault_compare import CONTENTS, KEPT, MASK
from kvcore.studies.fault_settings import PATTERNS
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("bench")
default, matrix_default = Config(), check_matrix.Config()
NEEDED, FIRST = "as the fault needs", "first that differs"
BY_CLASS = sorted(FAULTS, key=lambda name: int(FAULTS[name].fault_class[1:]))
THIS, MATRIX = "This fault", "Which check notices"


def left_open(field: str, label: str, options) -> str | None:
    """A choice whose first option leaves it to the fault."""
    chosen = controls.choice(field, label, (NEEDED, *options), NEEDED)
    return None if chosen == NEEDED else chosen


def setting_controls() -> dict:
    """What a fault may need, the tokens and their split; each as the fault needs unless chosen."""
    left, middle, right = st.columns(3)
    with left:
        fields = {
            "positions": left_open("positions", "Positions", POSITIONS),
            "n_heads": controls.stops("n_heads", "Heads", [None, *HEADS], None, none=NEEDED),
            "n_kv_heads": controls.stops("n_kv_heads", "KV heads", [None, *HEADS], None, none=NEEDED),
        }
    with middle:
        fields["pattern"] = left_open("pattern", "Layers with the window", tuple(PATTERNS))
        fields["window"] = controls.slider("window", "Window W (keys, own included)", 1, MAX_LENGTH, default.window)
        fields["n_sinks"] = controls.optional("n_sinks", "Attention sinks", 0, MAX_SINKS, None, none=NEEDED)
    with right:
        fields["n_layers"] = controls.slider("n_layers", "Layers", 1, MAX_LAYERS, default.n_layers)
        fields["length"] = controls.slider("length", "Tokens", 2, MAX_LENGTH, default.length)
        fields["seed"] = controls.slider("seed", "Seed of the weights", 0, 99, default.seed)
    fields["chunks"] = controls.text(
        "chunks", "Chunk sizes", default.chunks, help="They add up to the tokens; `...` at the end repeats them."
    )
    return fields


def facts(fault) -> None:
    """Class and sentence, both formulas, what hides it, where it was reported."""
    with st.container(border=True, gap="small"):
        st.markdown(f"Deliberate mistake. **{fault_facts.class_name(fault)}**: {fault.sentence}")
        st.markdown(f"Wrong: `{fault.wrong}`  ·  right: `{fault.right}`")
        st.caption(f"Hidden by {fault.hidden_by}. Reported in {'; '.join(map(fault_facts.linked, fault.reported))}.")


nav.header("fault_bench")
fault = controls.choice("fault", "Fault", BY_CLASS, default.fault)
facts(FAULTS[fault])
place = st.container()
with st.expander("Setting, tokens and calls"):
    fields = setting_controls()
try:
    n_calls = Config(fault=fault, **fields).n_calls
except ValueError as error:
    with place:
        refuse(error)
        st.caption("Shown instead: the setting that the fault needs.")
    fields = {}
    n_calls = Config(fault=fault).n_calls

this, matrix = st.tabs([THIS, MATRIX], key=controls.key("view"), on_change="rerun", bind="query-params")
with this:
    steps, look = st.container(), st.container()
looked = {}
if this.open:
    with look:
        left, right = st.columns(2)
        with left:
            looked["call"] = controls.optional("call", "Call that is looked at", 0, n_calls - 1, None, none=FIRST)
        with right:
            n_layers = fields.get("n_layers", default.n_layers)
            looked["layer"] = controls.optional("layer", "Layer that is looked at", 1, n_layers, None, none=FIRST)
config = Config(fault=fault, **fields, **looked)


def step_figures(result) -> None:
    """What the fault changes in the step that is looked at; the masks where it changes nothing."""
    tables, said = result.tables, result.step_reading
    changed = result.changed or (MASK,)
    if MASK in changed:
        for column, wrong in zip(st.columns(2), (False, True), strict=True):
            side = "wrong" if wrong else "right"
            with column:
                st.markdown(f"**The {side} mask**{', a deliberate mistake' if wrong else ''}")
                export.chart(
                    grids.mask(result, wrong), f"bench_mask_{side}",
                    f"Which keys each query reads in the {side} step. {said}", lambda: tables()["mask"], result.arrays,
                )  # fmt: skip
    others = [aspect for aspect in changed if aspect != MASK]
    columns = st.columns(2) if len(others) > 1 else [st.container()]
    for index, aspect in enumerate(others):
        name = aspect[0].upper() + aspect[1:]
        draw = {KEPT: grids.kept, CONTENTS: figures.contents}.get(aspect)
        with columns[index % len(columns)]:
            st.markdown(f"**{name}**, right and wrong")
            export.chart(
                draw(result) if draw else figures.marks(result, aspect),
                f"bench_{aspect.replace(' ', '_').lower()}",
                f"{name} in the right and the wrong step. {said}",
                lambda table=fault_words.TABLE.get(aspect, "entries"): tables()[table],
                result.arrays,
            )


def show_fault() -> None:
    result = cached.fault_bench(config)
    if result.lacks:
        with steps:
            refuse(ValueError(result.answer))
        return
    with steps:
        st.info(result.step_reading, icon=":material/compare:")
        step_figures(result)
    st.caption(f"{fault_words.chosen(config)}. {fault_words.staged(config)}")
    st.info(result.answer, icon=":material/menu_book:")
    st.markdown("**Difference from the full path at every position**, largest over the hidden numbers; dotted: calls")
    export.chart(
        figures.differences(result),
        "bench_differences",
        f"Difference from the full path at every position, on a log axis. {result.answer}",
        lambda: result.tables()["differences"],
        result.arrays,
    )
    export.table(result.tables()["layers"], "bench_layers", f"One row a layer. {result.answer}", result.arrays)


def show_matrix() -> None:
    left, middle, right = st.columns(3)
    with left:
        classes = controls.several(
            "classes", "Classes of faults (none: all)", check_matrix.USED_CLASSES, ()
        )  # fmt: skip
    with middle:
        n_models = controls.slider("n_models", "Models (seeds 0, 1, …)", 1, MAX_MODELS, matrix_default.n_models)
        length = controls.slider("row_length", "Tokens a run", MIN_LENGTH, MAX_MATRIX_LENGTH, matrix_default.length)
    with right:
        dtype = controls.choice("dtype", "Number format", DTYPES, matrix_default.dtype)
        check = controls.choice("check", "Check drawn below", CHECKS, "every position")
    wanted = check_matrix.Config(",".join(classes), n_models, length, matrix_default.window, dtype)
    bar = st.progress(0.0, text="Running the faults")
    result = check_matrix.run(
        wanted,
        cached.check_row,
        lambda done, total: bar.progress(done / total, text=f"{done} of {total} faults run"),
    )
    bar.empty()
    st.info(result.reading, icon=":material/menu_book:")
    st.markdown("**Faults noticed in every model**, by check and by how the tokens are split into calls")
    export.chart(
        matrix_figures.summary(result),
        "bench_summary",
        f"How many faults each check notices under each split. {result.reading}",
        lambda: result.tables()["summary"],
        result.arrays,
    )
    st.markdown(
        f"**{check[0].upper()}{check[1:]}**: in how many of {n_models} models it notices each fault. Faults with a"
        f" {matrix_figures.NEEDS_MORE} need going back, a stored prefix, a second sequence or a branch."
        " The argmax is over a tied unembedding, hidden · tableᵀ. Each fault runs in the simplest setting it needs."
    )
    export.chart(
        matrix_figures.faults(result, check),
        "bench_faults",
        f"In how many models the check “{check}” notices each fault. {result.reading}",
        lambda: result.tables()["matrix"],
        result.arrays,
    )
    export.command("check_matrix", wanted)


if this.open:
    with this:
        show_fault()
if matrix.open:
    with matrix:
        show_matrix()

export.command("fault_bench", config)
