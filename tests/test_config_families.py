"""Every row of the table of families: a config.json as published, with keys absent and with null, and what it keeps.

Where transformers has the family's class, its own reading of the same file is beside the description.
"""

import json

import pytest
from transformers import AutoConfig, DynamicCache

from kvcore.published.describe import describe
from kvcore.published.sizes import Ask, size, tokens_kept

D128 = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 1024}
MANY = 1 << 30


def config(model_type, **keys):
    return {"model_type": model_type, **D128, **keys}


def shapes(*layers):
    return [(layer.kind, layer.n_kv_heads, layer.key_width, layer.value_width, layer.window) for layer in layers]


def kept(file):
    """(KV heads, width, W or None) of every layer of the description that keeps keys and values."""
    return [
        (layer.n_kv_heads, layer.key_width, layer.window)
        for layer in describe(file).layers
        if layer.kind in ("full", "sliding", "chunked")
    ]


def library(file):
    """The same as transformers reads it: KV heads and width of its class, W of the layers of its cache."""
    keys = {key: value for key, value in json.loads(json.dumps(file)).items() if key != "model_type"}
    read = AutoConfig.for_model(file["model_type"], **keys)
    text = read.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    layers = [layer for layer in DynamicCache(config=read).layers if type(layer).__name__.startswith("Dynamic")]
    return [(heads, width, getattr(layer, "sliding_window", None)) for layer in layers]


def rule(file, fact):
    """(how, why) of the last rule that says this fact."""
    return [(each.how, each.why) for each in describe(file).rules if each.fact == fact][-1]


@pytest.mark.parametrize("model_type", ["llama", "olmo", "olmo2", "cohere", "phi", "phi3", "granite"])
@pytest.mark.parametrize("keys", [{}, {"num_key_value_heads": None}, {"num_key_value_heads": 2}])
def test_llama_olmo_cohere_phi_granite_share_heads_only_where_told(model_type, keys):
    file = config(model_type, **keys)
    assert kept(file) == library(file) == [(keys.get("num_key_value_heads") or 8, 128, None)] * 4


@pytest.mark.parametrize(("keys", "expected"), [
    ({}, (8, 128, 4096)), ({"sliding_window": None}, (8, 128, None)), ({"head_dim": 160}, (8, 160, 4096)),
    ({"num_key_value_heads": 2, "sliding_window": 8}, (2, 128, 8)), ({"head_dim": None}, (8, 128, 4096)),
])  # fmt: skip
def test_mistral_slides_in_every_layer_unless_its_window_is_null(keys, expected):
    file = config("mistral", **keys)
    assert kept(file) == library(file) == [expected] * 4


@pytest.mark.parametrize(("keys", "expected"), [
    ({}, (8, 128, None)), ({"sliding_window": 4096, "head_dim": None}, (8, 128, 4096)),
])  # fmt: skip
def test_mixtral_has_no_window_of_its_own_and_null_head_dim_is_width_by_heads(keys, expected):
    file = config("mixtral", **keys)
    assert kept(file) == library(file) == [expected] * 4
    if "head_dim" in keys:
        assert "head_dim is null" in rule(file, "head_dim")[1]


@pytest.mark.parametrize(("keys", "windows"), [
    ({"sliding_window": 32768}, [None] * 4),
    ({"sliding_window": 32768, "use_sliding_window": False}, [None] * 4),
    ({"use_sliding_window": True, "max_window_layers": 3}, [None, None, None, 4096]),
    ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 70}, [None] * 4),
    ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}, [16] * 4),
])  # fmt: skip
@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_qwen_slides_only_with_use_sliding_window_and_from_max_window_layers_on(model_type, keys, windows):
    file = config(model_type, num_key_value_heads=2, **keys)
    assert kept(file) == library(file) == [(2, 128, window) for window in windows]


def test_qwen_absent_kv_heads_are_32_and_qwen3_heads_are_128_wide():
    for model_type, width in (("qwen2", 16), ("qwen3", 128)):
        file = config(model_type, num_attention_heads=64)
        assert kept(file) == library(file) == [(32, width, None)] * 4


def test_gemma_has_heads_wider_than_width_by_heads():
    file = config("gemma", num_attention_heads=16, hidden_size=3072)
    assert kept(file) == library(file) == [(16, 256, None)] * 4


@pytest.mark.parametrize(("keys", "window"), [
    ({}, 4096), ({"sliding_window": 4096, "sliding_window_size": 77}, 4096), ({"sliding_window": 8}, 8),
])  # fmt: skip
def test_gemma2_slides_in_even_layers_and_a_second_window_key_does_not_count(keys, window):
    file = config("gemma2", **keys)
    assert kept(file) == library(file) == [(4, 256, window), (4, 256, None)] * 2


@pytest.mark.parametrize("keys", [
    {}, {"sliding_window": 1024}, {"sliding_window": 1024, "sliding_window_pattern": 3},
    {"sliding_window": 16, "layer_types": ["full_attention", *["sliding_attention"] * 6]},
])  # fmt: skip
def test_gemma3_absent_keys_are_those_of_its_class_and_the_pattern_counts(keys):
    inner = {"num_hidden_layers": 7, "hidden_size": 2560, **keys}
    assert kept({"model_type": "gemma3", "text_config": inner}) == library(
        {"model_type": "gemma3", "text_config": inner}
    )
    first = kept({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **inner}})[0]
    assert first[:2] == (4, 256)


def test_gemma3_absent_window_is_4096_and_not_1024():
    assert kept({"model_type": "gemma3", "text_config": {}})[0] == (4, 256, 4096)


@pytest.mark.parametrize(("keys", "n_keeping"), [
    ({}, 20), ({"num_kv_shared_layers": 0}, 35), ({"num_kv_shared_layers": 10}, 25),
])  # fmt: skip
def test_gemma3n_last_layers_store_nothing_and_none_of_them_is_not_all(keys, n_keeping):
    file = {"model_type": "gemma3n_text", **keys}
    assert kept(file) == library(file)
    assert len(kept(file)) == n_keeping
    assert describe(file).n_layers == 35


@pytest.mark.parametrize(("keys", "full"), [
    ({}, ("full", 4, 512, 512, None)), ({"global_head_dim": 64}, ("full", 4, 64, 64, None)),
    ({"num_global_key_value_heads": 2}, ("full", 4, 512, 512, None)),
    ({"num_global_key_value_heads": 2, "attention_k_eq_v": True}, ("full", 2, 512, 512, None)),
    ({"attention_k_eq_v": True}, ("full", 4, 512, 512, None)),
])  # fmt: skip
@pytest.mark.parametrize(("model_type", "window"), [("gemma4_text", 512), ("gemma4_unified_text", 1024)])
def test_gemma4_global_heads_count_only_where_keys_serve_as_values(model_type, window, keys, full):
    file = {"model_type": model_type, "num_hidden_layers": 7, **keys}
    layers = describe(file).layers
    assert shapes(layers[0], layers[5], layers[6]) == [("sliding", 4, 256, 256, window), full, full]
    read = AutoConfig.for_model(**file).per_layer_config
    assert [(each.num_key_value_heads, each.head_dim) for each in read] == [heads[:2] for heads in kept(file)]
    assert kept({"model_type": model_type, **json.loads(AutoConfig.for_model(**file).to_json_string())}) == kept(file)


def test_gpt2_goes_by_its_own_names():
    file = {"model_type": "gpt2", "n_layer": 3, "n_head": 4, "n_embd": 64, "n_ctx": 256, "n_positions": 512}
    assert kept(file) == library(file) == [(4, 16, None)] * 3
    assert describe(file).max_context == 512


@pytest.mark.parametrize(("keys", "heads"), [({}, 1), ({"multi_query": True}, 1), ({"multi_query": False}, 4)])
def test_gpt_bigcode_has_one_kv_head_unless_multi_query_is_false(keys, heads):
    file = {"model_type": "gpt_bigcode", "n_layer": 2, "n_head": 4, "n_embd": 64, **keys}
    assert kept(file) == [(heads, 16, None)] * 2


def test_gpt_neo_alternates_and_the_library_keeps_every_token():
    file = {"model_type": "gpt_neo", "num_layers": 4, "num_heads": 4, "hidden_size": 64,
            "attention_types": [[["global", "local"], 2]]}  # fmt: skip
    layers = describe(file).layers
    assert shapes(*layers[:2]) == [("full", 4, 16, 16, None), ("sliding", 4, 16, 16, 256)]
    assert [tokens_kept(layer, 1000, "live") for layer in layers] == [1000, 256] * 2
    assert {tokens_kept(layer, 1000, "dynamic") for layer in layers} == {1000}
    assert [window for *_, window in library(file)] == [None] * 4
    without = {key: value for key, value in file.items() if key != "attention_types"}
    assert describe(without).layers == layers
    assert rule(without, "layer kinds")[0] == "absent"


@pytest.mark.parametrize("model_type", ["gptj", "codegen"])
def test_gptj_and_codegen_have_one_kv_head_a_head_and_rotary_dim_does_not_count(model_type):
    file = {"model_type": model_type, "n_layer": 2, "n_head": 4, "n_embd": 64, "rotary_dim": 8}
    assert kept(file) == library(file) == [(4, 16, None)] * 2


@pytest.mark.parametrize("file", [
    config("gpt_neox"), config("opt", word_embed_proj_dim=512), config("persimmon"),
    {"model_type": "bloom", "n_layer": 4, "n_head": 8, "hidden_size": 1024},
    {"model_type": "bloom", "n_layer": 4, "num_attention_heads": 8, "n_embed": 1024},
])  # fmt: skip
def test_gpt_neox_opt_bloom_persimmon_have_no_key_for_kv_heads(file):
    assert kept(file) == library(file) == [(8, 128, None)] * 4


@pytest.mark.parametrize(("keys", "live", "dynamic"), [
    ({"multi_query": True, "new_decoder_architecture": False, "num_kv_heads": 71}, 1, 1),
    ({"multi_query": True, "num_kv_heads": None}, 1, 1),
    ({"multi_query": False}, 8, 8),
    ({"new_decoder_architecture": True, "num_kv_heads": 2, "multi_query": True, "alibi": True}, 2, 8),
])  # fmt: skip
def test_falcon_kv_heads_count_only_in_the_newer_architecture_and_the_library_stores_all(keys, live, dynamic):
    model = describe(config("falcon", **keys))
    assert model.layers[0].n_kv_heads == live
    sizes = [size(model, Ask(10, convention=name)).bytes for name in ("live", "dynamic")]
    assert sizes == [2 * 2 * 10 * 128 * 4 * heads for heads in (live, dynamic)]


@pytest.mark.parametrize(("file", "heads"), [
    ({"model_type": "RefinedWebModel", "multi_query": True, "n_head": 71, "hidden_size": 4544}, 1),
    ({"model_type": "RefinedWebModel", "multi_query": False, "n_head": 71, "hidden_size": 4544}, 71),
    ({"model_type": "RefinedWeb", "n_head": 128, "n_head_kv": 8, "hidden_size": 8192}, 8),
])  # fmt: skip
def test_falcon_files_older_than_its_class_go_by_n_head_kv_and_multi_query(file, heads):
    assert kept(file | {"n_layer": 2}) == [(heads, 64, None)] * 2


@pytest.mark.parametrize(("attention", "heads"), [
    ({}, 8), ({"attn_config": {"model_type": ""}}, 8), ({"attn_config": None}, 8),
    ({"attn_config": {"kv_n_heads": 2, "attn_type": "grouped_query_attention"}}, 2),
    ({"attn_config": {"attn_type": "multiquery_attention"}}, 1),
])  # fmt: skip
def test_mpt_kv_heads_are_in_attn_config_and_the_library_knows_only_n_heads(attention, heads):
    file = {"model_type": "mpt", "n_layers": 4, "n_heads": 8, "d_model": 1024, "max_seq_len": 99, **attention}
    model = describe(file)
    assert kept(file) == [(heads, 128, None)] * 4
    assert model.max_context == 99
    assert size(model, Ask(1, convention="dynamic")).bytes == 4 * 2 * 8 * 128 * 2


@pytest.mark.parametrize(("attention", "heads"), [
    ({}, 1), ({"attn_config": None}, 1), ({"attn_config": {}}, 1), ({"attn_config": {"kv_n_heads": 2}}, 2),
])  # fmt: skip
def test_dbrx_kv_heads_are_in_attn_config_and_absent_ones_are_1(attention, heads):
    file = {"model_type": "dbrx", "n_layers": 4, "n_heads": 8, "d_model": 1024, **attention}
    assert kept(file) == [(heads, 128, None)] * 4
    read = AutoConfig.for_model(file["model_type"], **{k: v for k, v in file.items() if k != "model_type"})
    assert read.attn_config.kv_n_heads == heads


@pytest.mark.parametrize(("keys", "row"), [
    ({}, (512, 64)), ({"num_key_value_heads": None, "q_lora_rank": None, "kv_lora_rank": 256}, (256, 64)),
    ({"q_lora_rank": 0, "num_key_value_heads": 3, "head_dim": 77, "qk_rope_head_dim": 32}, (512, 32)),
])  # fmt: skip
@pytest.mark.parametrize("model_type", ["deepseek_v2", "deepseek_v3", "glm_moe_dsa", "kimi_k2"])
def test_deepseek_keeps_one_row_a_layer_and_kv_heads_and_head_dim_do_not_count(model_type, keys, row):
    known = {"kv_lora_rank": 512, "qk_rope_head_dim": 64} if model_type == "kimi_k2" else {}
    layers = describe(config(model_type, **(known | keys))).layers
    assert {(layer.kind, layer.n_kv_heads, layer.key_width, layer.value_width) for layer in layers} == {
        ("latent", 1, *row)
    }


def test_deepseek_v32_keeps_an_indexers_key_beside_the_row():
    assert describe(config("deepseek_v32")).layers[0].elements == 512 + 64 + 128


def test_kv_lora_rank_in_a_family_without_latent_attention_does_not_count():
    assert kept(config("llama", kv_lora_rank=512)) == kept(config("llama"))


@pytest.mark.parametrize("keys", [{}, {"sliding_window": 16}, {"layer_types": ["full_attention"] * 4}])
def test_gpt_oss_alternates_sliding_first_with_8_kv_heads_of_64(keys):
    file = config("gpt_oss", **keys)
    window = keys.get("sliding_window", 128)
    alternating = [(8, 64, window), (8, 64, None)] * 2
    assert kept(file) == library(file) == ([(8, 64, None)] * 4 if "layer_types" in keys else alternating)


@pytest.mark.parametrize("window", [2047, 262144, None])
def test_phi3_slides_in_every_layer_where_its_window_is_given(window):
    file = config("phi3", sliding_window=window)
    assert kept(file) == library(file) == [(8, 128, window)] * 4


def test_starcoder2_absent_kv_heads_are_2():
    file = config("starcoder2", sliding_window=4096)
    assert kept(file) == library(file) == [(2, 128, 4096)] * 4


@pytest.mark.parametrize(("keys", "heads"), [
    ({"multi_query_attention": True, "multi_query_group_num": 2}, 2), ({"multi_query_attention": False}, 8), ({}, 8),
])  # fmt: skip
def test_chatglm_has_groups_only_with_multi_query_attention(keys, heads):
    file = {"model_type": "chatglm", "num_layers": 4, "num_attention_heads": 8, "hidden_size": 512, "kv_channels": 128,
            "seq_length": 8192, "padded_vocab_size": 65024, **keys}  # fmt: skip
    model = describe(file)
    assert kept(file) == [(heads, 128, None)] * 4
    assert (model.max_context, model.vocab_size) == (8192, 65024)


def test_glm_absent_kv_heads_are_2():
    file = config("glm")
    assert kept(file) == library(file) == [(2, 128, None)] * 4


def test_qwen_1_has_one_kv_head_a_head_as_wide_as_kv_channels():
    file = config("qwen", kv_channels=64, seq_length=8192)
    assert kept(file) == [(8, 64, None)] * 4
    assert describe(file).max_context == 8192


def test_phi_msft_null_n_head_kv_is_one_a_head():
    file = {"model_type": "phi-msft", "n_layer": 4, "n_head": 8, "n_embd": 1024, "n_head_kv": None}
    assert kept(file) == [(8, 128, None)] * 4


@pytest.mark.parametrize("keys", [{}, {"sliding_window": 16}, {"layer_types": ["sliding_attention"] * 4}])
@pytest.mark.parametrize("model_type", ["cohere2", "exaone4", "olmo3"])
def test_cohere2_exaone4_olmo3_have_three_sliding_layers_to_one_full(model_type, keys):
    file = config(model_type, num_key_value_heads=2, **keys)
    window = keys.get("sliding_window", 4096)
    last = window if "layer_types" in keys else None
    assert kept(file) == library(file) == [(2, 128, window)] * 3 + [(2, 128, last)]


@pytest.mark.parametrize("pattern", [2, "LG"])
def test_exaone4_a_pattern_may_be_a_number_or_letters(pattern):
    file = config("exaone4", num_key_value_heads=2, sliding_window_pattern=pattern)
    assert [layer.kind for layer in describe(file).layers] == ["sliding", "full"] * 2


@pytest.mark.parametrize(("keys", "chunks"), [
    ({}, [8192, 8192, 8192, None]), ({"attention_chunk_size": None}, [None] * 4),
    ({"attention_chunk_size": 16, "no_rope_layers": [1, 0, 1, 0]}, [16, None, 16, None]),
    ({"no_rope_layers": []}, [8192, 8192, 8192, None]), ({"no_rope_layer_interval": 2}, [8192, None] * 2),
])  # fmt: skip
def test_llama4_rope_layers_keep_a_chunk_and_the_others_everything(keys, chunks):
    file = {"model_type": "llama4", "text_config": config("llama4_text", **keys)}
    assert kept(file) == [(8, 128, chunk) for chunk in chunks]
    assert [window for *_, window in library(file)] == chunks
    held = [tokens_kept(layer, MANY, "dynamic") for layer in describe(file).layers]
    assert held == [chunk - 1 if chunk else MANY for chunk in chunks]


@pytest.mark.parametrize(("keys", "crossing"), [
    ({}, [3, 8, 13, 18, 23, 28, 33, 38]), ({"cross_attention_layers": [1, 2]}, [1, 2]),
    ({"cross_attention_layers": None}, [3, 8, 13, 18, 23, 28, 33, 38]), ({"cross_attention_layers": []}, []),
])  # fmt: skip
def test_mllama_cross_attention_layers_keep_no_text(keys, crossing):
    layers = describe({"model_type": "mllama", "text_config": keys}).layers
    assert [index for index, layer in enumerate(layers) if layer.kind == "cross"] == crossing
    assert len(layers) == 40
    assert layers[0].n_kv_heads == 8


@pytest.mark.parametrize(("keys", "full"), [
    ({}, [4, 12, 20, 28]), ({"attn_layer_period": 4, "attn_layer_offset": 1}, [1, 5, 9, 13, 17, 21, 25, 29]),
])  # fmt: skip
def test_jamba_has_attention_where_i_modulo_the_period_is_the_offset(keys, full):
    file = {"model_type": "jamba", **keys}
    kinds = [layer.kind for layer in describe(file).layers]
    assert [index for index, kind in enumerate(kinds) if kind == "full"] == full
    read = AutoConfig.for_model(**file).layer_types
    assert [kind == "full_attention" for kind in read] == [kind == "full" for kind in kinds]


@pytest.mark.parametrize("file", [
    config("qwen3_next"), config("qwen3_next", full_attention_interval=2),
    config("qwen3_next", layer_types=["linear_attention", "full_attention"] * 2),
    {"model_type": "qwen3_5", "text_config": config("qwen3_5_text", num_key_value_heads=2)},
])  # fmt: skip
def test_qwen3_next_linear_attention_does_not_grow(file):
    assert kept(file) == library(file)
    assert {layer.kind for layer in describe(file).layers} == {"full", "recurrent"}
    assert all(tokens_kept(layer, 99, "live") == 0 for layer in describe(file).layers if layer.kind == "recurrent")


@pytest.mark.parametrize("keys", [
    {"hybrid_override_pattern": "M-M*ME"}, {"hybrid_override_pattern": "M-M*ME", "num_hidden_layers": 4},
    {"layers_block_type": ["mamba", "mlp", "mamba", "attention", "mamba", "moe"]},
    {"layers_block_type": ["mamba", "mlp", "mamba", "attention", "mamba", "moe"], "hybrid_override_pattern": "**"},
])  # fmt: skip
def test_nemotron_h_counts_the_stars_and_the_list_decides_the_depth(keys):
    file = {"model_type": "nemotron_h", **keys}
    assert [layer.kind for layer in describe(file).layers] == [
        "recurrent",
        "none",
        "recurrent",
        "full",
        "recurrent",
        "none",
    ]
    assert kept(file) == library(file) == [(8, 128, None)]


@pytest.mark.parametrize("keys", [{}, {"num_hidden_layers": 4}])
def test_nemotron_h_without_a_pattern_has_the_four_layers_of_its_class(keys):
    file = {"model_type": "nemotron_h", **keys}
    assert [layer.kind for layer in describe(file).layers] == ["recurrent", "none", "full", "none"]
    assert kept(file) == library(file)


def test_nemotron_nas_layers_have_groups_of_their_own_or_no_attention():
    blocks = [{"attention": {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}},
              {"attention": {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}},
              {"attention": {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}},
              {"attention": {"n_heads_in_group": 2}}]  # fmt: skip
    file = config("nemotron-nas", num_key_value_heads=None, block_configs=blocks)
    assert shapes(*describe(file).layers) == [
        ("full", 1, 128, 128, None), *[("none", 0, 0, 0, None)] * 2, ("full", 4, 128, 128, None)]  # fmt: skip


MIMO = {"num_hidden_layers": 6, "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0], "head_dim": 192, "v_head_dim": 128,
        "num_attention_heads": 64, "num_key_value_heads": 4, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
        "swa_v_head_dim": 128, "sliding_window": 128, "sliding_window_size": 128}  # fmt: skip


@pytest.mark.parametrize("absent", [
    (), ("hybrid_layer_pattern",), ("head_dim", "v_head_dim"), ("v_head_dim", "swa_v_head_dim", "swa_head_dim"),
    ("num_key_value_heads", "swa_num_key_value_heads"),
])  # fmt: skip
def test_mimo_keys_and_values_differ_in_width_and_absent_keys_are_those_of_its_class(absent):
    file = {"model_type": "mimo_v2_flash", **{key: value for key, value in MIMO.items() if key not in absent}}
    layers = describe(file).layers
    full, sliding = ("full", 4, 192, 128, None), ("sliding", 8, 192, 128, 128)
    assert shapes(*layers) == [full, *[sliding] * 4, full]
    assert layers[0].elements == 4 * (192 + 128)
    held = [window - 1 if window else MANY for *_, window in library(file)]
    assert held == [tokens_kept(layer, MANY, "dynamic") for layer in layers]


@pytest.mark.parametrize(("keys", "window"), [({}, 2048), ({"attention_window_size": 16}, 16)])
def test_recurrent_gemma_slides_in_every_third_layer(keys, window):
    file = {"model_type": "recurrent_gemma", "num_hidden_layers": 6, **keys}
    assert [(layer.kind, layer.window) for layer in describe(file).layers] == [
        *[("recurrent", None)] * 2, ("sliding", window)] * 2  # fmt: skip


def test_a_layer_for_several_next_tokens_is_not_counted():
    assert describe(config("deepseek_v3", num_nextn_predict_layers=1)).n_layers == 4


@pytest.mark.parametrize(("keys", "dtype"), [
    ({"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}, "bfloat16"),
    ({"dtype": "float32"}, "float32"), ({"dtype": "float16", "torch_dtype": "bfloat16"}, "float16"), ({}, None),
])  # fmt: skip
def test_the_format_is_that_of_the_computation_and_not_of_the_weights(keys, dtype):
    assert describe(config("olmo2", **keys)).dtype == dtype


@pytest.mark.parametrize("key", [
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "model_max_length",
])  # fmt: skip
def test_the_longest_context_has_six_names(key):
    assert describe(config("never-heard-of", **{key: 8192})).max_context == 8192


def test_command_r_says_8192_though_model_max_length_is_longer():
    assert describe(config("cohere", max_position_embeddings=8192, model_max_length=131072)).max_context == 8192


def test_longcat_has_two_attentions_a_layer():
    for file in ({"model_type": "longcat_flash", "num_layers": 3}, {"model_type": "longcat_flash"}):
        assert describe(file).n_layers == len(DynamicCache(config=AutoConfig.for_model(**file)).layers)


def test_modernbert_decoder_slides_by_half_its_local_attention():
    for keys in ({}, {"local_attention": 16, "global_attn_every_n_layers": 2}):
        file = {"model_type": "modernbert-decoder", **keys}
        assert kept(file) == library(file)


def test_hrm_keeps_every_pass_through_its_stacks():
    for keys in ({}, {"num_hidden_layers": 2, "H_cycles": 1}, {"num_hidden_layers": 8, "num_layers_per_stack": 1}):
        file = {"model_type": "hrm_text", **keys}
        assert describe(file).n_layers == len(DynamicCache(config=AutoConfig.for_model(**file)).layers)
