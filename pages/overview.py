"""Overview: the measured answer, the picture that carries the lab, and everything recorded against computed."""

import streamlit as st

from kvcore.config import DTYPES
from kvcore.figures import overview as figures
from kvcore.protocol import Protocol
from kvcore.studies.overview import Config
from pages.common import cached, export, nav
from pages.common.controls import Controls

WORDS = """
- **Full forward**: all tokens in one call, each seeing itself and what came before. It is the reference. With a window
  of W keys each token sees only the last W, itself included: the windowed reference.
- **Prefix recomputation**: for every new token all tokens once more, nothing kept.
- **Token cache**: one new token a call; keys and values of the earlier ones are kept and read.
- **Chunk cache**: the same with several tokens a call.
- **Sliding cache**: at most W entries are kept a layer.
- **Future edit**: later tokens are changed. Under the causal mask earlier positions must not move at all; on the
  *unmasked path*, a deliberate mistake, they do.
- **Wrong chunk mask** (deliberate): the rows of a chunk are numbered from 0 in the mask, so they do not see the cache.
- **Reset position** (deliberate): each call's tokens enter as if they stood at the beginning.
- **Cropped recomputation** (deliberate): only the last W raw tokens are run again.
- **Tolerance**: float64 keeps about 16 digits, so sums in another order differ by about 1e-16. That is rounding, not a
  mistake; what is beyond the tolerance is one.
"""

nav.header("overview")
st.markdown(
    "A decoder may keep the keys and values of earlier tokens and feed only the new one. Here a small decoder reads the"
    f" same {Protocol().length} tokens in several ways, and each way is compared with the full forward at every"
    " position. Some ways are wrong on purpose, so that you see what a mistake looks like."
)
controls = Controls("overview")
dtype = controls.choice(
    "dtype", "Number format of the decoder", DTYPES, Config().dtype, help="Watch the gap between right and wrong."
)
with st.spinner("Running every path for three seeds…"):
    experiment = cached.overview(Config(dtype))
    recorded = cached.overview(Config())

st.info(experiment.reading, icon=":material/menu_book:")
export.chart(
    figures.differences(experiment),
    "overview_differences",
    f"Largest difference of every path for three seeds on a log axis, with the tolerance. {experiment.reading}",
    experiment.to_frame,
    experiment.arrays,
)

if dtype != Config().dtype:
    st.caption(
        f"Paths that agree exactly may still share one rounding: how far {dtype} itself is from float64 is on Decode"
        " paths, in the view *From float64*."
    )
with st.expander("What the rows of the picture are"):
    st.markdown(WORDS)

views = list(nav.PAGES)[1:]
for first in range(0, len(views), 2):
    for column, stem in zip(st.columns(2), views[first : first + 2], strict=False):
        with column:
            nav.link(stem)

st.subheader("Work, counted while it ran")
counts = experiment.runs[0].figures
for column, label, what, many, few in zip(
    st.columns(3),
    ("Projected rows", "Score elements", "K/V payload, bytes"),
    ("prefix recomputation → token cache",) * 2 + ("token cache → sliding cache",),
    ("prefix_projected_rows", "prefix_score_elements", "full_kv_bytes"),
    ("cached_projected_rows", "cached_score_elements", "window_kv_bytes"),
    strict=True,
):
    column.metric(label, f"{counts[many]:,} → {counts[few]:,}")
    column.caption(what)
formulas = experiment.closed_form
same = all(run.figures[key] == counts[key] for run in experiment.runs for key in formulas)
equal = all(run.figures[key] == formula for run in experiment.runs for key, formula in formulas.items())
st.caption(
    f"Counts for seed {experiment.runs[0].seed}; they {'are the same' if same else 'DIFFER'} for each seed,"
    f" {'equal' if equal else 'DIFFER from'} their formulas, and are not a speed-up."
)

table = recorded.to_frame()
agree = int(table["agrees"].sum())
st.subheader(f"Recorded against computed: {agree} of {len(table)} figures agree")
st.markdown(
    "The figures recorded in float64 from the public experiment, beside those computed for this page. Counts must agree"
    " exactly, deliberate mistakes to 1e-9, right paths within 1e-12, and the causal edit is exactly 0."
)
shown = table.assign(
    agrees=table["agrees"].map({True: "✓ agrees", False: "✗ differs"}),
    recorded=table["recorded"].map("{:.6g}".format),
    computed=table["computed"].map("{:.6g}".format),
)[["seed", "figure", "recorded", "computed", "agrees", "verdict"]]
export.table(shown, "overview_recorded", f"{agree} of {len(table)} recorded figures agree.", recorded.arrays)

st.subheader("Take the evidence with you")
st.markdown(
    "All results and arrays of the float64 run, with versions and hashes. Unpack it and run"
    " `python -m kvcore audit evidence`: it recomputes every figure without the decoder."
)
st.download_button(
    "Evidence as one zip",
    lambda: cached.evidence_zip(recorded),
    "evidence.zip",
    "application/zip",
    icon=":material/download:",
    on_click="ignore",
)

export.command("overview", Config(dtype))
