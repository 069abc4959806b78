"""Malformed configuration files: one line on stderr that names the key or what is allowed, exit code 2, no output."""

import json
import os
from pathlib import Path

import pytest

from kvcore import cli
from kvcore.published.file import MOST_BYTES, MOST_DEPTH, parse_config

GENERIC = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 64}
LLAMA = {"model_type": "llama", **GENERIC}
NAS = {"model_type": "nemotron-nas", "num_attention_heads": 8, "hidden_size": 64}


def family(model_type, **keys):
    return {"model_type": model_type, **GENERIC, **keys}


def nested(depth):
    return b'{"a":' * depth + b"1" + b"}" * depth


CONTENTS = {
    "empty": (b"", "the file is empty"),
    "only blanks": (b" \n\t\n", "the file is empty"),
    "truncated in an object": (b'{"model_type": "llama", "num_hidden', "line 1 is not JSON"),
    "truncated after a comma": (b'{"model_type": "llama",\n', "line 2 is not JSON"),
    "python instead of JSON": (b"{'model_type': None}", "line 1 is not JSON"),
    "two objects": (b"{}\n{}", "line 2 is not JSON"),
    "YAML": (b"model_type: llama\n", "line 1 is not JSON"),
    "a list": (b'[{"model_type": "llama"}]', "the file holds a list"),
    "a text": (b'"llama"', "the file holds a text"),
    "a number": (b"32", "the file holds a number"),
    "true": (b"true", "the file holds true or false"),
    "null": (b"null", "the file holds null"),
    "Latin-1": ('{"model_type": "lläma"}'.encode("latin-1"), "byte 18 is not UTF-8"),
    "UTF-16": ('{"model_type": "llama"}'.encode("utf-16"), "byte 0 is not UTF-8"),
    "a compressed file": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "byte 1 is not UTF-8"),
    "zero bytes": (b"\x00" * 64, "line 1 is not JSON"),
    "nested a little too deeply": (nested(MOST_DEPTH + 1), f"at most {MOST_DEPTH} levels"),
    "nested far too deeply": (b"[" * 200_000, "nested too deeply"),
    "a huge file": (b" " * (MOST_BYTES + 1), "more than 1,048,576 bytes"),
    "a number of 5,000 digits": (b'{"num_hidden_layers": ' + b"9" * 5000 + b"}", "thousands of digits"),
    "an unclosed text with a line break": (b'{"model_type": "lla\nma"}', "line 1 is not JSON"),
}
"""Files that hold no object, and what is said of them."""

CONFIGS = {
    "an empty object": ({}, "no num_hidden_layers and no num_attention_heads and no hidden_size"),
    "an unknown family without width": (
        {"model_type": "hyena", "n_layer": 4, "n_head": 8},
        '"hyena" is not known and the file has no hidden_size',
    ),
    "an unknown family with null heads": (family("hyena", num_attention_heads=None), "no num_attention_heads"),
    "model_type a number": ({"model_type": 7, **GENERIC}, "model_type is 7"),
    "model_type a list": ({"model_type": ["llama"], **GENERIC}, "it must be a name such as llama"),
    "model_type with a line break": (family("lla\nma"), "it must be a name such as llama"),
    "model_type half a character": (family("\ud800"), "it must be a name such as llama"),
    "layers null": (LLAMA | {"num_hidden_layers": None}, "num_hidden_layers is null"),
    "layers a text": (LLAMA | {"num_hidden_layers": "32"}, "num_hidden_layers is"),
    "layers a fraction": (LLAMA | {"num_hidden_layers": 4.5}, "whole number from 1 to 2,000"),
    "layers negative": (LLAMA | {"num_hidden_layers": -4}, "num_hidden_layers is -4"),
    "layers zero": (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
    "layers huge": (LLAMA | {"num_hidden_layers": 10**9}, "from 1 to 2,000"),
    "layers true": (LLAMA | {"num_hidden_layers": True}, "num_hidden_layers is true"),
    "heads null": (LLAMA | {"num_attention_heads": None}, "num_attention_heads is null"),
    "heads a list": (LLAMA | {"num_attention_heads": [8] * 4}, "num_attention_heads is [8, 8, 8, 8]"),
    "heads NaN": (LLAMA | {"num_attention_heads": float("nan")}, "num_attention_heads is NaN"),
    "heads infinite": (LLAMA | {"num_attention_heads": float("inf")}, "num_attention_heads is Infinity"),
    "width null": (LLAMA | {"hidden_size": None}, "hidden_size is null"),
    "width huge": (LLAMA | {"hidden_size": 10**300}, "hidden_size is 1000"),
    "width less than the heads": (LLAMA | {"hidden_size": 4}, "cannot be divided among 8 heads; give head_dim"),
    "head width negative": (LLAMA | {"head_dim": -128}, "head_dim is -128"),
    "head width an object": (LLAMA | {"head_dim": {"full": 128}}, "head_dim is"),
    "KV heads that do not divide": (LLAMA | {"num_key_value_heads": 3}, "8 heads cannot share 3 KV heads"),
    "KV heads zero": (LLAMA | {"num_key_value_heads": 0}, "num_key_value_heads is 0"),
    "KV heads null in Mistral": (family("mistral", num_key_value_heads=None), "num_key_value_heads is null"),
    "vocabulary a text": (LLAMA | {"vocab_size": "32k"}, "vocab_size is"),
    "context negative": (LLAMA | {"max_position_embeddings": -1}, "max_position_embeddings is -1"),
    "window negative": (family("mistral", sliding_window=-4096), "sliding_window is -4096"),
    "window a list": (family("mistral", sliding_window=[4096]), "sliding_window is [4096]"),
    "use_sliding_window a text": (family("qwen2", use_sliding_window="false"), "must be true or false"),
    "use_sliding_window a text elsewhere": (LLAMA | {"use_sliding_window": "no"}, "must be true or false"),
    "layer_types too short": (family("gemma3_text", layer_types=["full_attention"] * 3), "layer_types has 3 entries"),
    "layer_types a text": (family("gpt_oss", layer_types="full_attention"), "layer_types is"),
    "layer_types of unknown names": (family("gemma2", layer_types=["half_attention"] * 4), "known are full_attention"),
    "layer_types of objects": (family("cohere2", layer_types=[{"type": "full_attention" * 9}] * 4), "known are"),
    "layer_types of 5,000": (LLAMA | {"layer_types": ["full_attention"] * 5000}, "at most 2,000 are read"),
    "layer_types missing": ({"model_type": "beam"}, "layer_types is not in the file; beam needs it"),
    "pattern zero": (family("gemma3_text", sliding_window_pattern=0), "sliding_window_pattern is 0"),
    "pattern of unknown letters": (family("exaone4", sliding_window_pattern="LLLX"), "letters may be S, L"),
    "pattern an empty text": (family("exaone4", sliding_window_pattern=""), "letters may be"),
    "shared layers beyond the depth": (family("gemma3n_text", num_kv_shared_layers=9), "num_kv_shared_layers is 9"),
    "shared layers a text": (family("gemma3n_text", num_kv_shared_layers="15"), "num_kv_shared_layers is"),
    "Gemma 4: global_head_dim zero": (family("gemma4_text", global_head_dim=0), "global_head_dim is 0"),
    "Gemma 4: attention_k_eq_v a number": (family("gemma4_text", attention_k_eq_v=1), "attention_k_eq_v is 1"),
    "per_layer_config of a layer beyond": (LLAMA | {"per_layer_config": {"4": {}}}, "per_layer_config names layer"),
    "per_layer_config a list": (LLAMA | {"per_layer_config": [1, 2]}, "per_layer_config is [1, 2]"),
    "per_layer_config heads a text": (
        LLAMA | {"per_layer_config": {"0": {"num_key_value_heads": "8"}}},
        "per_layer_config.0.num_key_value_heads",
    ),
    "Llama 4: no_rope_layers too long": (family("llama4_text", no_rope_layers=[1] * 5), "no_rope_layers has 5"),
    "Llama 4: no_rope_layers of names": (family("llama4_text", no_rope_layers=["x"] * 4), "each entry is 1 or 0"),
    "Llama 4: no_rope_layers a number": (family("llama4_text", no_rope_layers=4), "no_rope_layers is 4"),
    "Llama 4: a chunk of zero": (family("llama4_text", attention_chunk_size=0), "attention_chunk_size is 0"),
    "Llama 4: interval zero": (family("llama4_text", no_rope_layer_interval=0), "no_rope_layer_interval is 0"),
    "DeepSeek: kv_lora_rank null": (family("deepseek_v3", kv_lora_rank=None), "kv_lora_rank is null"),
    "DeepSeek: kv_lora_rank negative": (family("deepseek_v2", kv_lora_rank=-512), "kv_lora_rank is -512"),
    "DeepSeek: qk_rope_head_dim a text": (family("deepseek_v3", qk_rope_head_dim="64"), "qk_rope_head_dim is"),
    "DeepSeek: index_head_dim a list": (family("deepseek_v32", index_head_dim=[128]), "index_head_dim is [128]"),
    "Qwen: max_window_layers negative": (
        family("qwen2", num_key_value_heads=8, use_sliding_window=True, max_window_layers=-1),
        "max_window_layers is -1",
    ),
    "Qwen 3 Next: interval a text": (family("qwen3_next", full_attention_interval="4"), "full_attention_interval is"),
    "Qwen 3 Next: state heads a text": (family("qwen3_next", linear_num_value_heads="32"), "linear_num_value_heads is"),
    "Jamba: offset not below the period": (family("jamba", attn_layer_offset=8), "less than attn_layer_period"),
    "Jamba: state huge": (family("jamba", mamba_d_state=10**300), "mamba_d_state is 1000"),
    "Nemotron H: pattern of unknown letters": (
        family("nemotron_h", hybrid_override_pattern="MX*-"),
        "letters may be M",
    ),
    "Nemotron H: pattern a list": (family("nemotron_h", hybrid_override_pattern=["M"]), "hybrid_override_pattern is"),
    "Nemotron H: pattern empty": (family("nemotron_h", hybrid_override_pattern=""), "hybrid_override_pattern is"),
    "Nemotron H: pattern of 3,000": (family("nemotron_h", hybrid_override_pattern="M" * 3000), "at most 2,000"),
    "Nemotron H: no pattern": (family("nemotron_h", num_hidden_layers=52), "neither hybrid_override_pattern nor"),
    "Nemotron H: layers_block_type empty": (family("nemotron_h", layers_block_type=[]), "layers_block_type is empty"),
    "Nemotron NAS: no block_configs": (NAS | {"num_hidden_layers": 4}, "block_configs is not in the file"),
    "Nemotron NAS: block_configs an object": (NAS | {"block_configs": {"0": {}}}, "block_configs is"),
    "Nemotron NAS: an entry without attention": (NAS | {"block_configs": [{}]}, "an object named attention"),
    "Nemotron NAS: a group that does not divide": (
        NAS | {"block_configs": [{"attention": {"n_heads_in_group": 3}}]},
        "groups of 3 do not divide 8 heads",
    ),
    "Nemotron NAS: a group of null": (NAS | {"block_configs": [{"attention": {}}]}, "n_heads_in_group is null"),
    "Nemotron NAS: no_op a text": (
        NAS | {"block_configs": [{"attention": {"no_op": "false"}}]},
        "block_configs[0].attention.no_op",
    ),
    "GPT-Neo: attention_types flat": (family("gpt_neo", attention_types=["global"]), "a list of kinds and a count"),
    "GPT-Neo: attention_types of other depth": (
        family("gpt_neo", attention_types=[[["global", "local"], 12]]),
        "attention_types gives 24 layers; the model has 4",
    ),
    "GPT-Neo: a billion layers": (
        family("gpt_neo", attention_types=[[["global"], 10**9]]),
        "attention_types is 1000000000",
    ),
    "GPT-Neo: window_size a text": (family("gpt_neo", window_size="256"), "window_size is"),
    "Falcon: multi_query a number": (family("falcon", multi_query=1), "multi_query is 1"),
    "Falcon: num_kv_heads a text": (family("falcon", num_kv_heads="71"), "num_kv_heads is"),
    "Falcon: new_decoder_architecture a text": (
        family("falcon", new_decoder_architecture="true"),
        "new_decoder_architecture is",
    ),
    "BigCode: multi_query a text": (family("gpt_bigcode", multi_query="true"), "multi_query is"),
    "MPT: attn_config a text": (family("mpt", attn_config="multiquery"), "attn_config is"),
    "MPT: kv_n_heads negative": (family("mpt", attn_config={"kv_n_heads": -1}), "attn_config.kv_n_heads is -1"),
    "DBRX: attn_config a list": (family("dbrx", attn_config=[8]), "attn_config is [8]"),
    "DBRX: kv_n_heads a text": (family("dbrx", attn_config={"kv_n_heads": "8"}), "attn_config.kv_n_heads is"),
    "ChatGLM: groups zero": (
        family("chatglm", multi_query_attention=True, multi_query_group_num=0),
        "multi_query_group_num is 0",
    ),
    "Kimi Linear: linear_attn_config a text": (
        family("kimi_linear", linear_attn_config="kda"),
        "linear_attn_config is",
    ),
    "Kimi Linear: full_attn_layers of texts": (
        family("kimi_linear", linear_attn_config={"full_attn_layers": ["4"]}),
        "linear_attn_config.full_attn_layers is",
    ),
    "Kimi Linear: full_attn_layers a number": (
        family("kimi_linear", linear_attn_config={"full_attn_layers": 4}),
        "it must be a list",
    ),
    "Kimi Linear: heads negative": (
        family("kimi_linear", linear_attn_config={"num_heads": -32}),
        "linear_attn_config.num_heads is -32",
    ),
    "MiniMax: attn_type_list of names": (family("minimax", attn_type_list=["full"] * 4), "each entry is 1 or 0"),
    "MiniMax: attn_type_list too short": (family("minimax", attn_type_list=[1, 0]), "attn_type_list has 2 entries"),
    "MiMo: hybrid_layer_pattern of twos": (
        family("mimo_v2_flash", hybrid_layer_pattern=[2] * 4),
        "hybrid_layer_pattern holds 2",
    ),
    "MiMo: swa heads a text": (
        family("mimo_v2_flash", swa_num_key_value_heads="8"),
        "swa_num_key_value_heads is",
    ),
    "MiMo: sliding_window_size a text": (
        family("mimo_v2_flash", sliding_window_size="128"),
        "sliding_window_size is",
    ),
    "Mllama: cross_attention_layers of texts": (
        family("mllama_text_model", cross_attention_layers=["3"]),
        "cross_attention_layers is",
    ),
    "Bamba: attn_layer_indices negative": (family("bamba", attn_layer_indices=[-1]), "attn_layer_indices is -1"),
    "LFM 2: full_attn_idxs a number": (family("lfm2", full_attn_idxs=2), "full_attn_idxs is 2"),
    "LFM 2: conv_L_cache zero": (family("lfm2", full_attn_idxs=[0], conv_L_cache=0), "conv_L_cache is 0"),
    "Recurrent Gemma: block_types of numbers": (family("recurrent_gemma", block_types=[0, 1]), "block_types holds 0"),
    "Mamba: width null": ({"model_type": "mamba", "hidden_size": None}, "hidden_size is null"),
    "Zamba 2: no list for another depth": (family("zamba2"), "neither layers_block_type nor hybrid_layer_ids"),
    "SmolLM 3: interval zero": (
        family("smollm3", use_sliding_window=True, sliding_window=8, no_rope_layer_interval=0),
        "no_rope_layer_interval is 0",
    ),
    "text_config a list": ({"model_type": "gemma3", "text_config": []}, "text_config is []"),
    "text_config a text": ({"model_type": "gemma3", "text_config": "gemma3_text"}, "it must be a JSON object"),
    "thinker_config a number": ({"thinker_config": 3}, "thinker_config is 3"),
    "nested twice": ({"text_config": {"text_config": LLAMA}}, "one inside the file is read"),
    "nested without the keys": ({"model_type": "odd", "text_config": {"n_layer": 2}}, "no num_attention_heads"),
}
"""Objects that describe no model, and what is said of them."""


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    """The one line on stderr of `size` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*options):
        assert cli.main(["size", *options]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert len(printed.err) <= 300
        return printed.err

    return run


def test_there_are_at_least_fifty_malformed_files():
    assert len(CONTENTS) + len(CONFIGS) >= 50


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_without_an_object_is_refused_in_one_line(refused, name):
    content, says = CONTENTS[name]
    Path("config.json").write_bytes(content)
    assert says in refused("--config", "config.json")


@pytest.mark.parametrize("name", CONFIGS)
def test_an_object_that_describes_no_model_is_refused_in_one_line(refused, name):
    config, says = CONFIGS[name]
    Path("config.json").write_text(json.dumps(config))
    said = refused("--config", "config.json", "--json")
    assert said.startswith("config.json: ")
    assert says in said


@pytest.mark.parametrize(("options", "says"), [
    ("--context -1", "context"), ("--context 1e3", "context"), ("--context 32k", "context"),
    ("--context 1.0", "context"), (f"--context {10**30}", "context"), (f"--context {'9' * 60}", "context"),
    ("--context", "expected one argument"), ("--batch 0", "batch"), ("--batch two", "batch"),
    (f"--batch {10**12}", "batch"), ("--devices 0", "devices"), ("--devices -8", "devices"),
    ("--devices 1.5", "devices"), ("--format fp4", "bf16"), ("--format BF16", "bf16"),
    ("--convention best", "live, dynamic, static"), ("--tokens 5", "--context"), ("stray", "not understood"),
])  # fmt: skip
def test_an_option_that_is_not_allowed_is_refused_with_what_is(refused, options, says):
    Path("config.json").write_text(json.dumps(LLAMA))
    assert says in refused("--config", "config.json", *options.split())


@pytest.mark.parametrize(("options", "says"), [
    (["--config", "none.json"], "none.json: No such file"),
    (["--config", "."], ".: Is a directory"),
    (["--config", ""], "give the path of a config.json"),
    (["--config", "a\0b"], "null"),
    (["--config", "x" * 200 + "/config.json"], "give the path of a config.json"),
    (["--model", "Llama-9000"], "there is no model named 'Llama-9000'; near are"),
    (["--model", "x" * 5000], "there is no model named"),
    (["--model", ""], "there is no model named"),
    (["--config", "config.json", "--model", "Llama-3-8B"], "name one model"),
    ([], "name one model: --config FILE or --model NAME"),
])  # fmt: skip
def test_a_model_that_is_not_there_is_refused(refused, options, says):
    assert says in refused(*options)


def test_a_file_that_may_not_be_read_is_refused(refused, monkeypatch):
    Path("config.json").write_text(json.dumps(LLAMA))

    def denied(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    assert "config.json: Permission denied; give the path" in refused("--config", "config.json")


def test_a_file_whose_name_is_no_text_is_read_all_the_same(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"\xff.json")
    Path(name).write_text(json.dumps(LLAMA))
    assert cli.main(["size", "--config", name]) == 0
    assert "?.json: 1 sequence of 4,096 tokens" in capsys.readouterr().out


def test_a_byte_order_mark_is_no_error_in_a_file_or_in_pasted_text():
    text = "\ufeff" + json.dumps(LLAMA)
    assert parse_config(text) == parse_config(text.encode()) == LLAMA


def test_as_deep_as_allowed_is_read():
    assert parse_config(nested(MOST_DEPTH - 1))


def test_infinity_that_decides_no_size_is_no_error(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")]}))
    assert cli.main(["size", "--config", "config.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert {"bytes", "fixed_state_bytes", "layers", "rules"} <= set(found)
    assert len(found["layers"]) == 4
