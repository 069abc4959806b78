"""Work counts: formula beside what the engine counted, the work drawn, and how it grows."""

import streamlit as st

from kvcore.figures import work_counts as figures
from kvcore.studies.work_counts import D_MODELS, DTYPE, MAX_LAYERS, Config
from kvcore.studies.work_paths import QUANTITIES, exact_crop, work_paths
from kvcore.studies.work_result import PathCount, Result
from kvcore.studies.work_runs import DRAWN
from pages.common import cached, export, nav
from pages.common.controls import Controls, refuse

controls = Controls("work")
default = Config()

LENGTHS = (
    *range(1, 49), 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 384, 512, 1000, 2000, 5000,
    10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
)  # fmt: skip
WINDOWS = (None, *range(1, 17), 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
PATHS = tuple(path.name for path in work_paths(default.n_layers, default.prompt, default.window))
MEANING = {
    "projected rows": "Rows that enter a query, key or value projection.",
    "score elements": "Entries of one query head's allocated score matrices, masked ones too.",
    "K/V payload bytes": "Bytes of the keys and values kept after the last token.",
}


def settings() -> Config:
    left, right = st.columns(2)
    with left:
        length = controls.stops("length", "Tokens T", LENGTHS, default.length)
        n_layers = controls.slider("n_layers", "Layers L", 1, MAX_LAYERS, default.n_layers)
    with right:
        prompt = controls.stops("prompt", "Prompt P (tokens of the first call)", LENGTHS, default.prompt)
        window = controls.stops("window", "Window W (keys, the query's own included)", WINDOWS, default.window)
    with st.expander("Model and number format"):
        choices = [
            ("d_model", "d_model", D_MODELS),
            ("n_heads", "Heads", (1, 2, 4, 8)),
            ("n_kv_heads", "KV heads", (1, 2, 4, 8)),
            ("itemsize", "Bytes a number b", tuple(DTYPE)),
        ]
        fields = {}
        for column, (field, label, options) in zip(st.columns(4), choices, strict=True):
            with column:
                fields[field] = controls.choice(field, label, options, getattr(default, field))
        st.caption("8 bytes run as float64, 4 as float32, 2 as bfloat16. The counts do not depend on the weights.")
    return Config(length=length, n_layers=n_layers, prompt=prompt, window=window, **fields)


def counted(count: PathCount, quantity: int) -> str:
    """What was counted and whether it is what the formula gives."""
    if not count.ran:
        return "formula only"
    return f"{count.counted[-1, quantity]:,} {'✓ equal' if count.equal[quantity] else '✗ DIFFERENT'}"


def comparison(result: Result) -> None:
    """Formula and count of every path, one small table a quantity."""
    if not all(count.ran for count in result.counts):
        st.markdown(
            "Where it says *formula only*, this setting is too large to run here, and only the formula is shown."
        )
    for i, quantity in enumerate(QUANTITIES):
        lines = [
            {
                quantity: count.name,
                "formula": count.formulas[i],
                "by formula": f"{count.formula[i]:,}",
                "counted": counted(count, i),
            }
            for count in result.counts
        ]
        st.markdown(MEANING[quantity])
        st.table(lines, hide_index=True, border="horizontal", alt=f"{quantity}: formula and count of every path.")
    where = "t = 1…T; the chunk cache takes c = P tokens in its first call, then c = 1, each call ending at `end`"
    if (window := result.config.window) is not None:
        crop = exact_crop(result.config.n_layers, window)
        where += (
            f"; the sliding cache attends before it evicts, hence W+1 = {window + 1:,};"
            f" C = L·(W−1)+1 = {crop:,} is the shortest crop that gives the right rows"
        )
    st.caption(f"{where}. Windowed full counts the same as full. Score elements of all heads: times n_heads.")
    export.numbers(
        "work_counts",
        f"Formula and count of every path. {result.reading}",
        lambda: result.tables()["counts"],
        result.arrays,
    )


def pictures(result: Result) -> None:
    """Two paths beside each other, step by step."""
    names = [count.name for count in result.counts]
    length = result.config.length
    cut = f" Drawn are the first {DRAWN} of {length:,} positions and steps." if length > DRAWN else ""
    masked = (
        " Once it is full, the sliding cache reads one entry too many, which is masked, counted and then evicted."
        if result.config.window is not None
        else ""
    )
    st.markdown(
        "Each row is a call, each column an absolute position. A square is computed for the first time, a cross again,"
        f" a ring is read from the cache, a dash was seen before and is not used any more.{masked}{cut}"
    )
    for column, side, first in zip(
        st.columns(2), ("left", "right"), ("token cache", "prefix recomputation"), strict=True
    ):
        with column:
            name = controls.choice(side, f"Path on the {side}", PATHS, first)
            if name not in names:
                refuse(ValueError(f"{name} needs a window; set W, or choose one of {', '.join(names)}"))
                continue
            count = result.path(name)
            totals = ", ".join(f"{count.n_cells(state)} {what}" for state, what in figures.STATES.items())
            export.chart(
                figures.picture(count),
                f"work_picture_{side}",
                f"{name}, what each step did with each position: {totals}.{cut}",
                lambda: result.tables()["steps"],
                result.arrays,
            )


def curves(result: Result) -> None:
    """Growth of both counts."""
    st.markdown(
        "Formulas on log axes: above, what the call that ends at T adds; below, all calls up to T. Lines that lie on"
        " each other are equal. Full is one call, so it has no steps; the chunk cache begins where its prompt ends."
    )
    for column, i, name in zip(st.columns(2), (0, 1), ("rows", "scores"), strict=True):
        with column:
            st.markdown(f"**{QUANTITIES[i][0].upper()}{QUANTITIES[i][1:]}**")
            export.chart(
                figures.growth(result, i),
                f"work_growth_{name}",
                f"{QUANTITIES[i]} over T on log axes, per step and cumulative. {result.reading}",
                lambda: result.tables()["growth"],
                result.arrays,
            )


def payload(result: Result) -> None:
    """What stays in memory, with a window and without."""
    st.markdown(
        "Bytes of the keys and values kept after T tokens, on log axes: without a window they grow with T; with one"
        " they stop growing at W tokens."
    )
    export.chart(
        figures.payload(result),
        "work_payload",
        f"Bytes of kept keys and values over T on log axes. {result.reading}",
        lambda: result.tables()["growth"],
        result.arrays,
    )


def small_savings(result: Result) -> None:
    """The cases in which a cache saves little or nothing."""
    lines = [f"- **{case.name[0].upper()}{case.name[1:]}.** {case.reading}" for case in result.cases]
    st.markdown(
        f"With a prompt of P = {result.config.prompt:,}, without a window; each line says whether it was"
        " counted or, where that is too large to run, is by formula:\n\n"
        + "\n".join(lines)
        + "\n\nWithout a cache, the one call over P + 1 tokens also gives the new token's row. So prompt and one token"
        " together project the same rows either way; the cache begins to save rows with the second new token."
    )
    export.numbers(
        "work_cases",
        "Counts with the cache and without, for three cases.",
        lambda: result.tables()["cases"],
        result.arrays,
    )


nav.header("work_counts")
try:
    result = cached.work_counts(settings())
except ValueError as error:
    refuse(error)
else:
    st.info(f"{result.reading} These are counts, not a speed-up.", icon=":material/menu_book:")
    views = {
        "Formula and count": comparison,
        "Step by step": pictures,
        "Growth": curves,
        "Payload": payload,
        "Small savings": small_savings,
    }
    tabs = st.tabs(list(views), key="work_view", on_change="rerun", bind="query-params")
    for tab, show in zip(tabs, views.values(), strict=True):
        if tab.open:
            with tab:
                show(result)
    export.command("work_counts", result.config)

st.subheader("What is not in the counts")
st.markdown(
    "- **Not counted as work:** feed-forward layers and output projections (the lab decoder has none, a real one does),"
    " the products with the values, softmax, embeddings, memory traffic.\n"
    "- **Not in the payload:** weights, temporaries such as score matrices, positions, Python objects, allocator"
    " overhead and room reserved for later entries.\n"
    "- **In the counts:** masked entries of a score matrix, since they are allocated.\n"
    "- **No speed-up:** a ratio of counts is not a ratio of times. `python -m kvcore bench` measures those."
)
