"""The check-your-own study: the report against rows computed by hand, its words, and the files to copy."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from kvcore.config import lab_token_ids
from kvcore.faults import FAULTS
from kvcore.model import LabDecoder
from kvcore.studies import check_your_own as study
from kvcore.studies.check_your_own import MAX_LENGTH, MISTAKES, NONE, Config, Result, arrays, example, run, tables
from kvcore.verification import plan, template
from kvcore.verification.saved_file import read_saved
from kvcore.verification.verify import verify
from tests.serve import ROOT


@pytest.fixture(scope="module")
def wrong():
    return run(Config())


@pytest.fixture(scope="module")
def right():
    return run(Config(fault=NONE, length=8))


def differences(config):
    """Each split of the tokens, run by hand and compared with the full forward."""
    decoder, tokens, rules = LabDecoder(config.setting.decoder), lab_token_ids(config.length), config.setting.rules
    full, found = decoder.step(tokens, rules=rules).hidden.numpy(), {}
    for name, sizes in plan.splits(config.length, None).items():
        cache, rows, at = None, [], 0
        for size in sizes:
            done = decoder.step(tokens[at : at + size], cache, config.mistake.deviate(config.setting))
            cache, at = done.cache, at + size
            rows.append(done.hidden.numpy())
        found[name] = np.abs(np.concatenate(rows) - full).max(axis=1)
    return found


def test_the_report_holds_the_differences_of_the_decoder_at_every_position(wrong):
    expected = differences(wrong.config)
    assert wrong.report.differences.keys() == expected.keys()
    for name, gap in expected.items():
        np.testing.assert_allclose(wrong.report.differences[name], gap, rtol=0, atol=1e-14)
    assert not wrong.report.ok
    assert wrong.report.diagnosis[0].rank == 1


def test_without_a_mistake_nothing_is_wrong(right):
    assert right.report.ok
    assert right.report.diagnosis == ()
    assert "right in every rule" in right.reading
    assert "equal at every position" in right.reading
    assert "Probably wrong" not in right.reading


def test_the_reading_says_what_was_planted_the_verdict_and_the_rank(wrong):
    report, fault = wrong.report, FAULTS["causal_mask_top_left"]
    assert fault.sentence in wrong.reading
    assert report.verdict in wrong.reading
    assert f"within {report.tolerance.equal:.2g}" in wrong.reading
    assert "a window of 4" in wrong.reading
    first = [suspect.fault for suspect in report.diagnosis if suspect.rank == 1]
    assert all(name in wrong.reading for name in first)
    assert "C1 or C6, stands at rank 1" in wrong.reading


def test_words_follow_the_report(wrong, right):
    nobody = Result(wrong.config, replace(wrong.report, diagnosis=()))
    assert "not in the ranking" in nobody.reading
    hidden = Result(wrong.config, right.report)
    assert "the mistake changes no row by more than rounding" in hidden.reading
    two = tuple(replace(wrong.report.diagnosis[0], fault=name, rank=1) for name in ("one", "another"))
    tied = Result(wrong.config, replace(wrong.report, diagnosis=two))
    assert "not told apart by this evidence: one (C1), another (C1)." in tied.reading
    later = replace(wrong.report.diagnosis[0], rank=3)
    assert "stands at rank 3" in Result(wrong.config, replace(wrong.report, diagnosis=(later,))).reading


def test_every_mistake_can_be_shown_and_faults_of_hooks_are_left_out():
    assert {"crop_does_nothing", "prefix_key_without_tokens"} & set(MISTAKES) == set()
    assert len(MISTAKES) > 50
    for name in MISTAKES:
        scheme = "alibi" if name.startswith("alibi") else "rotary"
        config = Config(fault=name, positions=scheme)
        assert name == NONE or not config.mistake.needs(config.setting)


def test_a_mistake_that_needs_two_windows_gets_a_window_in_every_other_layer():
    assert Config(fault="layer_pattern_shifted").setting.windows == (4, None)
    assert Config(fault="window_one_too_wide").setting.windows == (4,)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"fault": "window_one_too_wide", "window": None}, "window_one_too_wide needs a window; change the decoder"),
        ({"fault": "layer_pattern_shifted", "window": None}, "needs layers with different windows"),
        ({"fault": "values_turned_too", "positions": "none"}, "values_turned_too needs rotary positions"),
        ({"fault": "alibi_of_the_first_rows"}, "needs ALiBi"),
        ({"fault": "crop_does_nothing"}, "must be one of none, causal_mask_top_left"),
        ({"positions": "relative"}, "must be one of sinusoidal"),
        ({"window": 0}, "from 1 to 16"),
        ({"length": 5}, "tokens is 5; it must be a whole number from 6 to 24"),
        ({"length": MAX_LENGTH + 1}, "from 6 to 24"),
        ({"seed": -1}, "0 or more"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(fields, says):
    with pytest.raises(ValueError, match=says) as caught:
        Config(**fields)
    assert "\n" not in str(caught.value)


def test_tables_and_arrays_hold_the_report(wrong):
    found = wrong.tables()
    assert set(found) == {"differences", "ranking", "checks"}
    assert found["differences"]["position"].tolist() == list(range(16))
    np.testing.assert_array_equal(found["differences"]["one call"], wrong.report.differences["one call"])
    assert found["ranking"]["fault_class"].tolist() == [suspect.fault_class for suspect in wrong.report.diagnosis]
    assert len(found["checks"]) == len(wrong.report.checks)
    assert {"check", "first bad", "positions bad"} <= set(found["checks"].columns)
    held = wrong.arrays()
    assert held["token_ids"].tolist() == lab_token_ids(16).tolist()
    np.testing.assert_array_equal(held["prefill_then_ones"], wrong.report.differences["prefill, then ones"])
    assert len(arrays(wrong.report)) == len(wrong.report.differences)
    assert tables(wrong.report)["ranking"].equals(found["ranking"])


def test_the_example_holds_what_the_decoder_gives(wrong):
    held = read_saved(example(wrong.config))
    names = plan.splits(wrong.config.length, None)
    for name, gap in wrong.report.differences.items():
        found = np.abs(held.splits[names[name]] - held.full).max(axis=1)
        np.testing.assert_allclose(found, gap, rtol=0, atol=1e-14)
    assert example(wrong.config) == example(wrong.config)


def test_the_mistake_is_only_in_the_cached_path():
    planted, plain = (Config(fault=name, length=8).model for name in ("causal_mask_top_left", NONE))
    tokens = plain["token_ids"]
    np.testing.assert_array_equal(planted["full"](tokens), plain["full"](tokens))
    assert study.NONE not in FAULTS


def test_the_template_runs_as_it_stands_and_finds_its_mistake(tmp_path):
    """As a file of its own, beside nothing but NumPy and kvcore."""
    source = (ROOT / "kvcore/verification/template.py").read_text(encoding="utf-8")
    imports = [line for line in source.splitlines() if line.startswith(("import", "from"))]
    assert imports == ["import numpy as np", "import kvcore"]
    copy = tmp_path / "my_model.py"
    copy.write_text(source, encoding="utf-8")
    run_it = [sys.executable, str(copy)]
    done = subprocess.run(run_it, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
                          env={"PYTHONPATH": str(ROOT), "PATH": ""})  # fmt: skip
    assert done.stdout.startswith("FAULT: ")
    assert "  1. C1 causal_mask_top_left: " in done.stdout
    assert not done.stderr


def test_the_templates_mistake_is_one_line_that_its_comment_puts_right():
    source = (ROOT / "kvcore/verification/template.py").read_text(encoding="utf-8")
    assert source.count("MISTAKE, deliberate") == 1
    assert source.count("k=1)") == 1
    space = {"__name__": "mended"}
    exec(compile(source.replace("k=1)", "k=cached + 1)"), "mended", "exec"), space)
    assert verify(*space["make_model"]()).ok
    full, _, tokens = template.make_model()
    np.testing.assert_array_equal(full(tokens), space["make_model"]()[0](tokens))
