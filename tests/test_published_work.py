"""Work of published models against PyTorch's FLOP counter, against loops over tokens and keys, and printed figures."""

import inspect
import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from kvcore.published import attending as attending_module
from kvcore.published.describe import describe
from kvcore.published.layer import Description, Layer
from kvcore.published.work import KEYS, LATENT, LOGITS, PARTS, bound_by, decode_step, parameters, work

GPT2 = {"model_type": "gpt2", "n_layer": 3, "n_embd": 24, "n_head": 4, "vocab_size": 31, "n_positions": 64}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "vocab_size": 31,
}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 4}
GPT_NEO = {
    "model_type": "gpt_neo",
    "hidden_size": 24,
    "num_layers": 2,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
    "vocab_size": 31,
    "max_position_embeddings": 64,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
QWEN_MOE = LLAMA | {
    "model_type": "qwen2_moe",
    "num_hidden_layers": 3,
    "head_dim": 4,
    "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 20,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "mlp_only_layers": [1],
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "num_hidden_layers": 3,
    "vocab_size": 31,
    "intermediate_size": 40,
    "moe_intermediate_size": 12,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
}
PLAIN = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "gpt_neo": GPT_NEO,
    "mixtral": MIXTRAL,
    "qwen2_moe": QWEN_MOE,
    "deepseek_v3": DEEPSEEK,
}
PROMPT, NEW = 6, 5


def made(config):
    """A small model with random weights, on the CPU, with eager attention and experts."""
    torch.manual_seed(0)
    own = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(own, attn_implementation="eager")
    if hasattr(own, "num_experts_per_tok"):
        model.set_experts_implementation("eager")
    return model.eval()


def counted(model, calls):
    """FLOPs by part as PyTorch counts them in these calls; of a layer's two batched products the first is scores."""
    products = []

    def batched(left, right, out_shape=None, **kwargs):
        batch, rows, inner = left
        products.append(2 * batch * rows * inner * right[2])
        return products[-1]

    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping={torch.ops.aten.bmm: batched}) as counter:
        calls(model)
    found = dict.fromkeys(PARTS, 0)
    for name, ops in counter.get_flop_counts().items():
        total = sum(ops.values())
        if re.search(r"\.(attn|self_attn)$", name):
            found["projections"] += total
        elif re.search(r"\.mlp$", name):
            found["feed_forward"] += total
        elif name.endswith("lm_head"):
            found["unembedding"] += total
    found["scores"], found["weighted_sum"] = sum(products[0::2]), sum(products[1::2])
    found["projections"] -= sum(products)
    return found | {"total": counter.get_total_flops()}


def ids(n):
    return torch.arange(n)[None] % 31


def with_cache(prompt, new):
    """The prompt in one call, then a token a call, through the library's dynamic cache."""

    def calls(model):
        accepted = inspect.signature(model.forward).parameters
        name = "cache" if "cache" in accepted else "past_key_values"
        held = {name: DynamicCache(config=model.config), "use_cache": True}
        for length in [prompt] + [1] * (new - 1):
            model(ids(length), **held)

    return calls


def with_prefixes(prompt, new):
    def calls(model):
        for length in range(prompt, prompt + new):
            model(ids(length), use_cache=False)

    return calls


def as_dict(counts):
    return {**counts.flops, "total": counts.total}


@pytest.mark.parametrize("name", PLAIN)
def test_flops_by_part_equal_pytorchs_counter_with_the_cache_and_by_prefixes(name):
    model, described = made(PLAIN[name]), describe(PLAIN[name])
    found = work(described, PROMPT, NEW, logits="all", latent="decompressed")
    assert found.reasons == {}
    assert as_dict(found.cached) == counted(model, with_cache(PROMPT, NEW))
    assert as_dict(found.recomputed) == counted(model, with_prefixes(PROMPT, NEW))


def test_one_prompt_is_the_same_either_way_and_batches_multiply():
    model, described = made(LLAMA), describe(LLAMA)
    alone = work(described, PROMPT, 1, logits="all")
    assert as_dict(alone.cached) == as_dict(alone.recomputed) == counted(model, lambda m: m(ids(PROMPT)))
    three = work(described, PROMPT, 1, batch=3, logits="all")
    assert as_dict(three.cached) == counted(model, lambda m: m(ids(PROMPT).expand(3, -1)))


def test_the_last_position_alone_saves_exactly_its_rows_of_the_unembedding():
    model, described = made(LLAMA), describe(LLAMA)
    found = work(described, PROMPT, 1, logits="last")
    assert as_dict(found.cached) == counted(model, lambda m: m(ids(PROMPT), logits_to_keep=1))
    every = work(described, PROMPT, 1, logits="all")
    assert every.cached.total - found.cached.total == 2 * (PROMPT - 1) * 24 * 31


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "mixtral", "deepseek_v3"])
def test_a_decode_step_equals_pytorchs_counter_where_rows_are_not_compressed(name):
    described, context = describe(PLAIN[name]), PROMPT + NEW
    last = work(described, PROMPT, NEW + 1, keys="causal")
    before = work(described, PROMPT, NEW, keys="causal")
    step = decode_step(described, context, weight_bytes=0)
    assert step.flops == {part: last.cached.flops[part] - before.cached.flops[part] for part in PARTS}
    if name != "deepseek_v3":
        model = made(PLAIN[name])
        longer, shorter = counted(model, with_cache(PROMPT, NEW + 1)), counted(model, with_cache(PROMPT, NEW))
        assert {**step.flops, "total": step.total} == {key: longer[key] - shorter[key] for key in longer}


def test_scores_counted_by_kv_heads_are_caught(monkeypatch):
    model = made(LLAMA)
    right = attending_module._heads

    def planted(described, layer, shared):
        queries = layer.n_kv_heads * layer.key_width
        return replace(right(described, layer, shared), score_width=queries, sum_width=queries)

    monkeypatch.setattr(attending_module, "_heads", planted)
    found = work(describe(LLAMA), PROMPT, NEW, logits="all")
    expected = counted(model, with_cache(PROMPT, NEW))
    wrong = {part for part in PARTS if found.cached.flops[part] != expected[part]}
    assert wrong == {"scores", "weighted_sum"}


def test_the_default_attention_on_a_cpu_hides_from_the_counter():
    model = made(LLAMA)
    model.set_attn_implementation("sdpa")
    assert counted(model, with_cache(PROMPT, NEW))["scores"] == 0


# --- loops over tokens and keys -------------------------------------------------------------------------------------


def sees(layer, query, key):
    """Whether the query at a position sees the key at another, counted from 0."""
    if key > query:
        return False
    if layer.kind == "sliding":
        return query - key < layer.window
    if layer.kind == "chunked":
        return query // layer.window == key // layer.window
    return True


def looped(layers, n_heads, prompt, new):
    """Token passes, projected rows, and score elements allocated and seen: (with the cache, by prefixes)."""
    ways = []
    calls_cached = [(0, prompt)] + [(t, t + 1) for t in range(prompt, prompt + new - 1)]
    calls_prefixes = [(0, t) for t in range(prompt, prompt + new)]
    for calls in (calls_cached, calls_prefixes):
        passes = rows = square = causal = 0
        for start, end in calls:
            passes += end - start
            for layer in layers:
                rows += 3 * (end - start)
                kept = end if start == 0 or layer.window is None else min(end, layer.window)
                square += n_heads * (end - start) * kept
                causal += n_heads * sum(sees(layer, q, k) for q in range(start, end) for k in range(end))
        ways.append((passes, rows, square, causal))
    return ways


def hand_made(layers, n_heads=4, **facts):
    return Description("by hand", "", tuple(layers), 16, n_heads, 8, vocab_size=11, **facts)


@st.composite
def models(draw):
    kinds = draw(st.lists(st.sampled_from(["full", "sliding", "chunked"]), min_size=1, max_size=3))
    return hand_made(
        Layer(kind, draw(st.sampled_from([1, 2, 4])), 8, 8, window=None if kind == "full" else draw(st.integers(1, 9)))
        for kind in kinds
    )


short = st.integers(1, 12)


@settings(deadline=None)
@given(models(), short, short)
def test_counts_equal_loops_over_tokens_and_keys(model, prompt, new):
    found = work(model, prompt, new)
    ways = looped(model.layers, model.n_heads, prompt, new)
    for counts, expected in zip((found.cached, found.recomputed), ways, strict=True):
        assert (counts.token_passes, counts.projected_rows, counts.score_square, counts.score_causal) == expected
        assert counts.flops["scores"] == 2 * 8 * expected[2]
    causal = work(model, prompt, new, keys="causal")
    assert causal.cached.flops["weighted_sum"] == 2 * 8 * ways[0][3]
    assert causal.recomputed.flops["weighted_sum"] == 2 * 8 * ways[1][3]


amounts = st.integers(1, 1 << 40)


def numbers(counts):
    return [counts.token_passes, counts.projected_rows, counts.score_square, counts.score_causal, counts.counted]


@settings(deadline=None)
@given(models(), amounts, amounts, st.integers(0, 1 << 20), st.sampled_from([*KEYS]), st.sampled_from([*LOGITS]))
def test_counts_never_fall_with_length_and_the_cache_never_costs_more(model, prompt, new, more, keys, logits):
    prompt, new = min(prompt, (1 << 40) - more), min(new, (1 << 40) - more)
    found = work(model, prompt, new, keys=keys, logits=logits)
    for longest in ((prompt + more, new), (prompt, new + more)):
        longer = work(model, *longest, keys=keys, logits=logits)
        for way in ("cached", "recomputed"):
            few, many = numbers(getattr(found, way)), numbers(getattr(longer, way))
            assert all(a <= b for a, b in zip(few, many, strict=True))
    assert all(a <= b for a, b in zip(numbers(found.cached), numbers(found.recomputed), strict=True))
    assert all(type(value) is int for value in numbers(found.cached) + numbers(found.recomputed))


@settings(deadline=None)
@given(st.sampled_from(["sliding", "chunked"]), amounts, amounts)
def test_a_window_beyond_the_context_changes_nothing(kind, prompt, new):
    wide = hand_made([Layer(kind, 2, 8, 8, window=prompt + new)])
    full = hand_made([Layer("full", 2, 8, 8)])
    assert work(wide, prompt, new).to_json() == work(full, prompt, new).to_json()


def test_a_batch_multiplies_every_count():
    model = describe(LLAMA)
    one, five = work(model, 7, 4), work(model, 7, 4, batch=5)
    for way in ("cached", "recomputed"):
        assert numbers(getattr(five, way)) == [5 * value for value in numbers(getattr(one, way))]


# --- printed figures ------------------------------------------------------------------------------------------------

GPT2_124M = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257}


def test_nanogpts_table_for_gpt2_at_1024_tokens():
    """karpathy/nanoGPT, transformer_sizing.ipynb: per layer kqv, scores, reduce and proj; the total of the forward."""
    found = work(describe(GPT2_124M), 1024, 1, logits="all").cached
    assert found.flops["projections"] == 12 * (3_623_878_656 + 1_207_959_552)
    assert found.flops["scores"] == found.flops["weighted_sum"] == 12 * 1_610_612_736
    assert found.total == 291_648_307_200


def test_palms_shortcut_is_near_for_gpt2():
    """PaLM, appendix B, without the factor 3 of training: 2N + 4LHQT a token; the notebook's N leaves positions out."""
    n_parameters = parameters(describe(GPT2_124M)) + 25 * 768
    assert n_parameters == 124_337_664 - 1024 * 768
    shortcut = 1024 * (2 * n_parameters + 4 * 12 * 12 * 64 * 1024)
    assert round(shortcut / work(describe(GPT2_124M), 1024, 1, logits="all").cached.total, 4) == 1.0001


def test_kipplys_24_l_d_squared():
    """kipply, transformer inference arithmetic: 52B, 64 layers of 8192: 103,079,215,104 FLOPs a token, 2 % under 2P."""
    config = {"model_type": "gpt2", "n_layer": 64, "n_head": 64, "n_embd": 8192, "n_positions": 64, "vocab_size": 50257}
    found = work(describe(config), 1, 1).cached.flops
    assert found["projections"] + found["feed_forward"] == 24 * 64 * 8192**2 == 103_079_215_104
    keys_and_values = 4 * 64 * 8192**2
    assert 6 * keys_and_values == found["projections"] + found["feed_forward"]


def test_crossovers_at_2d_and_8d():
    """scaling-book: scores and sums equal QKVO at T = 2d, and all matrices at T = 8d with a gated 4d feed-forward."""
    d = 64
    config = LLAMA | {"hidden_size": d, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 8}
    config |= {"intermediate_size": 4 * d}
    at = {t: work(describe(config), t, 1).cached.flops for t in (2 * d, 8 * d)}
    attention = {t: flops["scores"] + flops["weighted_sum"] for t, flops in at.items()}
    assert attention[2 * d] == at[2 * d]["projections"]
    assert attention[8 * d] == at[8 * d]["projections"] + at[8 * d]["feed_forward"]


LLAMA2_13B = {
    "model_type": "llama",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "intermediate_size": 13824,
    "vocab_size": 32000,
}
V5E = {"peak_flops": 1.97e14, "bandwidth": 8.2e11}


def hardware(chips):
    return {name: value * chips for name, value in V5E.items()}


@pytest.mark.parametrize(
    ("batch", "kv_heads", "milliseconds"), [(1, 40, 4.98), (16, 40, 20.30), (64, 40, 69.33), (64, 8, 17.04)]
)
def test_scaling_books_steps_of_llama_2_13b(batch, kv_heads, milliseconds):
    """applied-inference: 8 chips, 8192 tokens, bf16; its own figures round the cache of a sequence to 6.7 GB."""
    model = describe(LLAMA2_13B | {"num_key_value_heads": kv_heads})
    step = decode_step(model, 8192, batch, "bf16", weight_bytes=26 * 10**9)
    bound = bound_by(step, **hardware(8))
    assert bound.bound == "memory"
    assert 1000 * bound.memory_seconds == pytest.approx(milliseconds, rel=2e-3)


def test_scaling_books_step_of_llama_3_70b():
    model = describe(
        LLAMA2_13B | {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}
        | {"intermediate_size": 28672, "vocab_size": 128256}
    )  # fmt: skip
    step = decode_step(model, 8192, 32, "int8", weight_bytes=70 * 10**9)
    seconds = bound_by(step, **hardware(8)).memory_seconds
    assert 1000 * seconds == pytest.approx(17, abs=0.5)
    assert 32 / seconds == pytest.approx(1882, rel=0.02)


def test_scaling_books_30b_model_at_batch_4_and_256():
    """30B int8, 16 chips, 8192 tokens of 100 kB: 2.5 ms, and 21 ms where attention and matrices take turns."""
    config = LLAMA2_13B | {"hidden_size": 8000, "num_hidden_layers": 50, "num_attention_heads": 64, "head_dim": 125}
    model = describe(config | {"num_key_value_heads": 8, "intermediate_size": 19000, "vocab_size": 1})
    assert parameters(model) == 30 * 10**9 + 2 * 8000
    steps = {batch: decode_step(model, 8192, batch, "int8", weight_bytes=30 * 10**9) for batch in (4, 256)}
    assert steps[4].cache_bytes == 4 * 8192 * 100_000
    bounds = {batch: bound_by(step, **hardware(16)) for batch, step in steps.items()}
    assert 1000 * bounds[4].in_turn_seconds == pytest.approx(2.5, abs=0.05)
    assert 1000 * bounds[256].in_turn_seconds == pytest.approx(21, abs=0.5)
    assert bounds[4].ridge == pytest.approx(240, abs=0.5)


def test_enough_sequences_with_short_contexts_are_bound_by_arithmetic():
    model = describe(LLAMA2_13B)
    few, many = (decode_step(model, 1, batch, "bf16", weight_bytes=26 * 10**9) for batch in (16, 1024))
    assert bound_by(few, **V5E).bound == "memory"
    assert bound_by(many, **V5E).bound == "arithmetic"
    for step in (few, many):
        bound = bound_by(step, **V5E)
        assert (step.intensity >= bound.ridge) == (bound.bound == "arithmetic")
        assert bound.in_turn_seconds >= max(bound.memory_seconds, bound.arithmetic_seconds)


@pytest.mark.parametrize(("kv_heads", "number_format", "intensity"), [(40, "bf16", 1), (8, "bf16", 5), (8, "fp8", 10)])
def test_attention_intensity_is_heads_a_kv_head_and_doubles_in_one_byte(kv_heads, number_format, intensity):
    model = describe(LLAMA2_13B | {"num_key_value_heads": kv_heads})
    assert decode_step(model, 5000, 3, number_format, None).attention_intensity == intensity


# --- what a description holds, and what is not counted --------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_parameters_are_all_matrices_but_tables_of_positions(name):
    model = made(PLAIN[name])
    tables = ("wpe", "e_score_correction_bias")
    held = sum(
        each.numel() for key, each in model.named_parameters() if each.dim() > 1 and not any(t in key for t in tables)
    )
    assert parameters(describe(PLAIN[name])) == held


ONE_KV_HEAD_A_HEAD = ("gpt_neox", "persimmon")
LLAMA_LIKE = (
    "gemma", "gemma2", "qwen2", "qwen3", "phi3", "olmo2", "cohere", "granite", "stablelm", "starcoder2", "nemotron",
    "phi", "gpt_neox", "persimmon", "arcee", "glm4", "olmoe", "phimoe", "gpt_oss", "qwen3_moe", "granitemoe",
)  # fmt: skip


@pytest.mark.parametrize("family", LLAMA_LIKE)
def test_parameters_of_other_families_equal_those_of_their_own_models(family):
    config = LLAMA | {"model_type": family, "head_dim": 4, "pad_token_id": 0, "moe_intermediate_size": 12}
    if family in ONE_KV_HEAD_A_HEAD:
        config["num_key_value_heads"] = config["num_attention_heads"]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    held = sum(each.numel() for key, each in model.named_parameters() if each.dim() > 1 and not key.endswith("bias"))
    assert parameters(describe(config)) == held


def forms(config):
    shapes = describe(config).shapes
    found = shapes["feed_forward"]
    return [found["forms"][index] for index in found["of_layer"]]


@pytest.mark.parametrize(
    ("config", "layer", "facts"),
    [
        ({"model_type": "mpt", "n_layers": 2, "d_model": 32, "n_heads": 4}, 0, {"matrices": 2, "width": 128}),
        ({"model_type": "falcon", "num_hidden_layers": 2}, 0, {"matrices": 2, "width": 4 * 4544}),
        ({"model_type": "bloom", "n_layer": 2, "n_head": 2, "n_embed": 8}, 0, {"matrices": 2, "width": 32}),
        ({"model_type": "deepseek_v3"}, 2, {"width": 18432, "experts": 0}),
        ({"model_type": "deepseek_v3"}, 3, {"active": 8, "expert_width": 2048, "shared_width": 2048, "router": 256}),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 2}, 0, {"width": 16384, "active": 0}),
        ({"model_type": "llama4_text", "interleave_moe_layer_step": 2}, 1, {"active": 1, "shared_width": 8192}),
        ({"model_type": "qwen2_moe"}, 0, {"active": 4, "shared_width": 5632, "router": 61}),
        ({"model_type": "jamba"}, 0, {"width": 14336}),
        ({"model_type": "jamba"}, 1, {"active": 2, "expert_width": 14336}),
        ({"model_type": "dbrx"}, 0, {"matrices": 3, "active": 1, "expert_width": 3584}),
        ({"model_type": "gemma3n_text", "intermediate_size": [8] * 34 + [9]}, 34, {"width": 9}),
        ({"model_type": "granitemoehybrid", "num_local_experts": 0}, 0, {"width": 1024, "experts": 0}),
        ({"model_type": "lfm2"}, 0, {"width": 8192}),
        ({"model_type": "recurrent_gemma"}, 0, {"width": 3840}),
        ({"model_type": "qwen", "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "vocab_size": 9,
          "intermediate_size": 22}, 0, {"matrices": 3, "width": 11}),
        ({"model_type": "phi-msft", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_inner": None}, 0, {"width": 32}),
        ({"model_type": "chatglm", "num_layers": 1, "num_attention_heads": 2, "hidden_size": 8,
          "ffn_hidden_size": 13}, 0, {"matrices": 3, "width": 13}),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "ME*-"}, 3, {"matrices": 2, "width": 21504}),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "ME*-"}, 0, {"matrices": 0}),
    ],
)  # fmt: skip
def test_feed_forward_of_families(config, layer, facts):
    assert facts.items() <= forms(config)[layer].items()


def test_feed_forward_of_blocks_that_say_it_themselves():
    """Llama-3.1-Nemotron-51B, width 8192: a factor of 5.25 is the 28672 of Llama-3.1-70B."""
    attention = {"n_heads_in_group": 8}
    ffns = [{"ffn_mult": 5.25}, {"no_op": True}, {"replace_with_linear": True}]
    config = {"model_type": "nemotron-nas", "num_attention_heads": 64, "hidden_size": 8192, "vocab_size": 9}
    found = forms(config | {"block_configs": [{"attention": attention, "ffn": ffn} for ffn in ffns]})
    assert [(form["matrices"], form["width"]) for form in found] == [(3, 28672), (0, 0), (1, 8192)]


def test_shapes_are_plain_data():
    for name in ("gpt2", "deepseek_v3", "gemma3n_text", "jamba", "dbrx"):
        shapes = describe({"model_type": name}).shapes
        assert json.loads(json.dumps(shapes)) == shapes


@pytest.mark.parametrize(
    "wrong",
    [
        {"model_type": "llama", "intermediate_size": "wide"},
        {"model_type": "llama", "intermediate_size": [1, 2]},
        {"model_type": "mixtral", "num_local_experts": True},
        {"model_type": "qwen3_moe", "mlp_only_layers": 3},
        {"model_type": "qwen3_moe", "decoder_sparse_step": 0},
        {"model_type": "deepseek_v3", "moe_layer_freq": [1]},
        {"model_type": "deepseek_v3", "mlp_layer_types": ["dense"]},
        {"model_type": "deepseek_v3", "q_lora_rank": "none"},
        {"model_type": "jamba", "expert_layer_period": 0},
        {"model_type": "dbrx", "ffn_config": 5},
        {"model_type": "dbrx", "ffn_config": {"ffn_hidden_size": -1}},
        {"model_type": "lfm2", "block_ffn_dim_multiplier": "x"},
        {"model_type": "mpt", "expansion_ratio": {}},
        {"model_type": "opt", "word_embed_proj_dim": 0},
        {"model_type": "llama", "tie_word_embeddings": "yes"},
    ],
    ids=lambda config: list(config)[1],
)
def test_values_that_are_not_allowed_are_named_in_one_sentence(wrong):
    with pytest.raises(ValueError, match=next(key for key in wrong if key != "model_type").split("_")[0]) as caught:
        describe(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [{"model_type": "mixtral", "num_experts_per_tok": 9}, {"model_type": "dbrx", "ffn_config": {"moe_top_k": 5}}],
)
def test_more_active_experts_than_there_are_leave_the_feed_forward_uncounted(config):
    found = work(describe(config), 3, 2)
    assert found.cached.flops["feed_forward"] is None
    assert "can be active" in found.reasons["feed_forward"]


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        ({"model_type": "jamba"}, {"other"}),
        ({"model_type": "mamba"}, {"other"}),
        ({"model_type": "rwkv"}, {"other", "feed_forward"}),
        ({"model_type": "mllama_text_model"}, {"projections", "scores", "weighted_sum"}),
        ({"model_type": "deepseek_v32"}, {"scores", "weighted_sum", "other"}),
        ({"model_type": "zamba"}, {"projections", "other"}),
        ({"model_type": "gemma3n_text"}, {"other"}),
        ({"model_type": "opt", "word_embed_proj_dim": 512}, {"other"}),
        ({"model_type": "own", "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 8},
         {"feed_forward", "unembedding"}),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_each_part_that_is_not_counted_has_its_reason(config, parts):
    found = work(describe(config), 5, 3)
    for way in (found.cached, found.recomputed):
        assert {part for part, value in way.flops.items() if value is None} == parts
        assert way.total is None
        assert way.counted == sum(value for value in way.flops.values() if value is not None)
        if way.projected_rows is None:
            assert found.reasons["projected_rows"]
        assert (way.score_square is None) == (way.score_causal is None) == ("scores" in parts)
    assert parts <= found.reasons.keys()
    assert all(len(reason) > 10 for reason in found.reasons.values())
    step = decode_step(describe(config), 8, weight_bytes=1)
    assert {part for part, value in step.flops.items() if value is None} == parts
    with pytest.raises(ValueError, match="not known"):
        bound_by(step, 1e12, 1e12)


def test_a_description_by_hand_says_what_it_lacks():
    layers = [Layer("latent", 1, 16, 4), Layer("recurrent", state_elements=None), Layer("cross")]
    found = work(hand_made(layers), 3, 2)
    assert found.reasons.keys() == {"projections", "scores", "weighted_sum", "feed_forward", "other"}
    assert parameters(hand_made(layers)) is None


def test_layers_that_share_entries_read_them_again():
    config = {"model_type": "gemma3n_text", "num_hidden_layers": 10, "num_kv_shared_layers": 5, "sliding_window": 4}
    model = describe(config)
    step, own = decode_step(model, 100, weight_bytes=None), decode_step(replace(model, shapes={}), 100)
    assert model.shapes["reads"] == [3, 3, 3, 3, 4]
    assert step.cache_bytes == 2 * own.cache_bytes
    rows = work(model, 7, 1).cached.projected_rows
    assert rows == 7 * (5 * 3 + 5 * 1)


def test_absorbed_and_decompressed_latent_attention_differ_only_in_decode_steps():
    model = describe(DEEPSEEK)
    ways = {latent: work(model, 6, 5, latent=latent) for latent in LATENT}
    assert ways["absorbed"].recomputed == ways["decompressed"].recomputed
    assert work(model, 6, 1, latent="absorbed").cached == work(model, 6, 1, latent="decompressed").cached
    layers, heads, rank, nope, value = 3, 3, 16, 6, 8
    keys = sum(range(7, 11))
    absorbed, decompressed = (ways[latent].cached.flops for latent in ("absorbed", "decompressed"))
    again = decompressed["projections"] - absorbed["projections"]
    assert again == 2 * layers * rank * heads * (nope + value) * (keys - 4)
    assert absorbed["scores"] - decompressed["scores"] == 2 * layers * heads * keys * (rank - nope)
    assert absorbed["weighted_sum"] - decompressed["weighted_sum"] == 2 * layers * heads * keys * (rank - value)


def test_deepseek_v3_reads_its_rows_once_for_128_heads():
    """Absorbed: 2 · 128 · (576 + 512) FLOPs for 576 numbers of 2 bytes."""
    step = decode_step(describe({"model_type": "deepseek_v3"}), 4096)
    assert step.attention_intensity == 2 * 128 * (576 + 512) / (576 * 2)


def test_results_are_plain_data_with_whole_numbers():
    found = work(describe(DEEPSEEK), 1 << 40, 1 << 40, batch=1 << 20)
    assert json.loads(json.dumps(found.to_json()))["cached"]["total"] == found.cached.total
    step = decode_step(describe(DEEPSEEK), 1 << 40, 2, "q8_0", 5)
    assert json.loads(json.dumps(step.to_json()))["bytes"] == step.bytes
    assert json.loads(json.dumps(bound_by(step, 1, 1).to_json()))["ridge"] == 1


@pytest.mark.parametrize(
    "asked",
    [(0, 1), (1, 0), (1, 1, 0), (True, 1), (1.0, 1), ((1 << 40) + 1, 1), (1, 1, 1, "none"), (1, 1, 1, "all", "half")],
)
def test_counts_and_names_that_are_not_allowed_are_refused(asked):
    with pytest.raises(ValueError, match="must be"):
        work(describe(LLAMA), *asked)


@pytest.mark.parametrize("asked", [(0,), (1, 0), (1, 1, "f8"), (1, 1, "bf16", -1), (1, 1, "bf16", 0.5)])
def test_steps_that_are_not_allowed_are_refused(asked):
    with pytest.raises(ValueError, match="must be"):
        decode_step(describe(LLAMA), *asked)


@pytest.mark.parametrize("figure", [0, -1, float("nan"), float("inf"), True, "fast", None])
@pytest.mark.parametrize("which", ["peak_flops", "bandwidth"])
def test_hardware_figures_that_are_not_positive_and_finite_are_refused(which, figure):
    step = decode_step(describe(LLAMA), 5, weight_bytes=10)
    with pytest.raises(ValueError, match=f"{which} is .*; it must be a number above 0"):
        bound_by(step, **V5E | {which: figure})


def test_growth_is_quadratic_with_the_cache_and_cubic_without():
    """scaling-book, inference.md: attention grows as n² with the cache and n³ without, feed-forward as n and n²."""
    model = describe(LLAMA)
    lengths = [1 << power for power in (20, 21, 22)]
    found = [work(model, 1, length) for length in lengths]
    for few, many in pairwise(found):
        for way, powers in (("cached", (2, 1)), ("recomputed", (3, 2))):
            a, b = getattr(few, way).flops, getattr(many, way).flops
            grown = (b["scores"] / a["scores"], b["feed_forward"] / a["feed_forward"])
            assert grown == pytest.approx([2**power for power in powers], rel=1e-5)
