"""Published models drawn: lines hold the result's bytes, knees and ends are marked, a strip has a cell a layer."""

import json

import pytest

from kvcore.figures import published, published_layers, published_work
from kvcore.published.counts import PARTS
from kvcore.published.sizes import CONVENTIONS, Ask, size
from kvcore.studies.published_models import Config, run

MAMBA = json.dumps({"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "state_size": 16})


@pytest.fixture(scope="module")
def result():
    return run(Config(second="Qwen3.5-27B", third="layers=24, kv_heads=4, window=512, full_every=6"))


def named(drawn):
    return {trace.name: trace for trace in drawn.data}


def test_payload_holds_each_models_bytes_and_marks_knees_and_ends(result):
    lines = named(published.payload(result))
    for model in result.models:
        line = lines[model.name]
        assert list(line.x) == result.contexts
        assert list(line.y) == [size(model, Ask(context)).bytes for context in result.contexts]
    knees, ends = lines["a window is full"], lines["the file's longest context"]
    assert list(zip(knees.x, knees.y, strict=True)) == [
        (1_024, size(result.models[0], Ask(1_024)).bytes),
        (512, size(result.models[2], Ask(512)).bytes),
    ]
    assert list(ends.x) == [131_072, 262_144]
    assert lines["the first, if all were full"].y[-1] == 62 * result.contexts[-1] * 16 * 256 * 2
    assert set(lines["Qwen3.5-27B: fixed state"].y) == {53_477_376}


def test_payload_marks_the_chosen_context_and_never_by_colour_alone(result):
    drawn = published.payload(result)
    assert drawn.layout.shapes[0].x0 == 131_072
    assert drawn.layout.annotations[0].text == "128 Ki tokens"
    lines = [trace.line for trace in drawn.data[:3]]
    assert len({line.dash for line in lines}) == len({line.color for line in lines}) == 3
    assert "GiB" in drawn.data[0].customdata[-1][1]
    assert "GB" in drawn.data[0].customdata[-1][1]


def test_sequences_hold_what_fits(result):
    lines = named(published.sequences(result))
    for model, fitting in zip(result.models, result.sequences(), strict=True):
        assert [0 if y is None else y for y in lines[model.name].y] == fitting


def test_a_strip_has_one_lettered_cell_a_layer_and_says_what_it_keeps(result):
    model, taken = result.models[0], result.sizes[0]
    (strip,) = published_layers.strip(model, taken).data
    letters = [letter for row in strip.text for letter in row if letter]
    assert "".join(letters) == "".join("F" if layer.kind == "full" else "S" for layer in model.layers)
    assert strip.text[0][5] == "F"
    assert "layer 5<br>full" in strip.customdata[0][5]
    assert "1,024 tokens" in strip.customdata[0][4]
    assert list(strip.y) == ["0", "24", "48"]
    assert all(letter in {"F", "R"} for row in published_layers.strip(result.models[1], result.sizes[1]).data[0].text
               for letter in row if letter)  # fmt: skip


def test_every_kind_has_a_letter_and_a_colour_of_its_own():
    assert len({letter for letter, _ in published_layers.LOOK.values()}) == len(published_layers.KINDS)
    assert len({color for _, color in published_layers.LOOK.values()}) == len(published_layers.KINDS)


def test_a_layer_with_a_state_beside_its_attention_is_marked():
    falcon = {"model_type": "falcon_h1", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 8}
    found = run(Config(model=json.dumps(falcon)))
    assert {
        letter for row in published_layers.strip(found.models[0], found.sizes[0]).data[0].text for letter in row
    } == {"F+"}


def test_conventions_hold_a_bar_each(result):
    for trace, model in zip(published_layers.conventions(result).data, result.models, strict=True):
        expected = [size(model, Ask(131_072, convention=name)).bytes for name in CONVENTIONS]
        assert list(trace.y) == expected
        assert trace.text is None
        assert all("iB" in said for said in trace.customdata)
    (alone,) = published_layers.conventions(run(Config())).data
    assert list(alone.text) == ["10.4 GiB", "10.4 GiB", "10.4 GiB", "62 GiB"]


def test_flops_hold_both_ways_and_leave_out_what_is_not_counted(result):
    drawn = published_work.flops(result)
    assert len(drawn.data) == 6
    done = result.works()
    parts = [part for part in PARTS if part != "other"]
    for trace, (each, way) in zip(drawn.data, [(d, w) for d in done for w in published_work.WAYS], strict=True):
        assert list(trace.y) == [getattr(each, way).flops[part] for part in parts]
    assert drawn.data[0].marker.symbol == "circle"
    assert drawn.data[1].marker.symbol == "circle-open"


@pytest.mark.parametrize("config", [Config(), Config(context=1), Config(model="GPT-2 124M"), Config(context=1 << 30)])
def test_every_axis_has_a_title(config):
    found = run(config)
    drawn = [published.payload(found), published.sequences(found), published_layers.conventions(found)]
    drawn += [published_layers.strip(found.models[0], found.sizes[0]), published_work.flops(found)]
    for figure in drawn:
        if figure.data:
            assert figure.layout.xaxis.title.text
            assert figure.layout.yaxis.title.text


def test_nothing_to_draw_gives_a_figure_with_a_sentence():
    found = run(Config(model=MAMBA))
    assert "keeps keys and values that grow" in published.payload(found).layout.annotations[0].text
    assert "keeps keys and values that grow" in published_layers.conventions(found).layout.annotations[0].text
    full = run(Config(parameters=1_000_000))
    assert "At no context here" in published.sequences(full).layout.annotations[0].text


@pytest.mark.parametrize("other", ["", "GPT-2 124M", "Llama-3.1-405B", "layers=1, heads=1, kv_heads=1, head_width=1"])
def test_the_axis_of_bytes_has_four_to_eight_ticks(other):
    drawn = published.payload(run(Config(second=other)))
    low, high = (edge(each for line in drawn.data for each in line.y if each) for edge in (min, max))
    assert 4 <= sum(low / 8 <= tick <= high * 8 for tick in drawn.layout.yaxis.tickvals) <= 9
