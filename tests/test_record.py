"""The recorded verdicts on published architectures: complete, read without transformers, made by one command."""

import json
import subprocess
import sys
from itertools import product

import numpy as np
import pandas as pd
import pytest

from kvcore import cli
from kvcore.integrations import record
from kvcore.integrations.architectures import DISAGREEMENTS, TOKEN_IDS, verified
from kvcore.integrations.published import ARCHITECTURES
from tests.serve import ROOT


@pytest.fixture(scope="module")
def stored():
    return record.load()


def test_the_table_holds_every_combination_once(stored):
    keys = [(row["architecture"], row["cache"], row["attention"]) for row in stored["rows"]]
    assert set(keys) == set(product(ARCHITECTURES, ("dynamic", "static", "model"), ("eager", "sdpa")))
    assert len(keys) == len(set(keys))
    assert len(ARCHITECTURES) >= 25


def test_rows_hold_what_their_verdict_needs(stored):
    for row in stored["rows"]:
        assert list(row) == list(record.COLUMNS)
        assert row["verdict"] in record.VERDICTS
        if row["verdict"] == "fault":
            assert row["check"]
            assert row["note"], f"nobody has said what is wrong with {row['architecture']}"
        elif row["verdict"] == "not supported":
            assert row["note"]
            assert row["difference"] is None
        else:
            assert row["difference"] < 1e-2
    assert set(stored["versions"]) == {"python", *record.PACKAGES}
    assert stored["token_ids"] == list(TOKEN_IDS)
    assert pd.Timestamp(stored["date"])


def test_known_disagreements_are_in_it(stored):
    faulty = {row["model_type"] for row in stored["rows"] if row["verdict"] == "fault"}
    assert faulty == {model_type for model_type, _ in DISAGREEMENTS}


def test_words_count_the_rows_and_name_the_faulty(stored):
    said, table = record.in_words(stored), record.to_frame(stored)
    counts = table["verdict"].value_counts()
    assert f"of {len(table)} combinations of {len(ARCHITECTURES)} architectures" in said
    assert f"{counts['equal']} are equal" in said
    assert f"{counts['fault']} faulty (in " in said
    assert stored["versions"]["transformers"] in said
    lines = record.wrong(stored)
    assert len(lines) == table.loc[table["verdict"] == "fault", "architecture"].nunique()
    assert all("\n" not in line and line.endswith(".") for line in lines)


def made(names, **wrong):
    rows = [
        {
            "architecture": name, "model_type": "gpt2", "cache": "dynamic", "attention": "eager", "verdict": "equal",
            "difference": 1e-7, "first_bad_position": None, "split": "", "note": "",
        } | wrong
        for name in names
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        ({}, {"verdict": "equal", "difference": 1e-7, "first_bad_position": None}),
        (
            {"verdict": "not supported: it has none yet. Please ask for it", "difference": np.nan},
            {"verdict": "not supported", "difference": None, "note": "it has none"},
        ),
        (
            {"verdict": "fault", "difference": np.inf, "first_bad_position": 4.0, "split": "one call"},
            {"verdict": "fault", "difference": None, "first_bad_position": 4, "note": "outputs are not finite"},
        ),
    ],
)
def test_a_row_is_plain_data(wrong, row):
    done = record.record(["GPT-2"], lambda names: made(names, **wrong))
    assert row.items() <= done["rows"][0].items()
    assert json.loads(json.dumps(done, allow_nan=False)) == done


class Breaks:
    """A model whose cached calls break off, with an error of their own or in a comparison of single tokens."""

    def __init__(self, step):
        self.step = step

    def full(self, token_ids):
        return np.array([[float(token), 1.0] for token in token_ids])

    def hooks(self):
        return {}


def test_a_cache_that_takes_no_single_tokens_is_not_supported_and_not_faulty():
    def breaking(token_ids, cache):
        return np.ones(2) @ np.ones(3), cache

    outcome = verified(Breaks(breaking), TOKEN_IDS)
    assert outcome.verdict.startswith("not supported: step broke off")

    def wrong(token_ids, cache):
        return np.zeros((len(token_ids), 2)), cache

    assert verified(Breaks(wrong), TOKEN_IDS).verdict == "fault"


def test_the_command_writes_a_new_file_and_prints_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kvcore.integrations.architectures.verdict_table", made)
    out = tmp_path / "table.json"
    assert cli.main(["architectures", "--only", "GPT-2, Mamba 130M", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "of 2 combinations of 2 architectures" in printed.out
    assert "2 of 2: Mamba 130M: 1 equal" in printed.err
    again = json.loads(out.read_text(encoding="utf-8"))
    assert [row["architecture"] for row in again["rows"]] == ["GPT-2", "Mamba 130M"]
    assert cli.main(["architectures", "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert cli.main(["architectures", "--only", "GPT-2,Llama 9"]) == 2
    assert "'Llama 9' is unknown" in capsys.readouterr().err


def test_reading_the_table_does_not_need_transformers():
    code = "import sys\nfrom kvcore.integrations import record\nrecord.load()\nprint('transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "False"
