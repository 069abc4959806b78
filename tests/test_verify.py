"""`verify` on small decoders: what it accepts, what it accuses, what it says, and what it refuses."""

import json
import re

import numpy as np
import pytest
import torch

import kvcore
from kvcore.config import DecoderConfig
from kvcore.faults import FAULTS
from kvcore.faults.example import example
from kvcore.setting import Setting
from kvcore.testing import assert_cache_equivalent
from kvcore.verification.lab import model

IDS = [3, 10, 17, 24, 31, 6, 13, 20]


def lab(fault=None, hooks=True, **decoder):
    """The engine's decoder as keyword arguments of `verify`."""
    setting = example(FAULTS[fault]) if fault else Setting(DecoderConfig(**decoder))
    return model(setting, FAULTS[fault] if fault else None, hooks)


def test_a_right_decoder_is_equal_at_every_position_with_three_arguments():
    right = lab(hooks=False)
    report = kvcore.verify(right["full"], right["step"], IDS)
    assert report.ok
    assert report.diagnosis == ()
    assert report.verdict.startswith("equal at every position")
    assert max(gap.max() for gap in report.differences.values()) <= report.tolerance.equal
    untested = {check.name for check in report.checks if check.verdict == "not tested"}
    assert {"crop", "reuse", "layers", "inspect"} <= untested


def test_every_hook_of_a_right_decoder_is_tested_and_holds():
    report = kvcore.verify(token_ids=IDS, **lab())
    assert report.ok, str(report)
    assert not {check.name for check in report.checks if check.verdict == "not tested"}
    names = " ".join(check.name for check in report.checks)
    for part in ("back from", "reuse, exact repeat", "after layer 1", "contents of layer 0", "old cache used again"):
        assert part in names


@pytest.mark.parametrize(
    "fault", ["causal_mask_top_left", "positions_restart", "evict_before_attend", "values_from_keys"]
)
def test_a_fault_is_caught_ranked_and_told_in_words(fault):
    report = kvcore.verify(token_ids=IDS, **lab(fault, hooks=False))
    assert not report.ok
    ranks = {entry.fault_class: entry.rank for entry in report.diagnosis}
    assert ranks[FAULTS[fault].fault_class] <= 2
    assert report.diagnosis[0].rank == 1
    assert "What is probably wrong" in str(report)
    assert "position" in report.diagnosis[0].evidence


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("crop_keeps_one_more", "C8"),
        ("crop_keeps_one_fewer", "C8"),
        ("crop_does_nothing", "C8"),
        ("prefix_reused_past_an_edit", "C7"),
        ("prefix_key_without_tokens", "C7"),
        ("last_token_fed_twice", "C7"),
        ("branches_share_a_buffer", "C17"),
        ("cache_not_reset", "C17"),
    ],
)
def test_faults_that_need_a_hook_are_caught_with_it(fault, code):
    report = kvcore.verify(token_ids=IDS, **lab(fault))
    assert not report.ok
    assert code in {entry.fault_class for entry in report.diagnosis if entry.rank == 1}


def counting(in_place):
    """A right decoder whose cache is a list of tokens, changed in place or not: full forward over what it holds."""
    decoder = lab(hooks=False)

    def step(token_ids, cache):
        cache = [] if cache is None else cache if in_place else list(cache)
        cache.extend(int(token) for token in token_ids)
        return decoder["full"](cache)[-len(token_ids) :], cache

    return decoder["full"], step


def test_a_cache_changed_in_place_is_a_note_and_no_fault():
    report = kvcore.verify(*counting(in_place=True), IDS)
    assert report.ok
    assert any("that is a choice, not a fault" in note for note in report.notes)
    assert not kvcore.verify(*counting(in_place=False), IDS).notes


def test_a_cache_declared_unchanged_that_changes_is_c17():
    report = kvcore.verify(*counting(in_place=True), IDS, in_place=False)
    assert not report.ok
    assert [entry.fault_class for entry in report.diagnosis if entry.rank == 1] == ["C17"]


def as_list(rows):
    return rows.tolist()


def as_tensor(rows):
    return torch.from_numpy(rows)


def as_batch_of_one(rows):
    return rows[None]


@pytest.mark.parametrize("convert", [as_list, as_tensor, as_batch_of_one])
@pytest.mark.parametrize("ids", [IDS, tuple(IDS), np.array(IDS), torch.tensor(IDS)], ids=lambda ids: type(ids).__name__)
def test_outputs_and_ids_may_be_any_kind_of_array(convert, ids):
    full, step = counting(in_place=False)
    kinds = set()

    def told(token_ids):
        kinds.add(type(token_ids))
        return convert(full([int(token) for token in token_ids]))

    def stepped(token_ids, cache):
        kinds.add(type(token_ids))
        rows, cache = step(token_ids, cache)
        return convert(rows), cache

    assert kvcore.verify(told, stepped, ids).ok
    assert kinds == {type(ids)}


@pytest.mark.parametrize("length", [2, 3, 4, 5, 7])
def test_any_length_from_two_on(length):
    right, wrong = lab(hooks=False), lab("causal_mask_top_left", hooks=False)
    assert kvcore.verify(right["full"], right["step"], IDS[:length]).ok
    assert not kvcore.verify(wrong["full"], wrong["step"], IDS[:length]).ok


def test_a_long_sequence_is_ranked_by_its_first_tokens():
    wrong = lab("causal_mask_top_left", hooks=False)
    tokens = [(7 * i + 3) % 32 for i in range(70)]
    report = kvcore.verify(wrong["full"], wrong["step"], tokens)
    assert report.n_tokens == 70
    assert report.diagnosis[0].fault_class == "C1"
    assert "of 24" in report.diagnosis[0].evidence


def narrow(part, dtype):
    """A right decoder with one part of it rounded to a narrower format."""
    full, step = counting(in_place=False)

    def rounded(rows):
        return torch.from_numpy(rows).to(dtype).double().numpy()

    def stepped(token_ids, cache):
        rows, cache = step(token_ids, cache)
        return rounded(rows) if part == "step" else rows, cache

    return full, stepped


def test_narrow_arithmetic_inside_a_float64_model_is_rounding_with_its_size():
    report = kvcore.verify(*narrow("step", torch.float32), IDS)
    assert report.ok
    assert report.verdict.startswith("equal but for rounding")
    assert 1e-9 < max(gap.max() for gap in report.differences.values()) < 1e-6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_right_model_of_a_narrow_format_is_not_accused(dtype):
    for seed in range(3):
        right = lab(dtype=dtype, n_layers=4, n_heads=4, n_kv_heads=2, positions="rotary", seed=seed)
        report = kvcore.verify(token_ids=IDS, **right)
        assert report.ok, str(report)


def test_a_tolerance_that_was_given_is_used_and_told():
    full, step = narrow("step", torch.float32)
    strict = kvcore.verify(full, step, IDS, atol=0, rtol=1e-13)
    assert not strict.ok
    assert "given" in strict.tolerance.source
    assert kvcore.verify(full, step, IDS, atol=1e-5).ok


def test_a_refusal_is_not_tested_and_a_crash_is_a_fault():
    full, step = counting(in_place=False)

    def refusing(token_ids, cache):
        if cache is not None and len(token_ids) > 1:
            raise ValueError("this cache takes one token at a time")
        return step(token_ids, cache)

    report = kvcore.verify(full, refusing, IDS)
    assert report.ok
    assert any("takes one token at a time" in check.note for check in report.checks if check.verdict == "not tested")
    assert kvcore.verify(full, refusing, IDS, max_chunk=1).ok

    def crashing(token_ids, cache):
        rows, cache = step(token_ids, cache)
        return (rows @ np.zeros((len(cache), 2)) if len(cache) > len(token_ids) else rows), cache

    crashed = kvcore.verify(full, crashing, IDS)
    assert not crashed.ok
    assert "broke off" in str(crashed)


def test_a_cache_that_ends_with_the_callers_tokens_is_not_accused():
    """A preallocated buffer into which NumPy silently writes nothing behind its end."""
    full, step = counting(in_place=False)

    def full_buffer(token_ids, cache):
        rows, cache = step(token_ids, cache)
        position = np.arange(len(cache) - len(rows), len(cache))
        return np.where((position < len(IDS))[:, None], rows, 0), cache

    report = kvcore.verify(full, full_buffer, IDS)
    assert report.ok
    assert any("right up to your 8 tokens" in note for note in report.notes)


def test_a_fault_that_shows_only_behind_the_callers_tokens_is_caught():
    full, step = counting(in_place=False)

    def late(token_ids, cache):
        rows, cache = step(token_ids, cache)
        return (rows * 0 if len(cache) > len(IDS) + 2 else rows), cache

    assert not kvcore.verify(full, late, IDS).ok


def test_the_report_as_frame_json_and_text_tells_the_same():
    report = kvcore.verify(token_ids=IDS, **lab("positions_restart", hooks=False))
    told = json.loads(report.to_json())
    frame = report.to_frame()
    assert told["ok"] is False
    assert len(frame) == len(told["checks"]) == len(report.checks)
    assert told["diagnosis"][0]["fault_class"] == report.diagnosis[0].fault_class
    assert set(told["differences"]) == set(report.differences)
    first = frame[frame["verdict"] == "differs"].iloc[0]
    assert first["name"] in str(report)


def test_values_that_are_not_finite_are_a_fault_and_valid_json():
    full, step = counting(in_place=False)

    def broken(token_ids, cache):
        rows, cache = step(token_ids, cache)
        return np.where(np.arange(len(rows))[:, None] == len(rows) - 1, np.nan, rows), cache

    report = kvcore.verify(full, broken, IDS)
    assert not report.ok
    json.loads(report.to_json(), parse_constant=pytest.fail)


def test_assert_cache_equivalent_fails_with_the_report():
    right, wrong = lab(hooks=False), lab("causal_mask_top_left", hooks=False)
    assert assert_cache_equivalent(right["full"], right["step"], IDS).ok
    with pytest.raises(AssertionError, match="C1 causal_mask_top_left"):
        assert_cache_equivalent(wrong["full"], wrong["step"], IDS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"token_ids": [1]}, "at least 2 are needed"),
        ({"token_ids": 5}, "give a sequence"),
        ({"token_ids": [1.5, 2]}, "whole numbers"),
        ({"token_ids": [[1, 2]]}, "without a batch axis"),
        ({"full": None}, "full is NoneType"),
        ({"step": 3}, "step is int"),
        ({"full": lambda ids: np.zeros((1, 4))}, "must give"),
        ({"full": lambda ids: np.full((len(ids), 2), np.nan)}, "must be finite"),
        ({"full": lambda ids: "text"}, "must give numbers"),
        ({"step": lambda ids, cache: np.zeros((len(ids), 16))}, "must give (outputs, cache)"),
        ({"step": lambda ids, cache: (np.zeros((len(ids), 3)), 0)}, "features"),
        ({"max_chunk": 0}, "max_chunk is 0"),
        ({"window": -1}, "window is -1"),
        ({"splits": [(3, 3)]}, "chunks 3+3 cover 6 of 8 tokens"),
        ({"rtol": -1}, "rtol is -1"),
        ({"crop": 5}, "crop is int"),
        ({"in_place": "no"}, "in_place is 'no'"),
        ({"layers": (1, 2)}, "layers must be two functions"),
        ({"token_ids": np.array(3)}, "a single number"),
        ({"alternatives": 5}, "alternatives must be token ids"),
        ({"alternatives": "abc"}, "alternatives must be token ids"),
        ({"splits": 5}, "splits must be sequences"),
        ({"splits": [4, 4]}, "splits must be sequences"),
        ({"in_place": 0}, "in_place is 0"),
        ({"full": lambda ids: [torch.ones(2, requires_grad=True) for _ in ids]}, "cannot be read as numbers"),
        ({"full": lambda ids: torch.ones(len(ids), 2).to_sparse()}, "cannot be read as numbers"),
        ({"full": lambda ids: torch.ones(len(ids), 2, dtype=torch.complex64)}, "complex64 values"),
        ({"reuse": lambda ids, cache, cached: (5, cache)}, "the last rows of 8"),
        ({"reuse": lambda ids, cache, cached: (np.ones((9, 16)), cache)}, "the last rows of 8"),
        ({"reuse": lambda ids, cache, cached: (np.ones((1, 3)), cache)}, "reuse gave 3 features"),
        (
            {"layers": (lambda ids: np.ones((3, len(ids), 4)), lambda ids, cache: (np.ones((2, len(ids), 4)), 0))},
            "layers gave (2, 8, 4)",
        ),
    ],
)
def test_bad_arguments_get_one_sentence(change, says):
    given = {"token_ids": IDS, **lab(hooks=False)} | change
    with pytest.raises(ValueError, match=re.escape(says)) as told:
        kvcore.verify(**given)
    assert "\n" not in str(told.value)


def test_a_copy_that_raises_is_no_fault():
    def copy(cache):
        raise RuntimeError("not to be copied")

    report = kvcore.verify(**lab(hooks=False), token_ids=IDS, copy=copy)
    assert report.ok
    assert "copy raised RuntimeError: not to be copied" in str(report)


def test_the_verdict_names_the_check_whose_position_it_gives():
    right = lab(hooks=False)

    def no_chunks(token_ids, cache):
        if len(token_ids) > 1:
            return [][0]
        outputs, cache = right["step"](token_ids, cache)
        return outputs + (cache.n_processed == 6), cache

    report = kvcore.verify(right["full"], no_chunks, IDS)
    first = next(check for check in report.checks if check.faulty and check.first_bad is not None)
    assert f"position {first.first_bad} under {first.name!r}" in report.verdict


def test_no_hook_is_asked_for_that_was_given():
    fault = "causal_mask_top_left_in_the_last_layer"
    report = kvcore.verify(**model(example(FAULTS[fault], 1), FAULTS[fault]), token_ids=IDS)
    assert not report.ok
    assert "give layers" not in str(report)
    assert "give inspect" not in str(report)


def test_full_that_raises_is_told_as_such():
    def full(token_ids):
        raise RuntimeError("out of luck")

    with pytest.raises(ValueError, match="full raised RuntimeError: out of luck"):
        kvcore.verify(full, lab(hooks=False)["step"], IDS)


def test_dropout_left_on_is_said_and_nothing_is_accused():
    """A random reference is no reference: the commonest mistake of callers is to forget eval()."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 8))

        def rows(token_ids):
            return model(torch.tensor(token_ids)).detach()

        with pytest.raises(ValueError, match=r"full gave other rows for the same tokens.*call eval\(\)"):
            kvcore.verify(rows, lambda token_ids, cache: (rows(token_ids), 0), [1, 2, 3, 4, 5, 6])
        model.eval()
        assert kvcore.verify(rows, lambda token_ids, cache: (rows(token_ids), 0), [1, 2, 3, 4, 5, 6]).ok


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.shown_by in ("crop", "reuse")])
def test_mistakes_in_going_back_and_in_reuse_are_named_or_listed_as_leaving_the_same(name):
    report = kvcore.verify(token_ids=list(range(3, 15)), **model(example(FAULTS[name]), FAULTS[name]))
    first = report.diagnosis[0]
    assert first.fault_class == FAULTS[name].fault_class
    assert name == first.fault or FAULTS[name].sentence in first.evidence
