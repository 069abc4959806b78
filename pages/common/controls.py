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
        self,
        field: str,
        label: str,
        low: int,
        high: int,
        value: int | None,
        help: str | None = None,
        none: str = OFF,
    ) -> int | None:
        """A slider whose first stop, called `none`, is None; back at `value` when a change of range leaves it outside."""
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
        chosen = st.select_slider(label, names, initial, help=help, **self._bound(field))
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
        """A whole number to type or step; back at `value` when a change of range leaves it outside.

        `value` must not depend on other controls: an address leaves out what stands at its default.
        """
        return st.number_input(label, low, high, value, 1, help=help, **self._bound(field))

    def text(self, field: str, label: str, value: str, help: str | None = None, placeholder: str | None = None) -> str:
        """Free text, at most 2,000 characters; the study says what it accepts."""
        return st.text_input(label, value, max_chars=2000, help=help, placeholder=placeholder, **self._bound(field))


def refuse(error: ValueError) -> None:
    """Bad input: one sentence that says what is allowed; what stands above stays."""
    message = str(error)
    st.error(message[0].upper() + message[1:] + ("" if message.endswith(".") else "."), icon=":material/error:")
