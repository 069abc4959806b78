"""`verify` on decoders written without a look at the engine: none missed, none accused; ranks by `measure_foreign`."""

import pytest

from kvcore.verification.battery import run_battery
from kvcore.verification.hooks import Hooks
from kvcore.verification.outputs import TokenIds
from kvcore.verification.subject import Subject
from tests import foreign_numpy, foreign_torch
from tests.measure_foreign import outcome

CASES = [*foreign_numpy.CASES, *foreign_torch.CASES]
RIGHT = [case for case in CASES if case.fault_class is None]
FAULTY = [case for case in CASES if case.fault_class is not None]
BY_CLASS = list({case.fault_class: case for case in FAULTY}.values())
"""One of each class, the last of its kind."""


def faulty_checks(case):
    full, step, token_ids = case.make(0)
    trial = run_battery(Subject(full, step, TokenIds(token_ids)), Hooks())
    return [check.name for check in trial.checks if check.faulty]


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_no_right_decoder_is_accused(case):
    assert faulty_checks(case) == []


@pytest.mark.parametrize("case", FAULTY[::2], ids=lambda case: case.name)
def test_no_faulty_decoder_is_missed(case):
    assert faulty_checks(case) != []


def test_the_right_class_is_at_rank_one_or_two_for_nine_of_ten():
    """One decoder of each of thirteen classes; `python -m tests.measure_foreign` tries all of them."""
    ranks = {case.name: outcome(case, 0)[1] for case in BY_CLASS}
    near = [name for name, rank in ranks.items() if rank is not None and rank <= 2]
    assert len(near) >= 0.9 * len(ranks), ranks
