"""Widgets whose values live in the URL, so that a copied address opens the same state.

Every control has a key `<page>_<field>`, which is also its name in the URL; `field` is the field of
the study's Config, and of the command line, that it sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import streamlit as st

OFF = "off"


class Controls:
    """The controls of one page."""

    def __init__(self, page: str) -> None:
        self._page = page

    def key(self, field: str) -> str:
        return f"{self._page}_{field}"

    def _bound(self, field: str) -> dict:
        return {"key": self.key(field), "bind": "query-params"}

    def _return(self, field: str, value, outside: bool) -> None:
        """Back to `value` where a change of range left a control outside.

        Streamlit does so by itself, but leaves the old value in the address. It allows this only for a
        control that is not also given a default, so it is done where the default is the first stop.
        """
        if outside and self.key(field) in st.session_state:
            st.session_state[self.key(field)] = value

    def slider(self, field: str, label: str, low: int, high: int, value: int, help: str | None = None) -> int:
        return st.slider(label, low, high, value, help=help, **self._bound(field))

    def optional(
        self,
        field: str,
        label: str,
        low: int,
        high: int,
        value: int | None,
        help: str | None = None,
        none: str = OFF,
    ) -> int | None:
        """A slider whose first stop, called `none`, is None."""
        return self.stops(field, label, [None, *range(low, high + 1)], value, help, none)

    def stops(
        self,
        field: str,
        label: str,
        options: Sequence[int | None],
        value: int | None,
        help: str | None = None,
        none: str = OFF,
    ) -> int | None:
        """A slider that stops at chosen numbers only, such as lengths that grow; None is shown as `none`."""
        names = [none if option is None else str(option) for option in options]
        initial = none if value is None else str(value)
        first = initial == names[0]
        if first:
            self._return(field, initial, st.session_state.get(self.key(field)) not in names)
        chosen = st.select_slider(label, names, None if first else initial, help=help, **self._bound(field))
        return None if chosen == none else int(chosen)

    def choice(self, field: str, label: str, options: Sequence, value, help: str | None = None):
        return st.selectbox(label, options, options.index(value), help=help, **self._bound(field))

    def several(
        self,
        field: str,
        label: str,
        options: Sequence[str],
        value: Sequence[str],
        help: str | None = None,
        format_func: Callable[[str], str] = str,
    ) -> tuple[str, ...]:
        chosen = st.multiselect(label, options, list(value), help=help, format_func=format_func, **self._bound(field))
        return tuple(chosen)

    def toggle(self, field: str, label: str, value: bool, help: str | None = None) -> bool:
        return st.toggle(label, value, help=help, **self._bound(field))

    def number(self, field: str, label: str, low: int, high: int, value: int, help: str | None = None) -> int:
        """A whole number to type or step.

        `value` must not depend on other controls: an address leaves out what stands at its default.
        """
        key = self.key(field)
        if key not in st.session_state and not _is_whole(st.query_params.get(key, "0")):
            # Streamlit 1.67 raises for an infinite number instead of taking the default.
            del st.query_params[key]
            st.rerun()
        first = value == low
        if first:
            self._return(field, value, not low <= st.session_state.get(self.key(field), value) <= high)
        return st.number_input(label, low, high, "min" if first else value, 1, help=help, **self._bound(field))

    def text(self, field: str, label: str, value: str, help: str | None = None, placeholder: str | None = None) -> str:
        """Free text, at most 2,000 characters; the study says what it accepts."""
        return st.text_input(label, value, max_chars=2000, help=help, placeholder=placeholder, **self._bound(field))


def refuse(error: ValueError) -> None:
    """Bad input: one sentence that says what is allowed; what stands above stays."""
    message = str(error)
    sentence = message[0].upper() + message[1:] + ("" if message.endswith(".") else ".")
    st.error(plain(sentence), icon=":material/error:")


def plain(text: str) -> str:
    """Text that may repeat what a visitor typed, so that Markdown shows it and does not act on it."""
    return re.sub(r"([\\`*\[\]<>$!~]|://|(?<=www)\.)", r"\\\1", text)


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,15}(\.0*)?", text) is not None
