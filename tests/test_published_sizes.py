"""Sizes under named conventions, formats and devices: properties, and the traps by name."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.published.describe import describe
from kvcore.published.fits import device_bytes, longest_context, sequences
from kvcore.published.formats import FORMATS
from kvcore.published.layer import Description, Layer
from kvcore.published.presets import names, preset
from kvcore.published.sizes import CONVENTIONS, Ask, bytes_per_token, size
from kvcore.units import both_units

widths = st.integers(1, 300)
windows = st.one_of(st.none(), st.integers(1, 5000))


@st.composite
def layers(draw):
    kind = draw(st.sampled_from(("full", "sliding", "chunked", "latent", "recurrent", "shared", "cross", "none")))
    if kind == "recurrent":
        return Layer(kind, state_elements=draw(st.integers(0, 10**6)))
    if kind in ("shared", "cross", "none"):
        return Layer(kind)
    window = draw(st.integers(1, 5000)) if kind in ("sliding", "chunked") else None
    n_heads = 1 if kind == "latent" else draw(st.integers(1, 16))
    return Layer(kind, n_heads, draw(widths), draw(widths), window, index_width=draw(st.sampled_from((0, 128))))


@st.composite
def models(draw):
    return Description("made up", "", tuple(draw(st.lists(layers(), min_size=1, max_size=5))), 64, 16, 4)


asks = st.builds(
    Ask,
    context=st.integers(0, 10**6),
    batch=st.integers(1, 64),
    format=st.sampled_from(sorted(FORMATS)),
    convention=st.sampled_from(sorted(CONVENTIONS)),
    devices=st.integers(1, 16),
)


def by_definition(model, ask):
    """Token by token and row by row, apart from the engine: bytes of all heads, on one device."""
    per_block = {"f32": (1, 4), "bf16": (1, 2), "f16": (1, 2), "fp8": (1, 1), "int8": (1, 1), "int4": (2, 1),
                 "q8_0": (32, 34), "q4_0": (32, 18)}  # fmt: skip
    block, block_bytes = per_block[ask.format]
    total = 0
    for layer in model.layers:
        if layer.kind not in ("full", "sliding", "chunked", "latent"):
            continue
        kept = ask.context
        if layer.window is not None:
            most = {"live": layer.window, "static": layer.window, "dynamic": layer.window - 1, "full": math.inf}
            kept = min(kept, most[ask.convention])
        rows = [layer.key_width, layer.value_width] * layer.n_kv_heads
        if ask.convention in ("live", "full") and layer.index_width:
            rows.append(layer.index_width)
        total += kept * sum(math.ceil(width / block) * block_bytes for width in rows)
    return total * ask.batch


@given(models(), asks)
def test_bytes_are_rows_times_tokens_by_definition(model, ask):
    alone = Ask(ask.context, ask.batch, ask.format, ask.convention)
    assert size(model, alone).bytes == by_definition(model, alone)
    assert size(model, alone).bytes_per_device == size(model, alone).bytes


@given(models(), asks, st.integers(0, 10**5), st.integers(0, 9))
def test_a_size_never_falls_when_context_batch_or_bytes_grow(model, ask, tokens, more):
    now = size(model, ask).bytes
    longer = Ask(ask.context + tokens, ask.batch, ask.format, ask.convention, ask.devices)
    wider = Ask(ask.context, ask.batch + more, ask.format, ask.convention, ask.devices)
    assert now <= size(model, longer).bytes
    assert now <= size(model, wider).bytes
    order = ("int4", "int8", "bf16", "f32")
    by_format = [size(model, Ask(ask.context, ask.batch, name, ask.convention)).bytes for name in order]
    assert by_format == sorted(by_format)


@given(models(), asks)
def test_devices_never_undercount(model, ask):
    alone = size(model, Ask(ask.context, ask.batch, ask.format, ask.convention)).bytes
    shared = size(model, ask)
    assert alone <= shared.bytes <= shared.bytes_per_device * ask.devices


@given(models(), asks)
def test_a_window_beyond_the_context_changes_nothing(model, ask):
    def moved(layer, window, kind):
        return Layer(kind, layer.n_kv_heads, layer.key_width, layer.value_width, window, layer.index_width)

    sliding = [layer for layer in model.layers if layer.kind == "sliding"]
    beyond = Description("", "", tuple(moved(layer, ask.context + 2, "sliding") for layer in sliding), 64, 16, 4)
    full = Description("", "", tuple(moved(layer, None, "full") for layer in sliding), 64, 16, 4)
    assert size(beyond, ask).bytes == size(full, ask).bytes


@given(models(), asks, st.integers(1, 2**42))
def test_the_inverse_returns_what_fits_and_one_more_does_not(model, ask, budget):
    """Consistent to the token: what is returned fits, one more does not."""
    for fit, changed in ((longest_context(model, ask, budget), "context"), (sequences(model, ask, budget), "batch")):
        if fit.unbounded:
            continue
        assert fit.bytes <= fit.free_bytes < fit.next_bytes
        if fit.number:
            given_back = {"context": ask.context, "batch": ask.batch} | {changed: fit.number}
            again = Ask(**given_back, format=ask.format, convention=ask.convention, devices=ask.devices)
            assert device_bytes(model, again) == fit.bytes


@given(asks.filter(lambda ask: ask.context > 0))
def test_the_inverse_of_a_size_is_its_context(ask):
    model = preset("Gemma-3-27B")
    budget = device_bytes(model, ask)
    assert longest_context(model, ask, budget).number == ask.context
    assert sequences(model, ask, budget).number >= ask.batch


def test_local_layers_have_four_sizes_and_each_has_its_name():
    """Fact 1: rolling buffer W, transformers' dynamic cache W − 1, tools without windows everything."""
    model = preset("Mistral-7B-v0.1")
    kept = {name: size(model, Ask(32768, convention=name)).layers[0].tokens for name in CONVENTIONS}
    assert kept == {"live": 4096, "dynamic": 4095, "static": 4096, "full": 32768}


def test_q8_0_and_q4_0_round_each_row_up_to_whole_blocks():
    assert FORMATS["q8_0"].row_bytes(128) == 136
    assert FORMATS["q8_0"].row_bytes(96) == 102
    assert FORMATS["q8_0"].row_bytes(33) == 68
    assert FORMATS["q4_0"].row_bytes(64) == 36
    llama = preset("Llama-3-8B")
    assert bytes_per_token(llama, "q8_0") * 2 == bytes_per_token(llama, "bf16") * 34 / 32
    assert bytes_per_token(preset("Phi-3-mini-4k"), "q4_0") == 2 * 32 * 32 * 3 * 18


def test_kv_heads_are_replicated_once_there_are_more_devices():
    llama = preset("Llama-3-8B")
    alone = size(llama, Ask(1000)).bytes
    assert size(llama, Ask(1000, devices=8)).bytes_per_device * 8 == alone
    assert size(llama, Ask(1000, devices=16)).bytes == 2 * alone


def test_a_latent_cache_is_replicated_on_every_device():
    deepseek = preset("DeepSeek-V3")
    assert size(deepseek, Ask(1000, devices=8)).bytes_per_device == size(deepseek, Ask(1000)).bytes


def test_recent_and_older_mla_caches_are_71_times_apart():
    """Fact 3: 128 · (192 + 128) numbers decompressed against 512 + 64."""
    layer = preset("DeepSeek-V3").layers[0]
    assert layer.elements == 576
    assert round(128 * (192 + 128) / layer.elements, 1) == 71.1


def test_a_recurrent_state_does_not_grow_and_is_not_added_to_the_bytes():
    qwen = preset("Qwen3.5-27B")
    small, large = (size(qwen, Ask(n)) for n in (10, 10**6))
    assert small.fixed_state_bytes == large.fixed_state_bytes > 0
    assert large.bytes == 10**6 * 65536


def test_an_unknown_state_is_none_and_not_zero():
    model = Description("", "", (Layer("recurrent", state_elements=None), Layer("full", 1, 8, 8)), 8, 1, 8)
    assert size(model, Ask(10)).fixed_state_bytes is None


def test_experts_do_not_change_the_cache():
    """Complaint 14: a mixture has the K/V of its attention alone."""
    eight, one = ({"model_type": "mixtral", "num_local_experts": n, "hidden_size": 4096} for n in (8, 1))
    assert bytes_per_token(describe(eight)) == bytes_per_token(describe(one)) == 131072


def test_gib_and_gb_have_their_own_names():
    """Fact 10 and complaint 12: the same bytes in both units."""
    assert both_units(2048 * 819200) == "1.56 GiB (1.68 GB)"
    assert both_units(70272) == "68.6 KiB (70.3 kB)"
    assert both_units(12) == "12 bytes"


@pytest.mark.parametrize(("ask", "words"), [
    ({"context": -1}, "context is -1"), ({"context": 1, "batch": 0}, "batch is 0"),
    ({"context": 1, "format": "fp4"}, "format is 'fp4'"), ({"context": 1, "convention": "alive"}, "one of live"),
    ({"context": 1, "devices": 0}, "devices is 0"), ({"context": 2**50}, "context is"),
])  # fmt: skip
def test_what_is_not_allowed_says_what_is(ask, words):
    with pytest.raises(ValueError, match=words):
        Ask(**ask)


def test_weights_that_leave_nothing_are_one_sentence():
    with pytest.raises(ValueError, match="leave nothing"):
        sequences(preset("Llama-3-8B"), Ask(10), 10, 10)


@pytest.mark.parametrize("name", names())
def test_conventions_never_hold_less_than_what_the_architecture_needs_but_for_the_next_token(name):
    model = preset(name)
    at = {kind: size(model, Ask(10**5, convention=kind)) for kind in CONVENTIONS}
    assert at["live"].bytes <= at["full"].bytes
    short = [a.tokens - b.tokens for a, b in zip(at["live"].layers, at["dynamic"].layers, strict=True)]
    assert set(short) <= {0, 1}
