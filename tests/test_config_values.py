"""Whatever JSON a configuration's keys hold, it is described or refused in one line, quickly, and sizes hold."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore.published.describe import describe
from kvcore.published.formats import FORMATS
from kvcore.published.reader import REMOTE, library
from kvcore.published.sizes import CONVENTIONS, Ask, size
from kvcore.size_command import lines, to_json

FAMILIES = {
    **{name: {"model_type": name} for name in library()["families"]},
    **{name: {"model_type": name, "num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 64}
       for name in (*REMOTE, "never-heard-of")},
}  # fmt: skip
FAMILIES["nemotron-nas"]["block_configs"] = [{"attention": {"n_heads_in_group": 4}}] * 4
"""A base configuration of each family: its own defaults, or the three keys that the generic rule needs."""

KEYS = (
    "model_type", "num_hidden_layers", "n_layer", "num_attention_heads", "n_head", "num_key_value_heads",
    "num_kv_heads", "n_head_kv", "hidden_size", "n_embd", "head_dim", "v_head_dim", "vocab_size",
    "max_position_embeddings", "dtype", "torch_dtype", "intermediate_size", "sliding_window", "sliding_window_size",
    "use_sliding_window", "max_window_layers", "sliding_window_pattern", "_sliding_window_pattern", "layer_types",
    "layers_block_type", "local_attention", "global_attn_every_n_layers", "hybrid_override_pattern",
    "hybrid_layer_pattern", "attention_types", "window_size", "block_configs", "block_types", "attn_config",
    "linear_attn_config", "attn_layer_indices", "attn_layer_offset", "attn_layer_period", "attn_type_list",
    "full_attn_idxs", "full_attention_interval", "cross_attention_layers", "hybrid_layer_ids", "no_rope_layers",
    "no_rope_layer_interval", "attention_chunk_size", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
    "index_head_dim", "num_kv_shared_layers", "per_layer_config", "global_head_dim", "num_global_key_value_heads",
    "attention_k_eq_v", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "multi_query",
    "new_decoder_architecture", "multi_query_attention", "multi_query_group_num", "num_layers", "num_layers_per_stack",
    "H_cycles", "L_cycles", "mamba_d_conv", "mamba_d_state", "mamba_expand", "conv_kernel", "text_config",
    "thinker_config",
)  # fmt: skip
"""Keys that decide something in some family."""

WITHIN = st.sampled_from([
    "kv_n_heads", "attn_type", "attention", "n_heads_in_group", "no_op", "full_attn_layers", "num_heads", "head_dim",
    "num_key_value_heads", "model_type", "num_hidden_layers", "0", "3", "٣", "9" * 5000, "text_config",
])  # fmt: skip
WORDS = st.sampled_from([
    "", "32", "auto", "false", "llama", "M*E-", "LLLG", "full_attention", "sliding_attention", "mamba", "global",
    "local", "multiquery_attention", "bfloat16", "two\nlines", "\ud800",
])  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([10**5, 10**7, 2**40, 2**63, 10**400, -(10**30), 0.5, 2.0, 1e30, 1e308]),
    st.floats(),
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS, st.text(max_size=5))
VALUES = st.one_of(
    PLAIN,
    st.recursive(
        PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WITHIN, inner, max_size=3), max_leaves=8
    ),
    st.builds(lambda entry, length: [entry] * length, PLAIN, st.sampled_from([1, 4, 12, 32, 5000])),
)
ASKS = st.builds(
    Ask,
    context=st.sampled_from([0, 1, 1000, 1 << 40]),
    batch=st.sampled_from([1, 1 << 30]),
    format=st.sampled_from([*FORMATS]),
    convention=st.sampled_from([*CONVENTIONS]),
    devices=st.sampled_from([1, 3, 1 << 20]),
)


@st.composite
def changes(draw, name):
    """One to three keys of a family with other values."""
    own = sorted({*KEYS, *library()["families"].get(name, {"defaults": ()})["defaults"]})
    return draw(st.dictionaries(st.sampled_from(own), VALUES, min_size=1, max_size=3))


def outcome(config):
    """The description, or the text of the refusal."""
    try:
        return describe(config)
    except ValueError as error:
        return str(error) if type(error) is ValueError else repr(error) + "\n"


@pytest.mark.parametrize("name", FAMILIES)
def test_any_values_are_described_or_refused_in_one_line(name):
    @settings(max_examples=6, derandomize=True, deadline=None, database=None)
    @given(changes(name), ASKS)
    def check(changed, ask):
        model = outcome(FAMILIES[name] | changed)
        if isinstance(model, str):
            assert model.isprintable(), model
            assert len(model) <= 300, model
        else:
            taken = size(model, ask)
            assert 1 <= model.n_layers <= 4000
            assert min(taken.bytes, taken.bytes_per_device, taken.fixed_state_bytes or 0) >= 0
            assert len(json.dumps(to_json(model, taken), allow_nan=False)) < 4_000_000
            assert "\n".join(lines(model, taken)).encode()

    check()


@pytest.mark.parametrize("name", FAMILIES)
def test_no_key_of_a_family_fails_otherwise_with_a_value_of_another_kind(name):
    for key in sorted(
        {*FAMILIES[name], *library()["families"].get(name, {"defaults": ()})["defaults"], "kv_lora_rank"}
    ):
        for value in (None, "x", -1, 1, 10**300, ["x"], {"x": None}):
            model = outcome(FAMILIES[name] | {key: value})
            assert isinstance(model, str) or lines(model, size(model, Ask(1000)))
            assert not isinstance(model, str) or (model.isprintable() and len(model) <= 300), (key, value, model)


@pytest.mark.parametrize("key", ["full_attn_layers", "kda_layers"])
def test_long_lists_are_read(key):
    config = {"model_type": "kimi_linear", "num_hidden_layers": 2000, "linear_attn_config": {key: [1] * 250_000}}
    assert describe(config).n_layers == 2000
