"""The pages, how they are reached, and what stands at the top and foot of each."""

from __future__ import annotations

import gc

import streamlit as st

PAGES = {
    "overview": ("Overview", ":material/home:", "Does a KV cache change what a decoder computes, or only how?"),
    "mask_explorer": (
        "Mask explorer",
        ":material/grid_on:",
        "Which keys may a query read, when some positions are cached and new tokens arrive?",
    ),
    "decode_paths": (
        "Decode paths",
        ":material/alt_route:",
        "Do all ways of decoding give the same hidden state at every position, and within what tolerance?",
    ),
    "work_counts": ("Work counts", ":material/calculate:", "How much work does the cache save, counted and not timed?"),
    "sliding_window": (
        "Sliding window",
        ":material/view_column:",
        "Why are four cached slots not the same as recomputing the last four tokens?",
    ),
    "fault_bench": (
        "Fault bench",
        ":material/bug_report:",
        "Which mistakes do people really make, at which positions do they show, and which checks miss them?",
    ),
    "prefix_reuse": (
        "Prefix reuse",
        ":material/content_copy:",
        "When may a stored prefix be used again, and what does using it unchecked do?",
    ),
    "check_your_own": (
        "Check your own",
        ":material/fact_check:",
        "Is my cache right, and if not, where does it first go wrong and what mistake does that?",
    ),
    "published_models": (
        "Published models",
        ":material/memory:",
        "What does the cache of a published model cost, what decides that, and what fits?",
    ),
}
"""File stem -> title, icon, question; the order is the order of the questions."""

ROUTED = "routed_by_app"
"""Set in the visitor's session once app.py has run."""


def pages() -> list[st.Page]:
    return [
        st.Page(
            f"pages/{stem}.py",
            title=title,
            icon=icon,
            url_path=stem,
            default=stem == "overview",
        )
        for stem, (title, icon, _) in PAGES.items()
    ]


def route() -> st.Page:
    """Page settings and navigation: the page that this run is for."""
    st.set_page_config(page_title="KV Cache Lab", page_icon="pages/assets/icon.png", layout="wide")
    return st.navigation(pages())


def run() -> None:
    """What app.py does on every run: find the page, run it, and put the footer below."""
    page = route()
    st.session_state[ROUTED] = True
    page.run()
    footer()
    settle(page.url_path)


@st.cache_resource(show_spinner=False)
def settle(url_path: str) -> None:
    """Once a page and server: take what its imports left out of later garbage collections.

    Streamlit collects everything after each run; with PyTorch and Plotly loaded that takes longer than
    the page itself. Nearly all that is frozen are modules and classes, which live as long as the server.
    Sessions open at that moment are frozen too: they are still freed when nothing refers to them, only
    cycles among them are not, at most once a page.
    """
    gc.collect()
    gc.freeze()


def header(stem: str) -> None:
    """The page's title and the one question it answers."""
    if ROUTED not in st.session_state:
        # The first run of a new server finds the folder `pages` by itself and runs this script without
        # app.py. Naming the pages ends that for good, and the next run goes through app.py.
        route()
        st.rerun()
    title, _, question = PAGES[stem]
    st.title("KV Cache Lab" if stem == "overview" else title)
    st.markdown(f"**{question}**")


def link(stem: str) -> None:
    """A link to another page, with its question below."""
    title, icon, question = PAGES[stem]
    st.page_link(f"pages/{stem}.py", label=f"**{title}**", icon=icon)
    st.caption(question)


def footer() -> None:
    st.caption(
        "KV Cache Lab. Every number here is computed by this server, from seeded random weights or, for published"
        " models, from the facts of their configurations; nothing is pre-recorded except the recorded figures that"
        " the overview compares with and the table of published models under Check your own, which both say so."
        " Counts of work are not a speed-up."
    )
