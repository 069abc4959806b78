"""A report of `verify` on screen: the picture of all positions, what is probably wrong, and every check."""

from __future__ import annotations

import streamlit as st

from kvcore.figures.report import figure
from kvcore.studies.check_your_own import arrays, tables
from kvcore.verification.report import PRINTED_SUSPECTS, Report
from pages.common import export
from pages.common.controls import plain


def picture(report: Report, name: str) -> None:
    """Splits against positions; `name` is the key and the file name."""
    export.chart(
        figure(report),
        name,
        "Splits of the tokens into calls against absolute positions: how far each row is from the full forward."
        f" {report.verdict}.",
        lambda: tables(report)["differences"],
        lambda: arrays(report),
    )


def ranking(report: Report) -> None:
    """What was seen and the likeliest mistakes, as many as are printed in a terminal."""
    if report.ok:
        st.markdown("No row differs by more than rounding, so no mistake is looked for.")
        return
    for note in report.notes:
        st.markdown(f"Note: {plain(note)}.")
    if not report.diagnosis:
        return
    first = report.diagnosis[0]
    st.markdown(f"**Seen:** {plain(first.evidence.removesuffix(first.advice).strip())}")
    lines = [
        f"- rank {suspect.rank}: **{suspect.fault_class} {plain(suspect.fault.replace('_', ' '))}.**"
        f" {plain(suspect.advice)}"
        for suspect in report.diagnosis[:PRINTED_SUSPECTS]
    ]
    rest = len(report.diagnosis) - len(lines)
    lines += [f"- and {rest} more, less alike or as alike; the JSON holds all"] if rest > 0 else []
    st.markdown("**What is probably wrong:**\n\n" + "\n".join(lines))


def checks(report: Report, name: str) -> None:
    """Every check with what it found, and the report as a terminal and a program get it."""
    export.table(
        tables(report)["checks"],
        f"{name}_checks",
        f"One row a check: its largest difference and first bad position, or why it was not run. {report.verdict}.",
        lambda: arrays(report),
    )
    st.download_button(
        "Report as JSON", report.to_json, f"{name}.json", "application/json", key=f"{name}_json", on_click="ignore"
    )
    with st.expander("As printed in a terminal", type="compact"):
        st.code(str(report), language=None, height=400)
