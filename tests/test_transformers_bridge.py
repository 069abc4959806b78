"""The bridge to transformers: small models of published architectures, each cache beside the full path."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from kvcore.integrations.architectures import (
    ARCHITECTURES,
    DISAGREEMENTS,
    TOKEN_IDS,
    compare_splits,
    verdict_table,
    verified,
)
from kvcore.integrations.layer_choice import kept_layers
from kvcore.integrations.small import small_config, small_model
from kvcore.integrations.transformers import Wrapped, wrap

ROOT = Path(__file__).resolve().parents[1]
OWN_CACHE = {"MiniMax Text 01": "model"}
"""Architectures that refuse the library's growing cache."""
WRONG = {
    ("Mamba 130M", "dynamic", "eager"): "3.2e-1 of the scale from position 4 in 4+4+4+4, 8.1e-2 in 1+15",
    ("Falcon Mamba 7B", "dynamic", "eager"): "9.0e-1 from position 5 in 5+3+1+7, 5.2e-1 in 1+15",
    ("Jamba v0.1", "dynamic", "eager"): "1.3 from position 5 in 5+3+1+7, 1.0 in 1+15",
    ("Jamba v0.1", "static", "sdpa"): "1.3 from position 5 in 5+3+1+7",
    ("Zamba 7B", "dynamic", "eager"): "3.5e-1 from position 5 in 5+3+1+7, 5.4e-2 in 1+15",
    (
        "RecurrentGemma 2B",
        "dynamic",
        "eager",
    ): "5.7e-1 from position 0 in 1+15 after another run, 4.2e-1 from 5 in 5+3+1+7",
    ("MiniMax Text 01", "model", "eager"): "sizes 8 and 3 of tensors disagree in 5+3+1+7",
    ("MiniMax Text 01", "model", "sdpa"): "1.5 from position 5 in 5+3+1+7",
    ("GPT-Neo 1.3B", "static", "eager"): "5.4e-1 from position 0 in one call",
}
"""Largest difference by the outputs' scale in float32, seed 0, transformers 5.24.0; float64 disagrees as much."""
OTHERS = [
    ("Llama 3.1 8B", "static", "eager"), ("Llama 3.1 8B", "static", "sdpa"), ("Llama 3.1 8B", "model", "sdpa"),
    ("Mistral 7B v0.1", "static", "sdpa"), ("Gemma 3 1B", "static", "eager"), ("Gemma 3 1B", "dynamic", "sdpa"),
    ("Llama 4 Scout", "static", "eager"), ("Llama 4 Scout", "dynamic", "sdpa"), ("gpt-oss 20b", "static", "eager"),
    ("DeepSeek-V3", "static", "sdpa"), ("GPT-2", "static", "sdpa"), ("MPT 7B", "static", "eager"),
    ("Mamba 2 2.7B", "model", "eager"), ("Qwen 3 Next 80B-A3B", "static", "sdpa"), ("Falcon 7B", "dynamic", "sdpa"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


ASKED = (  # noqa: SIM905
    "llama mistral qwen2 qwen3 gemma2 gemma3 phi3 gpt2 gpt_neox falcon bloom mpt opt olmo2 cohere2 starcoder2 llama4"
    " mixtral deepseek_v3 gpt_oss jamba mamba mamba2 qwen3_moe qwen3_next granite stablelm"
).split()
BY_VERIFY = {
    next(name for name, config in ARCHITECTURES.items() if config["model_type"] == asked): asked for asked in ASKED
}
"""The first architecture of each of these model types gets the whole battery of `kvcore.verify`; others the splits."""


def agrees(wrapped, check=compare_splits):
    """The one place that asks for a verdict: whether every split into calls equals the full path within rounding."""
    outcome = check(wrapped, TOKEN_IDS)
    assert outcome.verdict in ("equal", "rounding"), outcome


def cases():
    """Each architecture once with a growing cache, or its own; some with other caches and attentions; all faults."""
    first = [(name, OWN_CACHE.get(name, "dynamic"), "eager") for name in ARCHITECTURES]
    return [
        pytest.param(
            *case,
            marks=[pytest.mark.xfail(strict=True, reason=f"{WRONG[case]}: {note(*case)}")] if case in WRONG else [],
            id="-".join(case),
        )
        for case in dict.fromkeys([*first, *OTHERS, *WRONG])
    ]


def note(name, cache, _attention):
    model_type = ARCHITECTURES[name]["model_type"]
    return DISAGREEMENTS.get((model_type, cache)) or DISAGREEMENTS[model_type, "any"]


@pytest.mark.parametrize(("name", "cache", "attention"), cases())
def test_every_split_equals_the_full_path_at_every_position(name, cache, attention):
    whole = name in BY_VERIFY and attention == "eager" and cache == "dynamic"
    agrees(wrap(small_model(ARCHITECTURES[name], attention), cache), verified if whole else compare_splits)


@pytest.mark.xfail(
    strict=True, reason="7.7e-1: Bamba's forward counts each call's positions from 0 when none are given"
)
def test_bamba_counts_its_own_positions():
    agrees(wrap(small_model(ARCHITECTURES["Bamba 9B"]), positions=False))


@pytest.mark.parametrize("name", ["Mamba 130M", "Jamba v0.1", "MiniMax Text 01"])
def test_one_token_a_call_is_right_where_several_are_wrong(name):
    wrapped = wrap(small_model(ARCHITECTURES[name]), OWN_CACHE.get(name, "dynamic"))
    cache, rows = None, []
    for token in TOKEN_IDS:
        row, cache = wrapped.step([token], cache)
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows), wrapped.full(TOKEN_IDS), rtol=0, atol=1e-3)


def test_a_mixture_in_float64_agrees_to_its_last_digits():
    wrapped = wrap(small_model(ARCHITECTURES["Mixtral 8x7B"], dtype="float64"))
    assert wrapped.full(TOKEN_IDS).dtype == torch.float64
    assert compare_splits(wrapped).difference < 1e-5  # its norms work in float32


def test_more_than_25_architectures_are_covered():
    covered = {config["model_type"] for config in ARCHITECTURES.values()}
    assert set(ASKED) <= covered
    assert len(BY_VERIFY) >= 25


def test_wrong_positions_are_caught():
    """A planted fault: each call's positions counted from 0."""
    wrapped = wrap(small_model(ARCHITECTURES["Llama 3.1 8B"]))

    def from_zero(token_ids, state):
        if state is None:
            return wrapped.step(token_ids, state)
        outputs, new = wrapped.step(token_ids, state._replace(n_tokens=0))
        return outputs, new._replace(n_tokens=state.n_tokens + len(token_ids))

    outcome = compare_splits(Wrapped(wrapped.full, from_zero, wrapped.vocab_size, None))
    assert outcome.verdict == "fault"
    assert outcome.difference > 0.05


def test_the_library_counts_the_positions_it_is_not_told():
    agrees(wrap(small_model(ARCHITECTURES["Llama 3.1 8B"]), positions=False))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_cropped_cache_goes_on_as_a_shorter_one(cache):
    wrapped = wrap(small_model(ARCHITECTURES["Llama 3.1 8B"]), cache)
    _, state = wrapped.step(TOKEN_IDS, None)
    outputs, _ = wrapped.step(TOKEN_IDS[9:], wrapped.crop(state, 9))
    torch.testing.assert_close(outputs, wrapped.full(TOKEN_IDS)[9:], rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="17 tokens cannot be kept of 16"):
        wrapped.crop(state, 17)


def test_crop_is_refused_where_the_window_has_moved_on_and_absent_where_nothing_can_be_cropped():
    wrapped = wrap(small_model(ARCHITECTURES["Gemma 3 1B"]))
    _, state = wrapped.step(TOKEN_IDS, None)
    with pytest.raises(ValueError, match="refuses to crop 16 tokens to 9"):
        wrapped.crop(state, 9)
    assert "crop" not in wrap(small_model(ARCHITECTURES["Mamba 2 2.7B"])).hooks()


def test_a_copied_cache_is_untouched_by_the_other_branch():
    wrapped = wrap(small_model(ARCHITECTURES["Jamba v0.1"]))
    _, state = wrapped.step(TOKEN_IDS[:6], None)
    branch = wrapped.hooks()["copy"](state)
    wrapped.step([1], state)
    outputs, _ = wrapped.step(TOKEN_IDS[6:7], branch)
    torch.testing.assert_close(outputs, wrapped.full(TOKEN_IDS[:7])[6:], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads", "kinds"),
    [
        ("Mistral 7B v0.1", 8, 2, None),
        ("Qwen 2.5 7B", 14, 2, "fff"),
        ("Gemma 2 9B", 4, 2, "sfsf"),
        ("Gemma 3 4B", 4, 2, "sssssf"),
        ("Gemma 3 1B", 4, 1, "sssssf"),
        ("Cohere 2 (Command R7B)", 8, 2, "sssf"),
        ("Llama 4 Scout", 10, 2, "cccf"),
        ("gpt-oss 20b", 16, 2, "sfsf"),
        ("Qwen 3 Next 80B-A3B", 16, 2, "lllf"),
        ("Jamba v0.1", 8, 2, "llfl"),
        ("Bamba 9B", 8, 2, "llfllf"),
    ],
)
def test_ratios_and_patterns_survive_the_shrinking(name, heads, kv_heads, kinds):
    small = small_config(ARCHITECTURES[name])
    assert (small.num_attention_heads, small.num_key_value_heads) == (heads, kv_heads)
    if kinds is not None:
        assert "".join(kind[0] for kind in small.layer_types) == kinds


def test_windows_end_within_the_first_tokens_and_positions_keep_their_scheme():
    assert small_config(ARCHITECTURES["Mistral 7B v0.1"]).sliding_window == 4
    assert small_config(ARCHITECTURES["Llama 4 Scout"]).attention_chunk_size == 4
    assert small_config(ARCHITECTURES["Phi-3 mini 128k"]).sliding_window == 262144  # never ends in the published model
    assert small_config(ARCHITECTURES["Phi-2"]).rope_parameters["partial_rotary_factor"] == 0.4
    assert small_config(ARCHITECTURES["gpt-oss 20b"]).rope_parameters["rope_type"] == "yarn"
    assert small_config(ARCHITECTURES["SmolLM 3 3B"]).no_rope_layers == [1, 1, 1, 0]
    assert small_config(ARCHITECTURES["Falcon 7B"]).num_attention_heads == 71


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [("GGGG", [0, 1, 2]), ("LGLG", [0, 1, 2, 3]), ("LLGLLG", [0, 1, 2]), ("LLLLLLLGLLLLLLLG", [0, 1, 7, 8, 9, 15]),
     ("G", [0]), ("LLLLLLLLLLG", [0, 1, 10])],
)  # fmt: skip
def test_kept_layers_are_one_period_or_short_runs(kinds, kept):
    assert kept_layers(kinds) == kept


def test_a_dtype_changes_rounding_only():
    config = ARCHITECTURES["RecurrentGemma 2B"]
    single, double = (wrap(small_model(config, dtype=dtype)).full(TOKEN_IDS) for dtype in ("float32", "float64"))
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-4)


def test_weights_follow_from_the_seed_and_are_large_enough_to_matter():
    config = ARCHITECTURES["RecurrentGemma 2B"]
    first, again, other = (dict(small_model(config, seed=seed).named_parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    assert first["model.embed_tokens.weight"].std().item() == pytest.approx(0.2, abs=0.01)


BAD_CONFIGS = {
    "no dict": ([1], "not list"),
    "no model type": ({"hidden_size": 8}, "model_type is None"),
    "an unknown model type": ({"model_type": "llama9"}, "model_type is 'llama9'"),
    "a model type that is no text": ({"model_type": 3}, "model_type is 3"),
    "no language model": ({"model_type": "vit"}, "no causal language model"),
    "no heads": ({"model_type": "llama", "num_attention_heads": 0}, "num_attention_heads is 0"),
    "layers below one": ({"model_type": "llama", "num_hidden_layers": -1}, "num_hidden_layers is -1"),
    "endless layers": ({"model_type": "qwen2", "num_hidden_layers": 10**9}, "at most 1000"),
    "a width that is no number": ({"model_type": "gpt2", "n_embd": "wide"}, "n_embd is 'wide'"),
    "heads that cannot be shared": (
        {"model_type": "mistral", "num_attention_heads": 32, "num_key_value_heads": 7}, "cannot share 7 KV heads",
    ),
    "a window that is no number": ({"model_type": "mistral", "sliding_window": "wide"}, "sliding_window"),
    "an unknown kind of layer": ({"model_type": "llama", "layer_types": ["a"] * 32}, "layer_types"),
    "an unknown scheme of positions": ({"model_type": "llama", "rope_parameters": {"rope_type": "x"}}, "llama"),
    "a nested config that is no dict": ({"model_type": "gemma3", "text_config": 5}, "gemma3"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_a_bad_config_is_one_sentence(case):
    config, words = BAD_CONFIGS[case]
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        small_model(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"attention": "flash"}, "choose one of eager, sdpa"), ({"dtype": "int8"}, "choose one of float32"),
     ({"seed": -1}, "seed -1"), ({"seed": True}, "seed True")],
)  # fmt: skip
def test_bad_settings_of_a_small_model_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        small_model({"model_type": "llama"}, **wrong)


def test_bad_settings_of_a_wrapped_model_are_refused():
    model = small_model({"model_type": "llama"})
    with pytest.raises(ValueError, match="choose one of dynamic, static, model"):
        wrap(model, "paged")
    with pytest.raises(ValueError, match="max_length 0"):
        wrap(model, "static", max_length=0)
    with pytest.raises(ValueError, match="not dict"):
        wrap({})
    with pytest.raises(ValueError, match="5 tokens do not fit the static cache of 4"):
        wrap(model, "static", max_length=4).step([1, 2, 3, 4, 5], None)


def test_the_table_has_a_row_a_cache_and_attention_and_takes_its_verdict_from_the_check():
    asked = []
    table = verdict_table(
        ["GPT-2", "Bloom 7B"],
        caches=["dynamic", "static"],
        check=lambda wrapped, ids: asked.append(ids) or compare_splits(wrapped, ids),
    )
    assert len(asked) == 6  # Bloom has no sdpa
    assert list(table.architecture) == ["GPT-2"] * 4 + ["Bloom 7B"] * 4
    assert [verdict.split(":")[0] for verdict in table.verdict] == ["equal"] * 4 + ["equal", "not supported"] * 2
    assert set(table.transformers) == {transformers.__version__}
    assert np.nanmax(table.difference) < 1e-5


def test_the_table_says_what_is_wrong_and_refuses_an_unknown_name():
    [row] = verdict_table(["Mamba 130M"], caches=["model"], attentions=["eager"]).to_dict("records")
    assert (row["verdict"], row["first_bad_position"], row["split"]) == ("fault", 7, "unequal chunks 7+5+4")
    assert "zero state" in row["note"]
    with pytest.raises(ValueError, match="architecture 'Llama 9' is unknown"):
        verdict_table(["Llama 9"])


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_importing_kvcore_and_the_bridge_does_not_import_transformers():
    names = "kvcore, kvcore.integrations.transformers, kvcore.integrations.small, kvcore.integrations.architectures"
    run = run_python(f"import sys, {names}\nprint('transformers' in sys.modules)")
    assert run.stdout.strip() == "False", run.stderr


def test_a_missing_library_is_one_sentence_with_what_to_install():
    run = run_python(
        "import sys\nsys.modules['transformers'] = None\nfrom kvcore.integrations.small import small_model\n"
        "try:\n    small_model({'model_type': 'llama'})\nexcept ValueError as error:\n    print(error)"
    )
    assert run.stdout.strip().endswith("pip install transformers"), run.stderr
