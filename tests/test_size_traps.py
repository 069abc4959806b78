"""The traps that break naive calculators and what users complain about, each a test by its own name."""

import pytest
import torch
from transformers import DynamicCache

from kvcore.integrations.published import ARCHITECTURES
from kvcore.integrations.small import small_model
from kvcore.published.describe import describe
from kvcore.published.fits import longest_context
from kvcore.published.presets import preset
from kvcore.published.sizes import Ask, bytes_per_token, size
from tests.test_published_measured import kv_bytes, run

SHAPE = {"num_hidden_layers": 4, "num_attention_heads": 48, "hidden_size": 6144, "head_dim": 128}


def kv_heads(model_type, **keys):
    return describe({"model_type": model_type, **SHAPE, **keys}).layers[-1].n_kv_heads


def window(model_type, **keys):
    """W of the first layer that has one."""
    layers = describe({"model_type": model_type, **SHAPE, **keys}).layers
    return next((layer.window for layer in layers if layer.window), None)


@pytest.mark.parametrize(("model_types", "expected"), [
    (("llama", "phi", "phi3", "olmo", "olmo2", "cohere", "cohere2"), 48),
    (("mistral", "mixtral", "phimoe", "jamba", "mllama_text_model"), 8),
    (("gemma2", "gemma3_text"), 4), (("gpt_oss",), 8), (("qwen3_next", "glm"), 2),
])  # fmt: skip
def test_fact_4_absent_kv_heads_are_a_matter_of_the_family(model_types, expected):
    kinds = {"attn_layer_period": 2, "attn_layer_offset": 1, "cross_attention_layers": []}
    assert {name: kv_heads(name, **kinds) for name in model_types} == dict.fromkeys(model_types, expected)


def test_fact_4_absent_kv_heads_of_qwen_are_32_which_48_heads_cannot_share():
    for name in ("qwen2", "qwen3"):
        assert kv_heads(name, num_attention_heads=64) == 32
        with pytest.raises(ValueError, match="48 heads cannot share 32 KV heads"):
            kv_heads(name)


def test_fact_4_absent_kv_heads_of_deepseek_v3_do_not_count():
    layer = describe({"model_type": "deepseek_v3", "num_hidden_layers": 2}).layers[0]
    assert (layer.kind, layer.elements) == ("latent", 576)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "phi3"])
def test_fact_4_null_kv_heads_mean_one_a_head(model_type):
    assert kv_heads(model_type, num_key_value_heads=None) == 48


@pytest.mark.parametrize("model_type", ["mistral", "mixtral", "gemma2", "gemma3_text", "gpt_oss"])
def test_fact_4_null_kv_heads_are_refused_where_the_library_refuses_them(model_type):
    with pytest.raises(ValueError, match="num_key_value_heads is null"):
        kv_heads(model_type, num_key_value_heads=None)


@pytest.mark.parametrize(("model_type", "expected"), [
    ("mistral", 4096), ("ministral", 4096), ("gemma2", 4096), ("gemma3_text", 4096), ("cohere2", 4096),
    ("exaone4", 4096), ("olmo3", 4096), ("gemma3n_text", 512), ("gemma4_text", 512), ("gpt_oss", 128),
    ("mixtral", None), ("phi3", None), ("qwen2", None), ("qwen3", None),
])  # fmt: skip
def test_fact_5_an_absent_window_is_not_a_null_window(model_type, expected):
    heads = {"num_key_value_heads": 8, "num_kv_shared_layers": 0}
    assert window(model_type, **heads) == expected
    assert window(model_type, **heads, sliding_window=None) is None


def test_fact_5_recurrent_gemma_looks_back_2048_tokens():
    assert window("recurrent_gemma") == 2048


def test_fact_6_falcon_7b_has_one_kv_head_whatever_num_kv_heads_says():
    saved = {"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544,
             "multi_query": True, "new_decoder_architecture": False, "num_kv_heads": 71}  # fmt: skip
    model = describe(saved)
    assert bytes_per_token(model) == 8192
    assert any("ignored" in rule.why for rule in model.rules)


def test_fact_6_falcon_40b_has_8_kv_heads_and_the_library_stores_all_128():
    model = describe(ARCHITECTURES["Falcon 40B"])
    live, dynamic = (size(model, Ask(10, convention=name)).bytes for name in ("live", "dynamic"))
    assert dynamic == 16 * live


@pytest.mark.parametrize(("name", "width"), [
    ("Qwen3-0.6B", 128), ("Qwen3-32B", 128), ("Gemma-2-9B", 256), ("Gemma-3-27B", 128), ("gpt-oss-20b", 64),
])  # fmt: skip
def test_fact_7_the_head_width_is_not_the_width_divided_by_the_heads(name, width):
    model = preset(name)
    assert model.layers[0].key_width == width != model.d_model // model.n_heads


def test_fact_8_qwen_ignores_its_window_unless_use_sliding_window_is_true():
    keys = {"num_key_value_heads": 8, "sliding_window": 32768, "max_window_layers": 3}
    assert window("qwen2", **keys, use_sliding_window=False) is None
    kinds = [
        layer.kind for layer in describe({"model_type": "qwen2", **SHAPE, **keys, "use_sliding_window": True}).layers
    ]
    assert kinds == ["full", "full", "full", "sliding"]


def test_fact_9_sinks_of_gpt_oss_are_no_cached_tokens():
    model = preset("gpt-oss-20b")
    assert size(model, Ask(10**5)).layers[0].tokens == 128


def test_fact_9_attention_sinks_of_a_runtime_are_not_the_models():
    keys = {"num_key_value_heads": 8, "sliding_window_size": 4096}
    plain, with_sinks = (
        {"model_type": "mistral", **SHAPE, **keys, **more} for more in ({}, {"attention_sink_size": 4})
    )
    assert describe(plain).layers == describe(with_sinks).layers


def test_fact_2_right_after_the_prompt_a_local_layer_holds_a_view_of_more():
    """Live tokens and allocated bytes are different meters: numel × itemsize is what is computed, not the storage."""
    model = small_model(ARCHITECTURES["Mistral 7B v0.1"])
    cache = DynamicCache(config=model.config)
    with torch.inference_mode():
        model(torch.arange(40)[None] % 30, past_key_values=cache, use_cache=True)
    layer = cache.layers[0]
    computed = size(describe(model.config.to_dict()), Ask(40, format="f32", convention="dynamic")).layers[0]
    assert kv_bytes(layer) == computed.bytes
    assert layer.keys.untyped_storage().nbytes() > 5 * kv_bytes(layer)


def test_complaints_1_and_4_the_head_width_of_qwen3_and_the_latent_row_of_deepseek():
    qwen3_4b = {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32,
                "num_key_value_heads": 8}  # fmt: skip
    assert bytes_per_token(describe(qwen3_4b)) == 2 * 36 * 8 * 128 * 2
    assert bytes_per_token(preset("DeepSeek-V3")) == 61 * (512 + 64) * 2 != 61 * 2 * 512 * 2


def test_complaints_2_and_3_grouped_queries_are_not_the_embedding_width():
    model = preset("Llama-3-8B")
    assert bytes_per_token(model) * 4 == 2 * model.n_layers * model.d_model * 2


def test_complaint_5_hybrids_do_not_pay_for_every_layer():
    model = preset("Qwen3.5-27B")
    assert [layer.kind for layer in model.layers].count("full") == 16
    assert size(model, Ask(4096)).bytes * 4 == size(model, Ask(4096)).layers[3].bytes * 64


def test_complaint_6_a_latent_row_is_512_and_64_which_is_576():
    assert preset("DeepSeek-V2").layers[0].elements == 576


def test_complaint_7_local_and_full_layers_do_not_overwrite_each_other():
    layers = size(preset("Gemma-3-4B"), Ask(131072)).layers
    assert {layer.kind: layer.tokens for layer in layers} == {"sliding": 1024, "full": 131072}


def test_complaint_8_kv_heads_and_widths_are_a_layers_own():
    model = describe({"model_type": "gemma4_text", "num_hidden_layers": 12, "attention_k_eq_v": True,
                      "num_global_key_value_heads": 2})  # fmt: skip
    assert {(layer.kind, layer.n_kv_heads, layer.key_width) for layer in model.layers} == {
        ("sliding", 4, 256),
        ("full", 2, 512),
    }


def test_complaint_9_the_longest_context_follows_the_number_format():
    model = preset("Llama-3-8B")
    fits = {name: longest_context(model, Ask(1, format=name), 2**34).number for name in ("bf16", "fp8")}
    assert fits == {"bf16": 131072, "fp8": 262144}


def test_complaint_10_q4_of_ten_layers_is_not_f16_of_forty():
    hybrid = {"model_type": "qwen3_next", "num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 16}
    model = describe(hybrid)
    many = describe({"model_type": "llama", "num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 16,
                     "num_key_value_heads": 2, "head_dim": 256})  # fmt: skip
    ratio = size(many, Ask(1000, format="f16")).bytes / size(model, Ask(1000, format="q4_0")).bytes
    assert ratio == 4 * 32 / 9


def test_complaint_10_lfm2_has_layers_with_a_cache_and_layers_without():
    assert describe(ARCHITECTURES["LFM 2 1.2B"]).kinds == {"full": 6, "recurrent": 10}


def test_complaint_11_old_key_names_are_read():
    old = {"n_layer": 12, "n_head": 12, "n_embd": 768}
    assert bytes_per_token(describe({"model_type": "gpt2", **old})) == 36864
    assert bytes_per_token(describe({"model_type": "gpt_bigcode", **old, "multi_query": True})) == 3072


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_complaint_13_a_nested_text_configuration_is_found(key):
    inner = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    assert bytes_per_token(describe({"model_type": "llava", key: inner, "vision_config": {"hidden_size": 9}})) == 512


def test_weights_in_fp8_do_not_make_the_cache_fp8():
    file = {"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    assert describe(file).dtype == "bfloat16"


def test_the_extra_layer_for_several_next_tokens_is_not_counted():
    assert describe({"model_type": "deepseek_v3", "num_nextn_predict_layers": 1}).n_layers == 61


def test_the_small_models_cache_is_run_as_the_measured_ones_are():
    model = small_model(ARCHITECTURES["Falcon 40B"])
    cache = DynamicCache(config=model.config)
    run(model, cache)
    assert cache.layers[0].keys.shape[1] == model.config.num_attention_heads


@pytest.mark.parametrize(("config", "expected"), [
    ({"model_type": "minimax_text_01", "num_hidden_layers": 8, "num_attention_heads": 64, "num_key_value_heads": 8,
      "hidden_size": 6144, "head_dim": 128, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1]}, 2 * 8 * 128 * 2),
    ({"model_type": "kimi_k2", "num_hidden_layers": 61, "num_attention_heads": 64, "hidden_size": 7168,
      "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 70272),
])  # fmt: skip
def test_files_with_code_of_their_own_are_read_as_the_family_they_are(config, expected):
    model = describe(config)
    assert bytes_per_token(model) == expected
    assert any("has the keys of" in rule.why for rule in model.rules)


@pytest.mark.parametrize("config", [
    {"model_type": "t5", "num_layers": 12, "num_heads": 12, "d_model": 768},
    {"model_type": "bert", "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768},
    {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "is_encoder_decoder": True},
])  # fmt: skip
def test_encoders_are_refused_and_not_computed_as_decoders(config):
    with pytest.raises(ValueError, match="has an encoder"):
        describe(config)
