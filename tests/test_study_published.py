"""The study of published models: its numbers against plain loops over stored facts, its words, its refusals."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from kvcore.cli import main
from kvcore.published.presets import names, preset, stored
from kvcore.published.sizes import CONVENTIONS, Ask, size
from kvcore.published.words import decides, guessed
from kvcore.studies import published_curves as curves
from kvcore.studies.published_fit import weight_bytes
from kvcore.studies.published_input import compact, described, typed_text
from kvcore.studies.published_models import Config, run
from kvcore.studies.published_work import count_in_words
from kvcore.units import both_units

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
}
FOUR = Config(second="Qwen3.5-27B", third="layers=24, kv_heads=4, window=512, full_every=6", fourth=json.dumps(LLAMA))


@pytest.fixture(scope="module")
def four():
    return run(FOUR)


def gemma_bytes(context):
    """Gemma 3 27B in bf16 from its stored facts, layer by layer and token by token where it matters."""
    facts = stored()["Gemma-3-27B"]["config"]
    facts = facts.get("text_config", facts)
    total = 0
    for kind in facts["layer_types"]:
        kept = context if kind == "full_attention" else min(context, facts["sliding_window"])
        total += kept * facts["num_key_value_heads"] * facts["head_dim"] * 2 * 2
    return total


@pytest.mark.parametrize("context", [1, 1_000, 1_024, 1_025, 131_072])
def test_bytes_are_those_of_a_plain_loop(context):
    result = run(Config(context=context))
    assert result.sizes[0].bytes == gemma_bytes(context)
    assert result.side_by_side()["cache bytes"][0] == gemma_bytes(context)
    assert curves.one_more(result.models[0], FOUR.ask) == gemma_bytes(131_073) - gemma_bytes(131_072)


def test_the_loop_notices_a_forgotten_window():
    without = json.loads(
        json.dumps(stored()["Gemma-3-27B"]["config"]).replace('"sliding_attention"', '"full_attention"')
    )
    assert run(Config(model=json.dumps(without))).sizes[0].bytes != gemma_bytes(131_072)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("devices", [1, 3, 32])
def test_curves_are_the_sizes_at_every_context(four, convention, devices):
    for model in [*four.models, preset("Llama-4-Scout"), preset("DeepSeek-V3")]:
        for context in (1, 511, 512, 8_191, 8_192, 100_000):
            ask = Ask(context, 5, "fp8", convention, devices)
            taken = size(model, ask)
            assert curves.grown(model, ask, [context]) == [taken.bytes]
            assert curves.grown(model, ask, [context], on_one_device=True) == [taken.bytes_per_device]


def test_curves_bend_at_the_knees_and_nowhere_else():
    model = preset("Gemma-3-27B")
    assert curves.knees(model, "live") == [1_024]
    assert curves.knees(model, "dynamic") == [1_023]
    assert curves.knees(model, "full") == []
    at = curves.grown(model, Ask(1), range(1, 1_100))
    steps = [after - before for before, after in pairwise(at)]
    assert [n for n in range(1, len(steps)) if steps[n] != steps[n - 1]] == [1_023]


@pytest.mark.parametrize("name", names())
def test_if_all_were_full_agrees_with_the_sentence(name):
    model, ask = preset(name), Ask(131_072)
    every, taken = curves.if_all_full(model, ask), size(model, ask).bytes
    said = decides(model, ask)
    if every > taken:
        ratio = every / taken
        assert f", {ratio:.{0 if ratio >= 100 else 1}f} times smaller than if all were full" in said
    else:
        assert "if all were full" not in said


@pytest.mark.parametrize("name", names())
def test_every_stored_model_has_every_table_and_a_sentence(name):
    result = run(Config(model=name, context=5_000, batch=3))
    assert result.answer.startswith(f"{name}: {decides(preset(name), Ask(5_000, 3))}")
    assert all(len(table) for table in result.tables().values())
    assert json.dumps(result.to_json())
    assert all(array.dtype.kind in "if" for array in result.arrays().values())
    for wrong in ("None", "nan", "  ", "..", " 1 layers", " 1 tokens", " 1 sequences"):
        assert wrong not in result.reading.replace("None of", "")


def test_what_fits_is_the_largest_that_fits():
    config = Config(model="Llama-3.1-8B", context=8_192, parameters=8_030, memory=24, devices=2)
    result = run(config)
    (found,) = result.fits
    weights = 8_030 * 10**6 * 2 // 2
    left = 24 * 2**30 - weights
    one = 32 * 8_192 * 4 * 256 * 2  # 4 of 8 KV heads on each of 2 devices
    assert found.weights == weights
    assert found.sequences.number == left // one
    assert found.longest.number == left // (one // 8_192)
    at = dict(zip(result.contexts, result.sequences()[0], strict=True))
    assert at[8_192] == found.sequences.number
    assert f"{found.sequences.number} sequences of 8 Ki tokens fit into 24 GiB" in result.fits_reading


def test_sequences_count_the_fixed_state():
    result = run(Config(model="Qwen3.5-27B", context=1_024))
    at = dict(zip(result.contexts, result.sequences()[0], strict=True))
    assert at[1_024] == result.fits[0].sequences.number
    stateless = replace(result.models[0], layers=tuple(replace(x, state_elements=0) for x in result.models[0].layers))
    assert replace(result, models=(stateless,)).sequences()[0] != result.sequences()[0]


def test_one_more_is_too_much_by_what_the_memory_lacks():
    result = run(Config(model="Llama-3.1-8B", parameters=8_030, memory=80))
    (found,) = result.fits
    one = 32 * 131_072 * 8 * 256 * 2
    over = found.weights + (found.sequences.number + 1) * one - 80 * 2**30
    assert 0 < over < one
    assert f"; one more would be {both_units(over)} too much." in result.fits_reading


def test_a_memory_in_which_not_one_fits_is_said_so():
    assert "not one sequence of 128 Ki tokens fits into 4 GiB; one would be 12 GiB (12.9 GB) too much." in (
        run(Config(model="Llama-3.1-8B", memory=4)).fits_reading
    )
    tight = run(Config(model="Llama-3.1-8B", memory=1, batch=1_000_000))
    assert tight.fits_reading.endswith("Each of 1,000,000 sequences cannot hold even 1 token.")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layers=1, heads=1, kv_heads=1", "Its only layer keeps everything: at"),
        ("layers=1, window=8", "Its only layer stops at 8 tokens: at"),
        ("layers=2, window=8, full_every=2", "1 of 2 layers keeps everything; the other stops at 8 tokens: at"),
        ("layers=3, window=8, full_every=3", "1 of 3 layers keeps everything; the other 2 stop at 8 tokens: at"),
        ("layers=5, window=8, full_every=3", "1 of 5 layers keeps everything; the other 4 stop at 8 tokens: at"),
    ],
)
def test_one_layer_and_several_have_their_own_verbs(text, says):
    result = run(Config(model=text))
    assert says in result.answer
    assert "1 full holds" in result.layers_reading or "1 of" not in says


def test_a_family_that_is_not_known_is_said_beside_its_size():
    shape = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512}
    said = "The family of config.json (zorblax) is not known here, so the generic rule reads its file."
    assert said in run(Config(json.dumps(shape | {"model_type": "zorblax"}))).answer
    for known in (json.dumps(shape | {"model_type": "llama"}), "layers=4", *names()):
        assert guessed(described(known)) == ""


def test_a_shape_that_only_the_family_has_is_said_beside_the_size():
    said = "The file of config.json (llama) holds no num_hidden_layers and no num_attention_heads; what the family"
    assert said in run(Config('{"model_type": "llama", "hidden_size": 512}')).answer


def test_weights_that_leave_nothing_are_a_sentence():
    result = run(Config(parameters=1_000_000))
    assert result.fits[0].sequences is None
    assert "weights of 1.82 TiB (2 TB) leave nothing of 80 GiB" in result.fits_reading
    assert result.what_fits()["they take"][0] == "nothing fits"
    assert not any(result.sequences()[0])


def test_weights_are_dealt_out_and_rounded_up():
    assert weight_bytes(7, 4, 1) == 3_500_000
    assert weight_bytes(1, 16, 3) == 666_667


def test_states_and_contexts_beyond_the_file_stand_beside(four):
    assert (
        "Qwen3.5-27B also holds a state of fixed size, 51 MiB (53.5 MB), which is not in the cache above."
        in four.beside
    )
    assert "GPT-2 124M stops at 1 Ki tokens" in run(Config(model="GPT-2 124M")).beside
    assert run(Config(context=1_024)).beside == ""
    unknown = replace(four.models[1].layers[0], state_elements=None)
    model = replace(four.models[1], layers=(unknown, *four.models[1].layers[1:]))
    told = replace(four, config=Config(), models=(model,), sizes=(size(model, FOUR.ask),))
    assert "its file does not tell" in told.beside
    assert "whose size is not known, left out" in told.fits_reading
    assert told.side_by_side()["fixed state beside"][0] == "not known"


def test_conventions_say_where_layers_differ():
    said = run(Config()).conventions_reading
    assert "52 layers count 1,023 tokens instead of 1,024" in said
    assert "static is the same" in said
    assert "52 layers count 131,072 tokens instead of 1,024" in said
    table = run(Config()).conventions().set_index("convention")
    assert table["bytes"]["full"] == 62 * 131_072 * 16 * 256 * 2


def test_facts_without_a_source_are_named():
    result = run(Config(model="GPT-2 XL", second="gpt-2 xl", third="Gemma-3-27B", fourth=json.dumps(LLAMA)))
    assert [result.unconfirmed(model) for model in result.models] == [["dtype"], ["dtype"], [], []]


def test_conventions_side_by_side_keep_the_models_in_order(four):
    table = four.conventions_side_by_side()
    assert table["model"].tolist() == [model.name for model in four.models]
    assert list(table.columns[1:]) == list(CONVENTIONS)
    assert table["full"][0] == "62 GiB (66.6 GB)"


def test_work_is_that_of_the_counts(four):
    done = four.works()[3]
    assert done.cached.token_passes == 1_024 + 255
    assert done.recomputed.token_passes == sum(range(1_024, 1_280))
    projections = 2 * 4 * 1_279 * (2 * 512 * 512 + 2 * 512 * 128)
    assert done.cached.flops["projections"] == projections
    assert four.work()["FLOPs projections"][6] == f"{projections:,}"
    assert four.work()["FLOPs other"][2] == "not counted"
    assert "Not counted: other" in four.work_reading


def test_a_step_is_bound_by_memory_until_arithmetic_is_scarce():
    few = run(Config(model="Llama-3.1-8B", parameters=8_030, context=128))
    many = run(Config(model="Llama-3.1-8B", parameters=8_030, context=128, batch=1_024))
    assert few.steps()[0][1].bound == "memory"
    assert many.steps()[0][1].bound == "arithmetic"
    assert "so memory bounds it" in few.step_reading
    assert "so arithmetic bounds it" in many.step_reading
    assert "give its parameters" in run(Config()).step_reading
    assert "give both hardware figures" in run(Config(parameters=27_000, bandwidth=0)).step_reading


def test_names_differ_where_models_are_the_same():
    result = run(Config(model="GPT-2 XL", second="GPT-2 XL", third="gpt-2 xl"))
    assert [model.name for model in result.models] == ["GPT-2 XL", "GPT-2 XL · 2", "GPT-2 XL · 3"]
    assert "All of them take the same." in result.answer


def test_typed_architecture_keeps_what_it_says():
    text = typed_text(layers=12, heads=16, kv_heads=4, head_width=64, window=256, full_every=4)
    model = described(text)
    assert [layer.kind for layer in model.layers] == ["sliding", "sliding", "sliding", "full"] * 3
    assert size(model, Ask(1_000)).bytes == (9 * 256 + 3 * 1_000) * 4 * 128 * 2
    assert described("layers=3, window=9").kinds == {"sliding": 3}
    assert described("layers=3, window=9, full_every=1").kinds == {"full": 3}
    assert typed_text(layers=32, kv_heads=8) == "layers=32"
    assert all("file" not in rule.why for rule in model.rules)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model": ""}, "no model is given"),
        ({"model": "Gemma-3-28B"}, "near are Gemma-3"),
        ({"second": "layers=x"}, "type an architecture like"),
        ({"second": "layers=0"}, "layers is 0; it must be a whole number from 1"),
        ({"second": "heads=6, kv_heads=4"}, "KV heads must divide"),
        ({"second": "depth=3"}, "type an architecture like"),
        ({"third": "{"}, "is not JSON"),
        ({"third": "[1]"}, "holds a list"),
        ({"third": "{}"}, "the generic rule needs all three"),
        ({"fourth": "{" + " " * (1 << 20)}, "too long"),
        ({"context": 0}, "context is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"format": "f8"}, "format is 'f8'"),
        ({"convention": "mine"}, "convention is 'mine'"),
        ({"devices": 2_000}, "devices is 2000"),
        ({"memory": 0}, "memory is 0"),
        ({"weight_bits": 5}, "5 bits a weight is no choice"),
        ({"parameters": -1}, "parameters is -1"),
        ({"prompt": 0}, "prompt is 0"),
        ({"peak_tflops": -1}, "peak TFLOP/s is -1"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(fields, says):
    with pytest.raises(ValueError, match=says):
        Config(**fields)


def test_largest_numbers_stay_exact_and_fit_every_file():
    huge = {"num_hidden_layers": 20, "num_attention_heads": 100_000, "hidden_size": 10**7, "head_dim": 10**7}
    result = run(Config(model=json.dumps(huge), context=1 << 30, batch=10**6))
    expected = 20 * (1 << 30) * 100_000 * 2 * 10**7 * 2 * 10**6
    assert result.side_by_side()["cache bytes"][0] == str(expected)
    assert result.arrays()["cache_bytes"][0] == pytest.approx(expected)
    assert result.to_json()[0]["bytes"] == expected


def test_a_file_is_compact_and_its_name_is_plain():
    assert compact('{"a": [1, 2],\n "b": null}') == '{"a":[1,2],"b":null}'
    assert compact('{"a": "\\ud800"}').isascii()
    odd = LLAMA | {"model_type": "<a href='x'>"}
    assert described(json.dumps(odd)).name == "config.json (ahrefx)"


def test_counts_in_words():
    assert [count_in_words(n) for n in (7, 999, 1_000, 67_500_000_000_000, 999_600)] == [
        "7",
        "999",
        "1 thousand",
        "67.5 trillion",
        "1 million",
    ]


def test_the_shell_shows_the_same(capsys):
    assert main(["show", "published-models", "--model", "layers=4, window=64", "--second", "GPT-2 XL"]) == 0
    printed = capsys.readouterr().out
    assert run(Config(model="layers=4, window=64", second="GPT-2 XL")).reading in printed
