"""A chart with its text alternative, its numbers and its downloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from kvcore.folder import npz
from kvcore.show import command_line

CONFIG = {"displaylogo": False, "displayModeBar": True, "modeBarButtonsToRemove": ["lasso2d", "select2d"]}
"""The chart's own bar stays: its camera saves a PNG."""


def standalone_html(figure: go.Figure, alt: str = "") -> str:
    """The figure with Plotly inside, on a white page below what it shows in words: it opens without a network."""
    copy = go.Figure(figure).update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white")
    words = f"<title>KV Cache Lab</title><body><p>KV Cache Lab. {escape(alt)}</p>"
    return copy.to_html(include_plotlyjs=True).replace("<body>", words, 1)


def chart(
    figure: go.Figure,
    name: str,
    alt: str,
    table: Callable[[], pd.DataFrame],
    arrays: Callable[[], Mapping[str, np.ndarray]],
    **chart_options,
):
    """Draw `figure`; below it an expander with its numbers as a table and three downloads.

    `name` is the key and the file name; `alt` says in words what the figure shows. Table, arrays and
    files are made only when the expander is open, the files only when asked for. Returns what
    `st.plotly_chart` returns.
    """
    state = st.plotly_chart(figure, key=f"{name}_chart", alt=alt, config=CONFIG, **chart_options)
    numbers(name, alt, table, arrays, figure)
    return state


def table(frame: pd.DataFrame, name: str, alt: str, arrays: Callable[[], Mapping[str, np.ndarray]]) -> None:
    """A table that is always on screen, and the same downloads below it."""
    _show(frame, alt)
    with st.container(horizontal=True):
        _download("CSV", lambda: frame.to_csv(index=False), f"{name}.csv", "text/csv")
        _download("NPZ", lambda: npz(arrays()), f"{name}.npz", "application/octet-stream")


def numbers(
    name: str,
    alt: str,
    table: Callable[[], pd.DataFrame],
    arrays: Callable[[], Mapping[str, np.ndarray]],
    figure: go.Figure | None = None,
) -> None:
    """The expander "Numbers and downloads" of one figure or table."""
    box = st.expander("Numbers and downloads", key=f"{name}_numbers", on_change="rerun", type="compact")
    if not box.open:
        return
    with box:
        frame = table()
        _show(frame, f"The numbers of: {alt}")
        with st.container(horizontal=True):
            _download("CSV", lambda: frame.to_csv(index=False), f"{name}.csv", "text/csv")
            _download("NPZ", lambda: npz(arrays()), f"{name}.npz", "application/octet-stream")
            if figure is not None:
                _download("HTML", lambda: standalone_html(figure, alt), f"{name}.html", "text/html")


def _show(frame: pd.DataFrame, alt: str) -> None:
    """A table on screen; differences, which may be 1e-16, in scientific notation."""
    small = {
        name: st.column_config.NumberColumn(format="%.2e")
        for name in frame.columns
        if pd.api.types.is_float_dtype(frame[name])
    }
    st.dataframe(frame, alt=alt, hide_index=True, column_config=small, height=min(400, 38 + 35 * len(frame)))


def _download(label: str, data: Callable[[], str | bytes], file_name: str, mime: str) -> None:
    st.download_button(label, data, file_name, mime, key=f"{file_name}_download", on_click="ignore")


def command(study: str, config) -> None:
    """The shell command that gives this page's numbers and sentences again."""
    st.caption("The same numbers and sentences from a shell:")
    st.code(command_line(study, config), language="bash", wrap_lines=True)
