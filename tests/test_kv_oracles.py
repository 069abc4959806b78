"""Published and measured sizes that the calculator must give to their printed precision, and circulating wrong ones."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvcore.published.describe import describe
from kvcore.published.fits import longest_context
from kvcore.published.presets import names, preset, stored
from kvcore.published.sizes import Ask, bytes_per_token, size, token_bytes, tokens_kept
from kvcore.published.work import work

GIB, MIB = 2**30, 2**20
ORACLES = {entry["id"]: entry for entry in json.loads(Path(__file__).with_name("kv_oracles.json").read_text("utf-8"))}


def total(model, context, number_format="bf16", **ask):
    return size(model, Ask(context, format=number_format, **ask)).bytes


def llama(**keys):
    """A Llama of some shape, as a configuration."""
    return describe({"model_type": "llama", "vocab_size": 32000, "intermediate_size": 1, **keys})


def elements(model):
    return sum(layer.elements for layer in model.layers)


def latent(n_layers):
    return describe({
        "model_type": "deepseek_v2", "num_hidden_layers": n_layers, "hidden_size": 2048, "num_attention_heads": 16,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    })  # fmt: skip


def gemma3_4b():
    """llama.cpp keeps W + one batch of 512 in a local layer: a convention of its own, made of the same facts."""
    model = preset("Gemma-3-4B")
    full = sum(token_bytes(layer, "bf16")[0] * 131072 for layer in model.layers if layer.kind == "full")
    local = sum(token_bytes(x, "bf16")[0] * (x.window + 512) for x in model.layers if x.kind == "sliding")
    return [full / MIB, local / MIB]


def mistral_saving():
    model = preset("Mistral-7B-v0.1")
    return total(model, 32768, convention="full") / total(model, 32768)


QWEN3_NEXT = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 2,
}  # fmt: skip
GLM45 = {
    "model_type": "glm4_moe", "num_hidden_layers": 92, "hidden_size": 5120, "num_attention_heads": 96,
    "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip
MHA = {"num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 40}
GQA = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}


def per_token(name: str) -> Callable[[], float]:
    return lambda: bytes_per_token(preset(name))


ANSWERS: dict[str, Callable[[], float | list[float]]] = {
    "opt13b": per_token("OPT-13B"),
    "gpt2xl": per_token("GPT-2 XL"),
    "llama2_7b": per_token("Llama-2-7B"),
    "llama3_8b": per_token("Llama-3-8B"),
    "llama3_70b": per_token("Llama-3-70B"),
    "dsv3": per_token("DeepSeek-V3"),
    "qwen25_72b": lambda: bytes_per_token(
        describe({"model_type": "qwen2", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
                  "num_key_value_heads": 8, "use_sliding_window": False, "sliding_window": 131072})
    ),
    "llama405": per_token("Llama-3.1-405B"),
    "dsv2_gqa_eq": lambda: preset("DeepSeek-V2").layers[0].elements / (2 * 128),
    "dsv2_small": lambda: [
        elements(latent(27)), elements(llama(num_hidden_layers=27, hidden_size=2048, num_attention_heads=16)),
    ],
    "dsv2_large": lambda: elements(latent(60)),
    "mistral8x": mistral_saving,
    "lmc_q8": lambda: total(preset("Qwen3-8B"), 1000) / GIB,
    "lmc_q32": lambda: total(preset("Qwen3-32B"), 1000) / GIB,
    "lmc_70b": lambda: total(preset("Llama-3.1-70B"), 1000) / GIB,
    "lmc_q32_cap": lambda: size(preset("Qwen3-32B"), Ask(275760, devices=2)).bytes_per_device / GIB,
    "lmc_70_cap": lambda: size(preset("Llama-3.1-70B"), Ask(420208, devices=4)).bytes_per_device / GIB,
    "mix_2048": lambda: total(preset("Mixtral-8x7B"), 2048) / MIB,
    "l3_70_2048": lambda: total(preset("Llama-3-70B"), 2048) / MIB,
    "gemma3_4b_128k": gemma3_4b,
    "gptoss120_vllm": per_token("gpt-oss-120b"),
    "kivi": lambda: total(preset("Llama-2-7B"), 4196) / GIB,
    "sb_l2_13b": lambda: total(llama(**MHA), 8192),
    "rasbt_gqa": lambda: [
        total(llama(**GQA, num_key_value_heads=32), 32768) / 1e9,
        total(llama(**GQA, num_key_value_heads=8), 32768) / 1e9,
    ],
    "nanogpt_flops": lambda: sum(
        part for part in work(preset("GPT-2 124M"), 1024, 1, logits="all").cached.flops.values() if part
    ),
    "wrong_lmc_gemma2": lambda: [
        total(preset("Gemma-2-9B"), 10**6, convention="full") / GIB, total(preset("Gemma-2-9B"), 10**6) / GIB,
    ],
    "wrong_lmc_qwen3next": lambda: total(describe(QWEN3_NEXT), 10**6) / GIB,
    "wrong_lmc_glm45": lambda: bytes_per_token(describe(GLM45)),
    "wrong_mintlify": lambda: bytes_per_token(llama(**MHA)),
    "wrong_devinfo": lambda: [total(preset("Llama-3-8B"), n) / GIB for n in (2048, 8192, 32768)],
}  # fmt: skip


def test_every_testable_oracle_has_an_answer():
    assert {name for name, entry in ORACLES.items() if entry["testable"]} == set(ANSWERS)


def printed(value: float, claimed: float) -> float:
    """`value` with as many digits behind the point as the claim has."""
    digits = len(str(claimed).partition(".")[2]) if isinstance(claimed, float) else 0
    return round(value, digits)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_size_is_what_was_published_or_measured(name):
    entry, found = ORACLES[name], ANSWERS[name]()
    correct = entry["correct"]
    pairs = zip(found, correct, strict=True) if isinstance(correct, list) else [(found, correct)]
    for value, wanted in pairs:
        assert printed(value, wanted) == wanted, entry["claim"]


@pytest.mark.parametrize("name", [name for name in ANSWERS if ORACLES[name]["kind"] == "known wrong"])
def test_a_size_that_is_known_to_be_wrong_is_not_what_comes_out(name):
    entry, found = ORACLES[name], ANSWERS[name]()
    found = found if isinstance(found, list) else [found]
    claimed = entry["claimed"] if isinstance(entry["claimed"], list) else [entry["claimed"]] * len(found)
    assert all(printed(value, claim) != claim for value, claim in zip(found, claimed, strict=True))


def test_the_published_capacities_come_out_of_the_inverse_too():
    """33.66 GiB on each of two devices hold 275,760 tokens of Qwen3-32B, to the printed precision."""
    budget = size(preset("Qwen3-32B"), Ask(275760, devices=2)).bytes_per_device
    assert longest_context(preset("Qwen3-32B"), Ask(1, devices=2), budget).number == 275760


PER_TOKEN = {
    "GPT-2 124M": 36864, "GPT-2 XL": 307200, "Llama-2-7B": 524288, "Llama-3-8B": 131072, "Llama-3-70B": 327680,
    "Llama-3.1-8B": 131072, "Llama-3.1-70B": 327680, "Llama-3.1-405B": 516096, "Llama-3.2-1B": 32768,
    "Mistral-7B-v0.1": 131072, "Mistral-7B-v0.3": 131072, "Mixtral-8x7B": 131072, "Qwen2.5-7B": 57344,
    "Qwen3-8B": 147456, "Qwen3-0.6B": 114688, "Qwen3-32B": 262144, "Gemma-2-9B": 344064, "Gemma-3-1B": 26624,
    "Gemma-3-4B": 139264, "Gemma-3-27B": 507904, "Phi-3-mini-4k": 393216, "Phi-3-mini-128k": 393216,
    "Falcon-7B": 8192, "MPT-7B": 524288, "DeepSeek-V3": 70272, "DeepSeek-V2": 69120, "DeepSeek-V2-Lite": 31104,
    "gpt-oss-20b": 49152, "gpt-oss-120b": 73728, "SmolLM2-135M": 23040, "OLMo-2-7B": 524288,
    "Command-R v01": 1310720, "Command-R 08-2024": 163840, "OPT-13B": 819200, "GPT-J-6B": 458752,
    "Llama-4-Scout": 196608, "Qwen3.5-27B": 65536,
}  # fmt: skip
"""Bytes of one token in 16 bits, no window full: from the published shapes, independent of the reader."""


def test_every_preset_has_its_published_bytes_a_token():
    assert {name: bytes_per_token(preset(name)) for name in names()} == PER_TOKEN


LOCAL = {
    "Mistral-7B-v0.1": (32, 4096), "Gemma-2-9B": (21, 4096), "Gemma-3-1B": (22, 512), "Gemma-3-4B": (29, 1024),
    "Gemma-3-27B": (52, 1024), "Phi-3-mini-4k": (32, 2047), "Phi-3-mini-128k": (32, 262144), "gpt-oss-20b": (12, 128),
    "gpt-oss-120b": (18, 128), "Llama-4-Scout": (36, 8192),
}  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_a_preset_has_its_published_windows_and_sources(name):
    local = [layer for layer in preset(name).layers if layer.window is not None]
    assert (len(local), local[0].window if local else None) == LOCAL.get(name, (0, None))
    assert all(tokens_kept(layer, 10**7, "live") == layer.window for layer in local)
    assert stored()[name]["source"]
