"""The page of published models through app.py: shown numbers are the engine's, bad input leaves the rest standing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from kvcore.show import command_line
from kvcore.studies.published_models import Config, run
from pages.common.controls import plain

APP = str(Path(__file__).resolve().parent.parent / "app.py")
FILE = {"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "hidden_size": 512}  # fmt: skip
PASTE, TYPE, UPLOAD = "paste a config.json", "type an architecture", "upload a config.json"


def open_page(**query):
    at = AppTest.from_file(APP, default_timeout=60)
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page("pages/published_models.py")
    return at.run()


def test_default_page_shows_the_engines_sentence_metrics_and_charts():
    at, result = open_page(), run(Config())
    assert not at.exception
    assert at.info[0].value == result.answer
    assert [metric.value for metric in at.metric] == ["10.4 GiB", "496 KiB", "80 KiB", "62 GiB"]
    assert [metric.delta for metric in at.metric] == ["11.2 GB", "508 kB", "81.9 kB", "66.6 GB"]
    assert at.dataframe[0].value["cache bytes"].tolist() == [result.sizes[0].bytes]
    line = json.loads(at.get("plotly_chart")[0].proto.spec)["data"][0]
    assert line["name"] == "Gemma-3-27B"
    assert at.code[-1].value == "python -m kvcore show published-models"


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("selectbox", "model", "Llama-3-70B"),
        ("selectbox", "second", "DeepSeek-V3"),
        ("selectbox", "third", "Qwen3.5-27B"),
        ("selectbox", "format", "q8_0"),
        ("selectbox", "convention", "full"),
        ("number_input", "batch", 8),
    ],
)
def test_each_control_reaches_the_engine(kind, field, value):
    at = open_page()
    getattr(at, kind)(key=f"pub_{field}").set_value(value)
    at.run()
    assert not at.exception
    result = run(Config(**{field: value}))
    assert at.info[0].value == result.answer != run(Config()).answer
    assert at.code[-1].value == command_line("published_models", Config(**{field: value}))


def test_context_moves_every_number():
    at = open_page()
    at.select_slider(key="pub_context").set_value("1024")
    at.run()
    result = run(Config(context=1_024))
    assert at.info[0].value == result.answer
    assert at.metric[0].value == "496 MiB"


@pytest.mark.parametrize(
    ("view", "readings"),
    [
        ("By layer", ["layers_reading"]),
        ("With and without the cache", ["work_reading", "step_reading"]),
        ("What fits", ["fits_reading"]),
        ("Conventions", ["conventions_reading"]),
    ],
)
def test_views_open_from_the_address_with_their_sentence(view, readings):
    at = open_page(pub_view=view, pub_model="Gemma-3-27B", pub_parameters="27000")
    result = run(Config(parameters=27_000))
    assert not at.exception
    assert [info.value for info in at.info[1:]] == [plain(getattr(result, reading)) for reading in readings]


def test_rules_say_where_each_fact_came_from():
    at = open_page(pub_view="Rules", pub_second=TYPE)
    result = run(Config(second="layers=32"))
    tables = [frame.value for frame in at.dataframe if "why" in frame.value]
    assert [len(table) for table in tables] == [len(model.rules) for model in result.models]
    assert any("mlc-ai" in text.value or "Sources" in text.value for text in at.markdown)


def test_typed_architecture_lives_in_the_address():
    at = open_page(pub_model=TYPE, pub_model_layers="24", pub_model_kv_heads="4", pub_model_window="512",
                   pub_model_full_every="6")  # fmt: skip
    text = "layers=24, kv_heads=4, window=512, full_every=6"
    assert at.info[0].value == run(Config(model=text)).answer
    at.number_input(key="pub_model_layers").set_value(12)
    at.run()
    assert at.info[0].value == run(Config(model=text.replace("24", "12"))).answer
    assert at.code[-1].value == f"python -m kvcore show published-models --model '{text.replace('24', '12')}'"


def test_heads_that_do_not_divide_are_one_sentence_and_the_page_stands():
    at = open_page(pub_second=TYPE, pub_second_heads="6", pub_second_kv_heads="4")
    assert not at.exception
    (error,) = at.error
    assert error.value == "6 heads cannot share 4 KV heads; the KV heads must divide the heads."
    assert at.info[0].value == run(Config()).answer


def test_a_pasted_file_is_shown_and_goes_into_the_address():
    at = open_page(pub_model=PASTE)
    assert any("Until a model can be read" in caption.value for caption in at.caption)
    at.text_area(key="pub_model_config_text").set_value(json.dumps(FILE, indent=2))
    at.run()
    assert not at.exception
    short = json.dumps(FILE, separators=(",", ":"))
    result = run(Config(model=short))
    assert at.info[0].value == plain(result.answer)
    assert at.query_params["pub_model_config"] in (short, [short])
    assert at.code[-1].value.startswith("python -m kvcore size --config FILE --context 131072")
    again = open_page(pub_model=PASTE, pub_model_config=short)
    assert again.info[0].value == plain(result.answer)
    assert again.text_area[0].value == short


def test_a_file_beside_a_stored_model_gives_both_commands():
    at = open_page(pub_second=PASTE, pub_second_config=json.dumps(FILE))
    assert at.code[-2].value == 'python -m kvcore show published-models --second "$(cat FILE)"'
    assert at.code[-1].value.startswith("python -m kvcore size --config FILE")


def test_the_command_of_two_files_reads_each_from_its_own(tmp_path):
    other = FILE | {"num_hidden_layers": 1, "model_type": "it's"}
    files = {"FILE_1": FILE, "FILE_2": other}
    at = open_page(pub_model=PASTE, pub_model_config=json.dumps(FILE), pub_third=PASTE,
                   pub_third_config=json.dumps(other), pub_parameters="7000")  # fmt: skip
    line = at.code[-2].value
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content, indent=2))
        line = line.replace(name, str(tmp_path / name))
    shell = subprocess.run(line.replace("python", sys.executable, 1), shell=True, capture_output=True, text=True)
    assert shell.returncode == 0, shell.stderr
    short = {name: json.dumps(content, separators=(",", ":")) for name, content in files.items()}
    assert shell.stdout.startswith(run(Config(short["FILE_1"], third=short["FILE_2"], parameters=7_000)).reading)


def test_a_key_keeps_its_small_letter_in_a_refusal():
    at = open_page(pub_model=PASTE, pub_model_config=json.dumps(FILE | {"num_hidden_layers": -3}))
    assert at.error[0].value.startswith("The key num_hidden_layers is -3; it must be")


def test_numbers_that_windows_alone_set_apart_stand_only_where_there_is_a_window():
    at = open_page(pub_model="Llama-3.1-8B")
    assert [metric.label for metric in at.metric] == ["Cache", "Each token"]
    at = open_page(pub_model="Gemma-3-27B", pub_convention="full")
    assert [metric.label for metric in at.metric] == ["Cache", "Each token"]


def test_a_long_file_is_shown_and_said_to_be_too_long_for_the_address():
    at = open_page(pub_model=PASTE)
    at.text_area(key="pub_model_config_text").set_value(json.dumps(FILE | {"note": "x" * 8_000}))
    at.run()
    assert "pub_model_config" not in at.query_params
    assert any("too long for the address" in caption.value for caption in at.caption)
    assert "4 layers" in at.info[0].value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[1]", "holds a list"),
        ("{}", "the generic rule needs all three"),
        ('{"num_hidden_layers": "many", "num_attention_heads": 8, "hidden_size": 64}', "must be a whole number"),
        ("[" * 3_000, "nested too deeply"),
        ("<script>alert(1)</script>", "is not JSON"),
    ],
)
def test_a_bad_file_is_one_sentence_and_everything_else_stands(text, says):
    at = open_page(pub_second=PASTE)
    at.text_area(key="pub_second_config_text").set_value(text)
    at.run()
    assert not at.exception
    (error,) = at.error
    assert says in error.value.replace("\\", "")
    assert at.info[0].value == run(Config()).answer
    assert at.text_area(key="pub_second_config_text").value == text
    assert len(at.get("plotly_chart")) == 2


def test_an_upload_outlives_another_choice_until_it_is_taken_away():
    at = open_page(pub_model=UPLOAD)
    at.file_uploader[0].upload("mine.json", json.dumps(FILE).encode(), "application/json")
    at.run()
    read = at.info[0].value
    at.selectbox(key="pub_model").set_value("GPT-2 124M")
    at.run()
    assert at.info[0].value != read
    at.selectbox(key="pub_model").set_value(UPLOAD)
    at.run()
    assert at.info[0].value == read
    assert any("mine.json is still read" in caption.value for caption in at.caption)
    at.file_uploader[0].upload("other.json", b"{", "application/json")
    at.run()
    assert "is not JSON" in at.error[0].value


def test_an_upload_says_that_it_is_not_in_the_address_and_is_read():
    at = open_page(pub_model=UPLOAD)
    assert any("not part of the address" in caption.value for caption in at.caption)
    at.file_uploader[0].upload("config.json", json.dumps(FILE).encode(), "application/json")
    at.run()
    assert not at.exception
    assert "4 layers" in at.info[0].value
    assert "pub_model_config" not in at.query_params


@pytest.mark.parametrize(
    ("field", "value"), [("model", "GPT-9"), ("context", "1000001"), ("batch", "0"), ("devices", "x")]
)
def test_an_address_a_control_can_reject_opens_its_default(field, value):
    at = open_page(**{f"pub_{field}": value})
    assert not at.exception
    assert not at.error
    assert at.info[0].value == run(Config()).answer
