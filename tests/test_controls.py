"""Controls: what a visitor or an address brings never acts and never breaks a page."""

import pytest
from streamlit.testing.v1 import AppTest

from pages.common.controls import plain
from tests.serve import ROOT


def open_page(page, **query):
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page(f"pages/{page}.py")
    return at.run()


@pytest.mark.parametrize("value", ["1e400", "inf", "-inf", "Infinity", "nan", "x", "", "1e308"])
@pytest.mark.parametrize("key", ["mask_key", "mask_n_layers", "mask_seed", "mask_layer", "mask_head"])
def test_a_number_that_cannot_be_opens_the_default(key, value):
    at = open_page("mask_explorer", **{key: value})
    assert not at.exception
    assert at.number_input(key=key).value == open_page("mask_explorer").number_input(key=key).value


def test_a_number_in_the_address_is_still_read():
    assert open_page("mask_explorer", mask_seed="41").number_input(key="mask_seed").value == 41


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("![](//evil/a.png)", r"\!\[\](//evil/a.png)"),
        ("[a](//evil)", r"\[a\](//evil)"),
        ("$x$", r"\$x\$"),
        ("**b**", r"\*\*b\*\*"),
        (":red[hi]", r":red\[hi\]"),
        ("http://evil", r"http\://evil"),
        ("`a`<b>", r"\`a\`\<b\>"),
    ],
)
def test_what_was_typed_is_shown_and_does_not_act(typed, shown):
    assert plain(typed) == shown
    at = open_page("decode_paths", paths_chunks=typed)
    assert not at.exception
    assert shown in at.error[0].value
