"""`python -m kvcore verify` as a process: a factory, a configuration file, exit codes, JSON, bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvcore.cli import main

ROOT = Path(__file__).resolve().parents[1]
FACTORY = """
from kvcore.config import DecoderConfig
from kvcore.faults import FAULTS
from kvcore.setting import Setting
from kvcore.verification.lab import model

IDS = [3, 10, 17, 24, 31, 6]


def right():
    made = model(Setting(DecoderConfig()), hooks=False)
    return made["full"], made["step"], IDS


def wrong():
    return model(Setting(DecoderConfig()), FAULTS["causal_mask_top_left"], hooks=False) | {"token_ids": IDS}


def raising():
    raise RuntimeError("no weights")


def incomplete():
    return {"full": 1, "step": 2}


def unknown():
    return {"full": 1, "step": 2, "token_ids": IDS, "colour": 3}


def ending():
    raise SystemExit(0)


def ending_later():
    return {"full": lambda ids: [[1.0]] * len(ids), "step": lambda ids, cache: ending(), "token_ids": IDS}


number = 7
"""


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "models_to_check.py").write_text(FACTORY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("models_to_check", None)
    return "models_to_check"


def test_a_right_model_exits_0_and_a_faulty_one_1_with_the_reason(factory, capsys):
    assert main(["verify", f"{factory}:right"]) == 0
    assert capsys.readouterr().out.startswith("equal at every position")
    assert main(["verify", f"{factory}:wrong"]) == 1
    assert "C1 causal_mask_top_left" in capsys.readouterr().out


def test_json_is_one_object(factory, capsys):
    assert main(["verify", f"{factory}:wrong", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert {"rank", "fault_class", "fault", "evidence"} <= set(told["diagnosis"][0])


def test_a_module_in_the_current_folder_is_found_from_a_shell(tmp_path):
    (tmp_path / "mine.py").write_text(FACTORY, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "kvcore", "verify", "mine:wrong"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1, run.stderr
    assert "What is probably wrong" in run.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name one model"),
        (["nowhere:make"], "cannot be imported"),
        (["models_to_check"], "write MODULE:FACTORY"),
        (["models_to_check:nothing"], "cannot be imported"),
        (["models_to_check:number"], "must be a function"),
        (["models_to_check:raising"], "raised RuntimeError: no weights"),
        (["models_to_check:ending"], "ended the program with exit code 0"),
        (["models_to_check:ending_later"], "ended the program with exit code 0"),
        (["models_to_check:incomplete"], "gives no token_ids"),
        (["models_to_check:unknown"], "gives 'colour'"),
        (["models_to_check:right", "--config", "x.json"], "name one model"),
        (["--config", "no_such_file.json"], "cannot be read"),
        (["--config", "CONFIG", "--cache", "heap"], "--cache is 'heap'"),
        (["--config", "CONFIG", "--attention", "flash"], "--attention is 'flash'"),
        (["--config", "CONFIG", "--tokens", "1"], "--tokens is 1"),
        (["--config", "CONFIG"], "holds list"),
        (["--config", "/dev/zero"], "is larger than 1,000,000 bytes"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(words, says, factory, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text("[]", encoding="utf-8")
    assert main(["verify", *(str(path) if word == "CONFIG" else word for word in words)]) == 2
    told = capsys.readouterr().err.strip()
    assert says in told
    assert "\n" not in told


def test_saved_outputs_are_verified_from_a_file(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(6, 4))
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, **{"full": rows, "3,3": rows, "1,1,1,1,1,1": rows})
    np.savez(bad, **{"full": rows, "3,3": rows, "1,1,1,1,1,1": rows + np.arange(6)[:, None] // 3})
    assert main(["verify", "--saved", str(good)]) == 0
    assert main(["verify", "--saved", str(bad)]) == 1
    assert "the first at position 3" in capsys.readouterr().out
    assert main(["verify", "--saved", str(tmp_path / "none.npz")]) == 2


def test_a_configuration_file_is_verified_as_a_small_model(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2}), "utf-8")
    assert main(["verify", "--config", str(path), "--tokens", "8"]) == 0
    assert capsys.readouterr().out.startswith("equal")
