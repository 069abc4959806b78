"""The command line: exit codes, one line for bad input, and nothing written then."""

import json
import subprocess
import sys

import numpy as np
import pytest

from kvcore import bench, cli
from kvcore.audit import audit

SMALL = ["--seeds", "3", "--length", "6", "--chunks", "2,4", "--window", "3", "--d-model", "4", "--vocab", "5"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "evidence"


def refused(capsys, *argv):
    """The one line on stderr of a request that cannot be met."""
    assert cli.main(list(argv)) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


def test_run_with_its_defaults_prints_and_writes_the_recorded_experiment(capsys, out):
    assert cli.main(["run", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.count(": agrees") == 45
    assert "DISAGREES" not in printed
    assert printed.count("control caught") == 12
    assert [result["seed"] for result in json.loads((out / "results.json").read_text())] == [7, 19, 41]
    protocol = audit(out).protocol
    assert (protocol.dtype, protocol.tolerance, protocol.chunk_sizes) == ("float64", 1e-12, (5, 3, 7, 9))


def test_every_option_of_run_reaches_the_protocol(capsys, out):
    assert cli.main(["run", "--out", str(out), *SMALL, "--layers", "1", "--tolerance", "1e-11"]) == 0
    protocol = audit(out).protocol
    assert (protocol.seeds, protocol.length, protocol.chunk_sizes, protocol.window) == ((3,), 6, (2, 4), 3)
    assert (protocol.n_layers, protocol.d_model, protocol.vocab_size, protocol.tolerance) == (1, 4, 5, 1e-11)
    printed = capsys.readouterr().out
    assert "expected equal" in printed
    assert "recorded" not in printed


def test_beyond_tolerance_writes_the_evidence_and_exits_1(capsys, out):
    assert cli.main(["run", "--out", str(out), "--tolerance", "1e-18"]) == 1
    assert "beyond tolerance" in capsys.readouterr().out
    assert cli.main(["audit", str(out)]) == 0
    assert "Consistently recorded, yet seed 7: prefix_error" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--seeds -1", "0 or more"),
        ("--seeds -1,3", "0 or more"),
        ("--seeds 7,7", "twice"),
        ("--seeds 7,", "whole number 0 or more"),
        ("--seeds 1.5", "whole number 0 or more"),
        ("--length 1", "from 2 to 256"),
        ("--length 257", "from 2 to 256"),
        ("--length ten", "from 2 to 256"),
        ("--length 24.0", "from 2 to 256"),
        ("--length 25", "add 1 more"),
        ("--chunks 24", "at least 2"),
        ("--chunks 5,3", "add 16 more"),
        ("--chunks 20,5", "remove 1"),
        ("--chunks 24,0", "1 or more"),
        ("--chunks 5,x,19", "whole number 1 or more"),
        ("--window 0", "1 or more"),
        ("--layers 0", "from 1 to 6"),
        ("--layers 7", "from 1 to 6"),
        ("--d-model 3", "even"),
        ("--d-model 130", "from 2 to 128"),
        ("--vocab 1", "from 2 to 1024"),
        ("--vocab 1025", "from 2 to 1024"),
        ("--tolerance 0", "positive finite"),
        ("--tolerance -1", "positive finite"),
        ("--tolerance nan", "positive finite"),
        ("--tolerance inf", "positive finite"),
        ("--tolerance small", "positive finite"),
        ("--dtype float32", "--tolerance"),
        ("--leng 24", "--length"),
        ("--length", "expected one argument"),
        ("stray", "not understood"),
    ],
)
def test_run_refuses_in_one_line_and_writes_nothing(capsys, out, options, says):
    assert says in refused(capsys, "run", "--out", str(out), *options.split())
    assert list(out.parent.iterdir()) == []


def test_run_refuses_a_folder_that_exists_before_it_computes(capsys, out, monkeypatch):
    out.mkdir()
    monkeypatch.setattr("kvcore.experiment.run", lambda protocol: pytest.fail("computed"))
    assert "exists already" in refused(capsys, "run", "--out", str(out))
    assert list(out.iterdir()) == []


def test_run_without_a_folder_is_refused(capsys):
    assert "--out" in refused(capsys, "run")


@pytest.mark.parametrize("argv", [[], ["walk"], ["--out"], ["walk\nthis way"]])
def test_an_unknown_command_is_refused_with_those_there_are(capsys, argv):
    assert "run, audit, bench, show" in refused(capsys, *argv)


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["show", "--help"]])
def test_help_is_no_error(capsys, argv):
    try:
        code = cli.main(argv)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 0
    assert "python -m kvcore" in capsys.readouterr().out


def test_audit_exits_1_with_one_line_that_names_the_figure(capsys, out):
    cli.main(["run", "--out", str(out), *SMALL])
    results = json.loads((out / "results.json").read_text())
    (out / "results.json").write_text(json.dumps([results[0] | {"reset_position_error": 0.25}]))
    capsys.readouterr()
    assert cli.main(["audit", str(out)]) == 1
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.count("\n") == 1
    assert printed.out.startswith("Disagrees: results.json: seed 3: reset_position_error is 0.25")


def test_audit_of_no_folder_and_without_one_is_refused(capsys, tmp_path):
    assert "is no folder" in refused(capsys, "audit", str(tmp_path / "none"))
    assert "DIR" in refused(capsys, "audit")


def test_bench_prints_ratios_as_text_and_as_json(capsys, monkeypatch):
    monkeypatch.setattr(bench, "measure", lambda sides, runs, repeats: [[3.0] * runs, [2.0] * runs])
    assert cli.main(["bench", "--quick"]) == 0
    assert "takes 1.50 times as long as a plain NumPy decoder" in capsys.readouterr().out
    assert cli.main(["bench", "--quick", "--json", "--runs", "6"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["ratio"], found["runs"]) == (1.5, 6)
    assert {"name", "setting", "against"} <= set(found)


@pytest.mark.parametrize("runs", ["4", "0", "many", "-3"])
def test_bench_takes_a_median_of_five_runs_or_more(capsys, runs):
    assert "from 5 to 1000" in refused(capsys, "bench", "--runs", runs)


def test_the_module_runs_and_stops_quietly_where_nobody_reads_on(out):
    command = [sys.executable, "-m", "kvcore", "run", "--out", str(out), *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    with np.load(out / "arrays.npz") as found:
        assert "s3_full" in found.files


@pytest.mark.parametrize(
    ("computation", "argv"),
    [("kvcore.experiment.run", ["run"]), ("kvcore.studies.work_counts.run", ["show", "work-counts"])],
)
def test_a_fault_of_the_lab_is_not_told_as_bad_input(out, monkeypatch, computation, argv):
    def fail(_):
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(computation, fail)
    with pytest.raises(RuntimeError, match="a fault of the lab"):
        cli.main([*argv, "--out", str(out)])
    assert list(out.parent.iterdir()) == []
