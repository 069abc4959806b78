"""Widgets whose values live in the URL, so that a copied address opens the same state.

Every control has a key `<page>_<field>`, which is also its name in the URL; `field` is the field of
the study's Config, and of the command line, that it sets.
"""

from __future__ import annotations

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

    def slider(self, field: str, label: str, low: int, high: int, value: int, help: str | None = None) -> int:
        return st.slider(label, low, high, value, help=help, **self._bound(field))

    def optional(
        self, field: str, label: str, low: int, high: int, value: int | None, help: str | None = None
    ) -> int | None:
        """A slider whose first stop is "off" (None)."""
        options = [OFF, *map(str, range(low, high + 1))]
        chosen = st.select_slider(label, options, OFF if value is None else str(value), help=help, **self._bound(field))
        return None if chosen == OFF else int(chosen)

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

    def number(
        self,
        field: str,
        label: str,
        low: int,
        high: int,
        value: int | None,
        help: str | None = None,
        placeholder: str | None = None,
    ) -> int | None:
        """A whole number to type or step; back at `value` when its range changes and leaves it outside.

        `value` stays the same whatever the range, else an address would mean something else; None is
        an empty field, and `placeholder` says what that stands for.
        """
        return st.number_input(label, low, high, value, 1, help=help, placeholder=placeholder, **self._bound(field))

    def text(self, field: str, label: str, value: str, help: str | None = None, placeholder: str | None = None) -> str:
        """Free text, at most 2,000 characters; the study says what it accepts."""
        return st.text_input(label, value, max_chars=2000, help=help, placeholder=placeholder, **self._bound(field))


def refuse(error: ValueError) -> None:
    """Bad input: one sentence that says what is allowed; what stands above stays."""
    message = str(error)
    st.error(message[0].upper() + message[1:] + ("" if message.endswith(".") else "."), icon=":material/error:")
