"""Studies from a shell: options from a Config, and a command line that gives the Config again."""

import json
import shlex
import sys
import types
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
import pytest

from kvcore import cli, show


@dataclass(frozen=True)
class Config:
    n_rows: int = 3
    scale: float = 0.5
    chunks: str = "5,3"
    note: str = ""
    causal: bool = True
    window: int | None = 4

    def __post_init__(self) -> None:
        if self.n_rows < 1:
            raise ValueError(f"n_rows is {self.n_rows}; it must be 1 or more")


class Result:
    def __init__(self, config):
        self.config = config
        self.reading = f"The settings are {config}."

    def tables(self):
        return {"rows": pd.DataFrame({"row": range(self.config.n_rows), "value": self.config.scale})}

    def arrays(self):
        return {"values": np.full(self.config.n_rows, self.config.scale)}


@pytest.fixture(autouse=True)
def fake_study(monkeypatch):
    module = types.ModuleType("kvcore.studies.fake_study", "A study of nothing.\n\nMore.")
    module.Config, module.run = Config, Result
    monkeypatch.setitem(sys.modules, "kvcore.studies.fake_study", module)
    monkeypatch.setattr(show, "STUDIES", ("fake_study",))


def printed(capsys, *argv):
    assert cli.main(["show", *argv]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["fake-study", "fake_study"])
def test_a_study_is_found_with_hyphens_or_underscores_and_runs_with_its_defaults(capsys, name):
    found = printed(capsys, name)
    assert f"The settings are {Config()}." in found
    assert "\nrows\n" in found
    assert "0.5" in found


def test_every_field_is_an_option(capsys):
    options = ["--n-rows", "2", "--scale", "0.25", "--chunks", "7,9", "--note", "a b", "--causal", "false"]
    expected = Config(n_rows=2, scale=0.25, chunks="7,9", note="a b", causal=False, window=None)
    assert f"The settings are {expected}." in printed(capsys, "fake-study", *options, "--window", "off")
    assert f"The settings are {Config(n_rows=2)}." in printed(capsys, "fake-study", "--n_rows", "2")


def test_out_writes_tables_arrays_and_configuration_to_a_new_folder(capsys, tmp_path):
    out = tmp_path / "numbers"
    printed(capsys, "fake-study", "--n-rows", "2", "--out", str(out))
    assert sorted(path.name for path in out.iterdir()) == ["arrays.npz", "config.json", "rows.csv"]
    assert pd.read_csv(out / "rows.csv")["value"].tolist() == [0.5, 0.5]
    settings = json.loads((out / "config.json").read_text())
    assert settings["study"] == "fake_study"
    assert Config(**settings["config"]) == Config(n_rows=2)
    with np.load(out / "arrays.npz") as found:
        assert found["values"].tolist() == [0.5, 0.5]
    assert cli.main(["show", "fake-study", "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_long_table_is_cut_and_says_so(capsys):
    assert "and 60 more rows; --out writes all" in printed(capsys, "fake-study", "--n-rows", "100")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["other"], "must be one of fake-study"),
        ([], "NAME"),
        (["--n-rows", "2"], "NAME"),
        (["fake-study", "--n-rows", "0"], "1 or more"),
        (["fake-study", "--n-rows", "off"], "--n-rows is 'off'; it must be a whole number"),
        (["fake-study", "--window", "wide"], "a whole number or off"),
        (["fake-study", "--scale", "much"], "must be a number"),
        (["fake-study", "--causal", "True"], "true or false"),
        (["fake-study", "--rows", "2"], "--n-rows, --scale, --chunks"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(capsys, tmp_path, argv, says):
    out = tmp_path / "numbers"
    assert cli.main(["show", *argv, *(["--out", str(out)] if argv[:1] == ["fake-study"] else [])]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    assert says in found.err
    assert not out.exists()


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(n_rows=9, window=None, causal=False),
        Config(window=7, scale=1e-12, chunks="5,3,x; rm -rf *", note='it\'s "so" $HOME'),
        Config(chunks="-1,3", note="--help", scale=-0.5),
        Config(chunks=""),
    ],
    ids=str,
)
def test_a_command_line_gives_its_config_again(capsys, config):
    line = show.command_line("fake_study", config)
    assert line.startswith("python -m kvcore show fake-study")
    assert f"The settings are {config}." in printed(capsys, *shlex.split(line)[4:])


def test_a_command_line_leaves_out_what_is_at_its_default():
    assert show.command_line("fake_study", Config()) == "python -m kvcore show fake-study"
    assert show.command_line("fake_study", Config(window=None)).endswith("fake-study --window off")


def test_every_study_can_be_shown_from_a_shell(monkeypatch):
    monkeypatch.undo()
    for name in show.STUDIES:
        config_class = show.study(name).Config
        for field in fields(config_class):
            show._value(config_class, field.name, show._text(field.default))
        assert show.command_line(name, config_class()) == f"python -m kvcore show {name.replace('_', '-')}"
