"""Choosing a published model: a stored one, a typed architecture, or a config.json that is pasted or uploaded."""

from __future__ import annotations

import shlex
from urllib.parse import quote

import streamlit as st

from kvcore.published.file import MOST_BYTES
from kvcore.published.presets import names
from kvcore.studies.published_input import TYPED, compact, described, is_file, typed_text
from kvcore.studies.published_models import Config
from pages.common.controls import Controls, plain, refuse

TYPE, PASTE, UPLOAD, NONE = "type an architecture", "paste a config.json", "upload a config.json", "none"

LONGEST_IN_ADDRESS = 7_000
"""Characters of an address that pasted files may take together: longer ones many servers refuse."""

LABELS = {
    "layers": ("Layers", 2_000),
    "heads": ("Query heads", 1_024),
    "kv_heads": ("KV heads", 1_024),
    "head_width": ("Head width", 65_536),
    "window": ("Window (0: none)", 1 << 30),
    "full_every": ("Every n-th full (0: none)", 2_000),
}

EXAMPLE = '{"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, …}'


def choose(controls: Controls, field: str, label: str, value: str) -> str:
    """The select box of one model: what it is given as."""
    options = [*([] if field == "model" else [NONE]), TYPE, PASTE, UPLOAD, *names()]
    return controls.choice(field, label, options, value or NONE)


def given(controls: Controls, field: str, chosen: str) -> str:
    """What the chosen way gives, as text that the study reads; empty where there is nothing, or nothing right yet.

    What is wrong is said in one sentence, and everything else on the page stands.
    """
    if chosen == NONE:
        return ""
    ways = {TYPE: _typed, PASTE: _pasted, UPLOAD: _uploaded}
    if chosen != PASTE:
        st.query_params.pop(_address(controls, field), None)
    try:
        text = ways[chosen](controls, field) if chosen in ways else chosen
        if text:
            described(text)
    except ValueError as error:
        key = str(error).partition(" ")[0]
        refuse(ValueError(f"the key {error}") if "_" in key else error)  # a key keeps its small first letter
        return ""
    return text


def _typed(controls: Controls, field: str) -> str:
    st.caption("A typed architecture: a window stands in every layer but each n-th, which keeps everything.")
    numbers = {}
    with st.container(horizontal=True):
        for name, (title, most) in LABELS.items():
            with st.container(width=165):  # two beside each other on a phone
                numbers[name] = controls.number(f"{field}_{name}", title, TYPED[name][1], most, TYPED[name][2])
    return typed_text(**numbers)


def _address(controls: Controls, field: str) -> str:
    return controls.key(f"{field}_config")


def _pasted(controls: Controls, field: str) -> str:
    """The text area; its content goes into the address without spaces, as far as there is room."""
    name = _address(controls, field)
    key = f"{name}_text"
    if key not in st.session_state:
        st.session_state[key] = st.query_params.get(name, "")
    text = st.text_area(
        "config.json", key=key, height=150, max_chars=MOST_BYTES, placeholder=EXAMPLE, persist_state="session"
    )
    if not text.strip():
        st.query_params.pop(name, None)
        st.caption("Paste the config.json of a model. It is read as data, and nothing in it is run.")
        return ""
    try:
        content = compact(text)
    except ValueError:
        st.query_params.pop(name, None)
        raise
    others = sum(len(quote(st.query_params[each])) for each in st.query_params if each.endswith("_config"))
    others -= len(quote(st.query_params.get(name, "")))
    if len(quote(content)) + others <= LONGEST_IN_ADDRESS:
        st.query_params[name] = content
    else:
        st.query_params.pop(name, None)
        st.caption(
            f"This configuration is too long for the address, which holds {LONGEST_IN_ADDRESS:,} characters of it:"
            " a link opens the page without it."
        )
    return content


def _uploaded(controls: Controls, field: str) -> str:
    """The uploader, whose file stays for the session: another choice of model, or another page, does not lose it."""
    key = controls.key(f"{field}_file")
    kept = f"{key}_kept"
    file = st.file_uploader(
        "A config.json of up to 1 MB",
        type="json",
        key=key,
        max_upload_size=1,
        on_change=lambda: st.session_state.pop(kept, None),
    )
    if file is not None:
        st.session_state[kept] = (file.name, file.getvalue())
    elif kept in st.session_state:
        st.caption(f"{plain(st.session_state[kept][0])} is still read; another upload takes its place.")
    if kept not in st.session_state:
        st.caption("What you upload is read as data, and is not part of the address.")
        return ""
    return compact(st.session_state[kept][1])


def commands(line: str, config: Config) -> list[str]:
    """`line`, in which the shell reads from disk what was given as a file; where there is one, also its own command."""
    files = [text for text in dict.fromkeys(config.texts) if is_file(text)]
    if not files:
        return [line]
    for number, text in enumerate(files, start=1):
        line = line.replace(shlex.quote(text), f'"$(cat {"FILE" if len(files) == 1 else f"FILE_{number}"})"')
    ask = config.ask
    flags = f"--context {ask.context} --batch {ask.batch} --format {ask.format} --convention {ask.convention}"
    return [line, f"python -m kvcore size --config FILE {flags} --devices {ask.devices}"]
