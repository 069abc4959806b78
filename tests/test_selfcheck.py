"""The checker on the engine's own decoders, one seed of what `python -m kvcore selfcheck` does with twenty."""

import pytest

from kvcore.cli import main
from kvcore.faults import FAULTS
from kvcore.verification import selfcheck
from kvcore.verification.selfcheck import TOKEN_IDS, accepted_table, faults_table, right_settings

SOME = [name for index, name in enumerate(FAULTS) if index % 4 == 1]
"""Every fourth fault; all of them take minutes."""


def test_planted_faults_are_caught_and_their_class_is_at_rank_one_or_two():
    table = faults_table([1], hooks=True, names=SOME)
    assert list(table["fault"]) == SOME
    assert (table["missed"] == 0).all(), table.to_string()
    assert (table["rank 1 or 2"] == table["caught"]).all(), table.to_string()


def test_right_combinations_are_accepted(monkeypatch):
    monkeypatch.setattr(selfcheck, "right_settings", lambda seed: list(right_settings(seed))[::9])
    table = accepted_table([2], hooks=True)
    assert len(table) == 10
    assert (table["accused"] == 0).all()
    assert table["largest difference"].max() <= 1e-12


def test_right_combinations_are_every_scheme_with_every_storage():
    found = list(right_settings(0))
    assert len(found) == 90
    assert {setting.storage for setting in found} == {
        "growing",
        "preallocated",
        "sliding",
        "ring",
        "ring, attended first",
    }
    assert {setting.decoder.positions for setting in found} == {"sinusoidal", "learned", "rotary", "alibi", "none"}
    assert len(set(TOKEN_IDS)) == len(TOKEN_IDS)


def test_a_checker_that_missed_a_fault_would_be_told(monkeypatch, capsys):
    """The command's verdict can fail: a fault that does nothing is missed, and the exit code says so."""
    harmless = {"harmless": next(iter(FAULTS.values())).__class__(**_harmless())}
    monkeypatch.setattr(selfcheck, "FAULTS", harmless)
    monkeypatch.setattr(selfcheck, "right_settings", lambda seed: list(right_settings(seed))[:1])
    assert main(["selfcheck", "--seeds", "1", "--hooks", "none"]) == 1
    assert "0 of 1 faults caught" in capsys.readouterr().out


def _harmless():
    return {
        "name": "harmless",
        "fault_class": "C1",
        "sentence": "Nothing is wrong.",
        "wrong": "a",
        "right": "b",
        "reported": ("nobody issue 1",),
        "hidden_by": "everything",
    }


@pytest.mark.parametrize(("words", "says"), [(["--seeds", "0"], "--seeds is 0"), (["--hooks", "some"], "--hooks is")])
def test_bad_options_are_one_sentence(words, says, capsys):
    assert main(["selfcheck", *words]) == 2
    assert says in capsys.readouterr().err
