"""Reports on saved outputs: the verdicts of the model itself, and one sentence for every file that is not allowed."""

import io
import struct
import zipfile

import numpy as np
import pytest

from kvcore.config import DecoderConfig, lab_token_ids
from kvcore.faults import FAULTS
from kvcore.setting import Setting
from kvcore.verification import lab, plan, saved_file
from kvcore.verification import saved as saved_report
from kvcore.verification.saved import trial_of, verify_saved
from kvcore.verification.saved_file import MAX_BYTES, MAX_SPLITS, Refused, chunk_sizes, read_saved
from kvcore.verification.saving import save_outputs
from kvcore.verification.verify import verify

LENGTH = 12
DECODER = DecoderConfig(seed=3, n_heads=4, n_kv_heads=2)


def npz(compressed=False, **arrays):
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def zipped(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def declared(shape, content=b""):
    """An .npy whose header says one thing and whose content may be another."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + content


def outputs(length=LENGTH, wrong=()):
    """Random full rows, and the splits named, those in `wrong` moved from position 3 on."""
    full = np.random.default_rng(1).normal(size=(length, 4))
    moved = full + np.where(np.arange(length)[:, None] >= 3, 0.5, 0)
    return full, lambda name: moved if name in wrong else full


def of_decoder(fault=None, length=LENGTH, **setting):
    """Saved outputs of a decoder of the lab, and what `verify` takes of the same one."""
    model = lab.model(Setting(DECODER, **setting), fault, hooks=False)
    tokens, buffer = lab_token_ids(length).tolist(), io.BytesIO()
    save_outputs(buffer, model["full"], model["step"], tokens)
    return buffer.getvalue(), model | {"token_ids": tokens}


def test_differences_are_those_of_the_arrays_at_every_position():
    rng = np.random.default_rng(0)
    full, one, other = rng.normal(size=(3, 6, 5))
    report = verify_saved(npz(full=full, **{"3,3": one, "1+1+4": other}))
    assert set(report.differences) == {"two halves", "1+1+4"}
    np.testing.assert_array_equal(report.differences["two halves"], np.abs(one - full).max(axis=1))
    np.testing.assert_array_equal(report.differences["1+1+4"], np.abs(other - full).max(axis=1))
    assert report.n_tokens == 6
    assert not report.ok


def test_saved_outputs_get_the_verdicts_of_the_model_itself():
    content, model = of_decoder(FAULTS["causal_mask_top_left"])
    report, asked = verify_saved(content), verify(**model)
    told = {check.name: check for check in asked.checks}
    tested = [check for check in report.checks if check.verdict != "not tested"]
    assert len(tested) == 7
    for check in tested:
        same = told[check.name]
        assert (check.verdict, check.first_bad, check.n_bad) == (same.verdict, same.first_bad, same.n_bad)
        assert check.largest == same.largest
    assert "C1" in [suspect.fault_class for suspect in report.diagnosis if suspect.rank == 1]


def test_another_fault_is_named_from_saved_outputs():
    report = verify_saved(of_decoder(FAULTS["positions_one_ahead"])[0])
    assert "C4" in [suspect.fault_class for suspect in report.diagnosis if suspect.rank <= 2]


def test_a_right_decoder_is_not_accused():
    report = verify_saved(of_decoder(windows=(4,))[0])
    assert report.ok
    assert report.diagnosis == ()
    assert report.verdict.startswith("equal at every position")


def test_what_the_file_does_not_hold_is_listed_as_not_tested():
    full, _ = outputs()
    report = verify_saved(npz(full=full, **{"5,4,3": full}))
    missing = {check.name: check.note for check in report.checks if check.verdict == "not tested"}
    assert {"edits", "two branches", "crop", "reuse", "layers", "inspect", "second run from None"} <= set(missing)
    assert missing["one call"] == "the file has no array named 12"
    assert missing["prefill, then ones"] == "the file has no array named 6,1,1,1,1,1,…"
    assert "unequal chunks" not in missing
    assert report.to_frame().shape[0] == len(report.checks)


@pytest.mark.parametrize("name", ["5,4,3", "5+4+3", "split_5_4_3", "5-4-3", "split 5, 4, 3", "chunks:5,4,3"])
def test_spellings_of_a_split(name):
    assert chunk_sizes(name, 12) == (5, 4, 3)


def zeros(token_ids):
    return np.zeros((len(token_ids), 2))


def test_saving_gives_the_splits_of_the_battery():
    for length in (6, 12, 13, 20):
        buffer = io.BytesIO()
        save_outputs(buffer, zeros, lambda ids, cache: (zeros(ids), cache), list(range(length)))
        assert set(read_saved(buffer.getvalue()).splits) == set(plan.splits(length, None).values())


def test_formats_widen_the_tolerance_and_rounding_is_no_fault():
    full, _ = outputs()
    near = (full + 1e-7).astype(np.float32)
    report = verify_saved(npz(full=full.astype(np.float32), **{"6,6": near}))
    assert report.ok
    assert report.tolerance.dtype == "float32"
    half = verify_saved(npz(full=full.astype(np.float16), **{"6,6": full.astype(np.float16)}))
    assert half.tolerance.equal > 1e-3
    inner = verify_saved(npz(full=full, **{"6,6": full + 1e-7}))
    assert inner.ok
    assert inner.verdict.startswith("equal but for rounding")


def test_a_split_that_is_not_finite_is_a_fault_and_no_error():
    full, _ = outputs()
    broken = full.copy()
    broken[7] = np.nan
    report = verify_saved(npz(full=full, **{"6,6": broken}))
    [check] = [check for check in report.checks if check.faulty]
    assert (check.first_bad, check.n_bad, check.largest) == (7, 1, np.inf)


def test_token_ids_reach_the_simulation():
    full, _ = outputs()
    ids = np.arange(12) % 5
    assert read_saved(npz(full=full, token_ids=ids, **{"6,6": full})).token_ids == tuple(ids.tolist())
    assert trial_of(read_saved(npz(full=full, token_ids=ids, **{"6,6": full}))).sequences[plan.BASE][5] == 0


def test_long_outputs_are_ranked_by_their_first_tokens_only(monkeypatch):
    asked = []
    monkeypatch.setattr(saved_report, "diagnose", lambda trial: asked.append(trial) or [])
    full, _ = outputs(200)
    early, late = full.copy(), full.copy()
    early[30:] += 1
    late[150:] += 1
    report = verify_saved(npz(full=full, **{"100,100": early}))
    assert asked[0].length == 38
    assert asked[0].battery.runs == (("one call", (plan.BASE,)),)
    assert report.differences["two halves"].shape == (200,)
    assert "follows from the first 38 tokens" in report.notes[0]
    report = verify_saved(npz(full=full, **{"100,100": late}))
    assert len(asked) == 1
    assert not report.ok
    assert "begins behind the first 64 tokens" in report.notes[0]


class Loaded:
    """Would give itself away when unpickled."""

    opened = 0

    def __reduce__(self):
        return (Loaded._open, ())

    @staticmethod
    def _open():
        Loaded.opened += 1
        return Loaded()


FULL, _ = outputs()
GOOD = npz(full=FULL, **{"5,4,3": FULL})
OBJECTS = np.array([Loaded(), Loaded()], dtype=object)


def member(name, content, **more):
    """A file with a right `full` and one further member."""
    return zipped([("full.npy", npy(FULL)), (name, content)], **more)


def with_one(value, position):
    """`full` with one number replaced."""
    changed = FULL.copy()
    changed[position, 2] = value
    return changed


def damaged(content, at):
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def lying(size):
    """The directory declares another unpacked size than the member has."""
    content = bytearray(member("5,4,3.npy", npy(FULL), compression=zipfile.ZIP_DEFLATED))
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", size)
    return bytes(content)


BAD = {
    "empty": (b"", "the file is empty"),
    "text": (b"full = [[1, 2], [3, 4]]\n", "cannot be read"),
    "an npy": (npy(FULL), "cannot be read"),
    "truncated": (GOOD[: len(GOOD) // 2], "cannot be read"),
    "damaged content": (damaged(GOOD, 300), "cannot be read"),
    "no members": (zipped([]), "`full` is missing"),
    "no full": (npz(**{"5,4,3": FULL}), "`full` is missing"),
    "no split": (npz(full=FULL), "no split beside `full`"),
    "token ids and no split": (npz(full=FULL, token_ids=np.arange(12)), "no split beside `full`"),
    "pickled objects": (member("5,4,3.npy", npy(OBJECTS)), "pickled objects"),
    "a pickle by name": (member("data.pkl", b"\x80\x04."), "is no array"),
    "text inside": (member("readme.txt", b"hello"), "is no array"),
    "a nested name": (member("outer/5,4,3.npy", npy(FULL)), "is no array"),
    "a name that climbs": (member("../5,4,3.npy", npy(FULL)), "is no array"),
    "a name with backslashes": (member("..\\5,4,3.npy", npy(FULL)), "is no array"),
    "garbage for an array": (member("5,4,3.npy", b"\x00" * 500), "cannot be read"),
    "an empty member": (member("5,4,3.npy", b""), "cannot be read"),
    "an unknown array": (npz(full=FULL, hidden=FULL), "names no chunk sizes"),
    "a name as long as a page": (npz(full=FULL, **{"x" * 5000: FULL}), "names no chunk sizes"),
    "sizes with too few": (npz(full=FULL, **{"5,4,2": FULL}), "add up to 11"),
    "sizes with too many": (npz(full=FULL, **{"5,4,4": FULL}), "add up to 13"),
    "a size of nothing": (npz(full=FULL, **{"12,0": FULL}), "each must be 1 or more"),
    "a huge size": (npz(full=FULL, **{"99999999999999999999": FULL}), "names no chunk sizes"),
    "the same split twice": (npz(full=FULL, **{"5,4,3": FULL, "5+4+3": FULL}), "is there twice"),
    "a member twice": (member("fulk.npy", npy(FULL)).replace(b"fulk", b"full"), "is there twice"),
    "full in one row": (npz(full=FULL[0], **{"4": FULL[0]}), r"shape \(4,\)"),
    "full with a batch": (npz(full=FULL[None], **{"5,4,3": FULL[None]}), r"shape \(1, 12, 4\)"),
    "full of one token": (npz(full=FULL[:1], **{"1": FULL[:1]}), "2 to 256 tokens"),
    "full without features": (npz(full=FULL[:, :0], **{"5,4,3": FULL[:, :0]}), "2 to 256 tokens"),
    "full of too many tokens": (npz(full=np.zeros((257, 1)), **{"257": np.zeros((257, 1))}), "2 to 256 tokens"),
    "full that is a number": (npz(full=3.0, **{"1": 3.0}), r"shape \(\)"),
    "a split of fewer tokens": (npz(full=FULL, **{"5,4,3": FULL[:11]}), "must be that of `full`"),
    "a split of other features": (npz(full=FULL, **{"5,4,3": FULL[:, :3]}), "must be that of `full`"),
    "NaN in full": (npz(full=with_one(np.nan, 4), **{"5,4,3": FULL}), "finite at position 4"),
    "infinity in full": (npz(full=with_one(np.inf, 0), **{"12": FULL}), "finite at position 0"),
    "complex numbers": (npz(full=FULL * 1j, **{"5,4,3": FULL}), "holds complex128"),
    "booleans": (npz(full=FULL > 0, **{"5,4,3": FULL > 0}), "holds bool"),
    "words": (npz(full=np.full((12, 4), "a"), **{"5,4,3": FULL}), "holds <U1"),
    "dates": (npz(full=np.zeros((12, 4), "M8[s]"), **{"5,4,3": FULL}), "holds datetime64"),
    "structures": (npz(full=np.zeros((12, 4), [("a", "f8")]), **{"5,4,3": FULL}), "numbers must be whole or float16"),
    "wide floats": (npz(full=FULL.astype(np.longdouble), **{"5,4,3": FULL}), "holds float128"),
    "token ids that are floats": (npz(full=FULL, token_ids=np.zeros(12), **{"12": FULL}), "token_ids are float64"),
    "too few token ids": (npz(full=FULL, token_ids=np.arange(11), **{"12": FULL}), r"shape \(11,\)"),
    "a huge declared shape": (member("5,4,3.npy", declared((10**9, 10**9))), "declares shape"),
    "an overflowing declared shape": (member("5,4,3.npy", declared((2**40, 2**40))), "declares shape"),
    "a negative declared shape": (member("5,4,3.npy", declared((-12, -4), content=bytes(384))), "declares shape"),
    "more numbers than declared": (member("5,4,3.npy", npy(FULL) + bytes(64)), "another amount of numbers"),
    "a header without end": (member("5,4,3.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + b"(" * 9000), "cannot be read"),
    "a header of code": (
        member("5,4,3.npy", b"\x93NUMPY\x01\x00\x16\x00__import__('os').abort"), "cannot be read",
    ),
    "an unknown version": (member("5,4,3.npy", b"\x93NUMPY\x09\x00" + bytes(200)), "a format that is not allowed"),
    "a zip bomb": (
        npz(compressed=True, full=np.zeros((200, 40_000)), **{"200": np.zeros((200, 40_000))}), "packed more than 200",
    ),
    "a size that is declared too small": (lying(100), "cannot be read|another amount"),
    "a size that is declared too large": (lying(2**31), "packed more than 200"),
    "an unusual packing": (member("5,4,3.npy", npy(FULL), compression=zipfile.ZIP_LZMA), "packed unusually"),
    "too many members": (npz(full=FULL, **{f"x{n}": FULL for n in range(MAX_SPLITS + 3)}), "at most 16 splits"),
    "too large a file": (bytes(MAX_BYTES + 1), "at most 20,971,520 are allowed"),
    "a line break in a name": (npz(full=FULL, **{"a\nb": FULL}), "names no chunk sizes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_not_allowed_is_one_sentence(case):
    content, words = BAD[case]
    with pytest.raises(ValueError, match=words) as caught:
        verify_saved(content)
    said = str(caught.value)
    assert type(caught.value) is ValueError
    assert caught.value.__cause__ is None
    assert len(said) < 330
    assert "\n" not in said
    assert Loaded.opened == 0


def test_too_many_numbers_are_refused_before_they_are_unpacked(monkeypatch):
    monkeypatch.setattr(saved_file, "MAX_NUMBERS", 1000)
    assert read_saved(GOOD).full.shape == FULL.shape
    content = npz(full=np.ones((200, 10)), **{"200": np.ones((200, 10))})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member was unpacked"))
    with pytest.raises(ValueError, match="unpack to 32,256 bytes; at most 8,000 are allowed"):
        verify_saved(content)


def test_what_pickle_would_have_run_is_known_to_run():
    """The class does give itself away where pickles are opened: the check above could fail."""
    before = Loaded.opened
    np.load(io.BytesIO(npy(OBJECTS)), allow_pickle=True)
    assert Loaded.opened > before
    Loaded.opened = 0


def test_refusals_are_told_apart_from_errors_of_the_reader():
    assert not issubclass(Refused, ValueError)
