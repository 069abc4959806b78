"""Finished results shared between visitors: one cached wrapper a study, keyed by one frozen config.

Streamlit hands every visitor a copy of its own. Studies are imported when first needed: they bring
PyTorch, and the first page should show something before that.
"""

from __future__ import annotations

import os
from importlib import import_module
from threading import BoundedSemaphore

import streamlit as st

MAX_ENTRIES = 64


def _study(name: str, config):
    """Run one study on one thread: small tensors gain nothing from more, and visitors would wait for each other."""
    import torch

    torch.set_num_threads(1)
    with _places():
        return import_module(f"kvcore.studies.{name}").run(config)


@st.cache_resource(show_spinner=False)
def _places() -> BoundedSemaphore:
    """As many computations at once as there are processors; further visitors wait their turn."""
    return BoundedSemaphore(os.cpu_count() or 1)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def overview(config):
    return _study("overview", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def mask_explorer(config):
    return _study("mask_explorer", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def decode_paths(config):
    return _study("decode_paths", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def work_counts(config):
    return _study("work_counts", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def sliding_window(config):
    return _study("sliding_window", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def fault_bench(config):
    return _study("fault_bench", config)


@st.cache_data(max_entries=4096, show_spinner=False)
def check_row(config):
    """One small row of the check matrix: a visitor who leaves, or chooses fewer faults, loses none that are done."""
    return _study("check_row", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def check_your_own(config):
    return _study("check_your_own", config)


@st.cache_data(max_entries=16, show_spinner=False)
def saved_report(content: bytes):
    """The report on an uploaded file; ValueError where it is none that is allowed."""
    with _places():
        return import_module("kvcore.verification.saved").verify_saved(content)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def prefix_reuse(config):
    return _study("prefix_reuse", config)


@st.cache_data(max_entries=MAX_ENTRIES, show_spinner=False)
def published_models(config):
    """Arithmetic alone, so without PyTorch."""
    return import_module("kvcore.studies.published_models").run(config)


def evidence_zip(experiment) -> bytes:
    """Made when asked for: it tells the time."""
    return import_module("kvcore.evidence").zip_bytes(experiment)
