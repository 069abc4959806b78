"""Measured, not only computed: bytes in the real cache objects of small random models of published architectures."""

import inspect
import json

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvcore.integrations.published import ARCHITECTURES
from kvcore.integrations.small import small_model
from kvcore.published.describe import describe
from kvcore.published.sizes import Ask, size

PROMPT, STEPS = 19, 6
"""Beyond the windows of the small models, which are 4 to 16 tokens."""

OWN_CACHE = {"MiniMax Text 01": "its code refuses any cache but its own"}

NO_STATIC_CACHE = {**OWN_CACHE, "Falcon RW 1B": "its ALiBi is as long as the call, which the preallocated keys are not"}

NO_STATE_IN_CACHE = ("RecurrentGemma 2B",)
"""Keeps its recurrent state in the layers of the model, not in the cache."""


def described(model):
    """The description of the model's own configuration, as it would be saved."""
    return describe(json.loads(json.dumps(model.config.to_dict(), default=str)))


def run(model, cache):
    """A prompt and some single tokens through the model; the cache is filled in place."""
    names = inspect.signature(model.forward).parameters
    name = next(each for each in ("past_key_values", "cache", "cache_params") if each in names)
    with torch.inference_mode():
        model(torch.arange(3, 3 + PROMPT)[None], **{name: cache}, use_cache=True)
        for step in range(STEPS):
            model(torch.tensor([[7 + step]]), **{name: cache}, use_cache=True)


def tensors(value):
    """All tensors in a nested value."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for inner in value.values() for each in tensors(inner)]
    return [each for inner in value for each in tensors(inner)] if isinstance(value, list | tuple) else []


def n_bytes(found):
    return sum(each.numel() * each.itemsize for each in found)


def kv_bytes(layer):
    """numel × itemsize of a cache layer's keys and values, not of their storage."""
    return n_bytes(tensors([getattr(layer, "keys", None), getattr(layer, "values", None)]))


def state_bytes(layer):
    return n_bytes(tensors([getattr(layer, name, None) for name in ("conv_states", "recurrent_states")]))


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in OWN_CACHE])
def test_the_dynamic_cache_holds_exactly_what_is_computed(name):
    model = small_model(ARCHITECTURES[name])
    cache = DynamicCache(config=model.config)
    run(model, cache)
    computed = size(described(model), Ask(PROMPT + STEPS, format="f32", convention="dynamic"))
    measured = [kv_bytes(layer) for layer in cache.layers]
    assert [n for n in measured if n] == [layer.bytes for layer in computed.layers if layer.bytes]
    assert sum(measured) == computed.bytes
    states = sum(state_bytes(layer) for layer in cache.layers)
    if name not in NO_STATE_IN_CACHE:
        assert states == computed.fixed_state_bytes


SMALL = {"vocab_size": 64, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
MIXED = {
    "Gemma 4, shared layers": {
        "model_type": "gemma4_text", "num_hidden_layers": 8, "intermediate_size": 64, "sliding_window": 6,
        "global_head_dim": 16, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 2,
    },
    "Gemma 4, keys serve as values": {
        "model_type": "gemma4_text", "num_hidden_layers": 7, "intermediate_size": 64, "sliding_window": 6,
        "global_head_dim": 16, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
    },
    "Gemma 3n": {
        "model_type": "gemma3n_text", "num_hidden_layers": 10, "intermediate_size": [64] * 10, "sliding_window": 6,
        "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 3,
        "activation_sparsity_pattern": [0.0] * 10, "laurel_rank": 8,
    },
    "MiMo V2 Flash": {
        "model_type": "mimo_v2_flash", "num_hidden_layers": 7, "intermediate_size": 64, "sliding_window_size": 6,
        "v_head_dim": 4, "swa_num_key_value_heads": 4, "swa_num_attention_heads": 4, "swa_head_dim": 8,
        "swa_v_head_dim": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "n_group": 1, "topk_group": 1,
    },
}  # fmt: skip
"""Layers of several shapes in one model: too particular for the general way to make a small model."""


@pytest.mark.parametrize("name", MIXED)
def test_models_that_mix_shapes_come_out_right_from_the_file_and_as_saved(name):
    raw = SMALL | MIXED[name]
    config = CONFIG_MAPPING[raw["model_type"]](**{key: value for key, value in raw.items() if key != "model_type"})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    cache = DynamicCache(config=model.config)
    run(model, cache)
    measured = [kv_bytes(layer) for layer in cache.layers]
    for description in (describe(raw), described(model)):
        computed = size(description, Ask(PROMPT + STEPS, format="f32", convention="dynamic"))
        assert measured == [layer.bytes for layer in computed.layers]


def test_at_least_25_architectures_are_measured_some_beyond_their_window():
    assert len(ARCHITECTURES) - len(OWN_CACHE) >= 25
    windowed = [
        described(small_model(ARCHITECTURES[name])) for name in ("Mistral 7B v0.1", "Gemma 3 4B", "gpt-oss 20b")
    ]
    for model in windowed:
        kept = size(model, Ask(PROMPT + STEPS, convention="dynamic")).layers
        assert min(layer.tokens for layer in kept) < PROMPT < PROMPT + STEPS


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in NO_STATIC_CACHE])
def test_the_static_cache_holds_exactly_what_is_computed(name):
    model = small_model(ARCHITECTURES[name])
    room = 32
    cache = StaticCache(config=model.config, max_cache_len=room)
    run(model, cache)
    computed = size(described(model), Ask(room, format="f32", convention="static"))
    measured = [kv_bytes(layer) for layer in cache.layers]
    assert [n for n in measured if n] == [layer.bytes for layer in computed.layers if layer.bytes]


def test_a_wrong_description_is_caught():
    """The measurement fails where a window is one off, or KV heads are taken for heads."""
    model = small_model(ARCHITECTURES["Mistral 7B v0.1"])
    cache = DynamicCache(config=model.config)
    run(model, cache)
    measured = sum(kv_bytes(layer) for layer in cache.layers)
    right = model.config.to_dict()
    for wrong in (
        {"sliding_window": right["sliding_window"] + 1},
        {"num_key_value_heads": right["num_attention_heads"]},
    ):
        assert size(describe(right | wrong), Ask(PROMPT + STEPS, format="f32", convention="dynamic")).bytes != measured
