"""The audit accepts fresh evidence, and for every way to tamper with it names what disagrees."""

import contextlib
import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcore import audit as audit_module
from kvcore import evidence, experiment
from kvcore.audit import audit
from kvcore.folder import npz
from kvcore.measures import DIFFERENCES, KEYS
from kvcore.protocol import Protocol
from kvcore.stored import Disagreement

SMALL = Protocol(seeds=(3, 8), length=6, chunk_sizes=(2, 1, 3), window=3, d_model=4, vocab_size=5)
PROTOCOLS = [
    Protocol(),
    replace(SMALL, n_layers=1),
    replace(SMALL, window=50),
    replace(SMALL, window=1),
    Protocol(seeds=(0,), length=2, chunk_sizes=(1, 1), d_model=2, vocab_size=2),
    Protocol(seeds=(10**12,), length=30, chunk_sizes=(15, 15), n_layers=6, d_model=128, vocab_size=1024),
    *(replace(SMALL, dtype=dtype, tolerance=None) for dtype in ("float32", "float16", "bfloat16")),
]


@pytest.fixture(scope="module")
def fresh():
    return evidence.files(experiment.run(SMALL))


@pytest.fixture
def stored(fresh, tmp_path):
    directory = tmp_path / "evidence"
    directory.mkdir()
    for name, content in fresh.items():
        (directory / name).write_bytes(content)
    return directory


def arrays(directory):
    with np.load(directory / "arrays.npz") as found:
        return {name: found[name] for name in found.files}


def replace_file(directory, name, content, rehash=True):
    """Put other content in; with `rehash`, as someone would who also mends the hash."""
    (directory / name).write_bytes(content)
    path = directory / "sha256.json"
    if rehash and name in evidence.HASHED:
        hashes = json.loads(path.read_text())
        path.write_text(json.dumps(hashes | {name: sha256(content).hexdigest()}))


def edit_json(directory, name, edit, rehash=True):
    value = json.loads((directory / name).read_text())
    edited = edit(value)
    replace_file(directory, name, json.dumps(value if edited is None else edited).encode(), rehash)


def refusal(directory):
    with pytest.raises(Disagreement) as found:
        audit(directory)
    message = str(found.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=Protocol.in_words)
def test_fresh_evidence_is_accepted(protocol, tmp_path):
    done = experiment.run(protocol)
    report = audit(evidence.write(done, tmp_path / "evidence"))
    assert report.protocol == protocol
    assert report.reading == done.reading
    assert report.beyond == ()
    assert report.same_engine


def test_recorded_but_beyond_tolerance_is_consistent_and_said_plainly(tmp_path):
    protocol = replace(SMALL, tolerance=1e-18)
    report = audit(evidence.write(experiment.run(protocol), tmp_path / "evidence"))
    assert any("cache_error" in line and "beyond tolerance" in line for line in report.beyond)
    assert "beyond tolerance" in report.summary
    assert "beyond the tolerance 1e-18" in report.summary


def test_other_sources_are_a_note_and_no_failure(stored, monkeypatch):
    monkeypatch.setattr(audit_module, "engine_sha256", dict)
    assert "Note: the evidence was computed by other sources" in audit(stored).summary


@pytest.mark.parametrize("name", evidence.FILES)
def test_a_missing_file_is_named(stored, name):
    (stored / name).unlink()
    assert refusal(stored).startswith(f"{name}: the file is missing")


@pytest.mark.parametrize("name", evidence.FILES)
def test_a_folder_in_place_of_a_file_is_named(stored, name):
    (stored / name).unlink()
    (stored / name).mkdir()
    assert name in refusal(stored)


def test_an_extra_file_is_named(stored):
    (stored / "more\nlines").write_text("")
    assert refusal(stored).startswith("'more\\nlines'")


@pytest.mark.parametrize("name", evidence.HASHED)
def test_changed_content_that_no_figure_shows_is_caught_by_its_hash(stored, name):
    content = (stored / name).read_bytes()
    if name == "results.json":
        content += b"\n"
    elif name == "results.csv":
        content = content.replace(b"\n", b"\r\n")
    else:
        content = npz(arrays(stored) | {"s3_perturbed_unmasked": _changed_last_row(arrays(stored))})
    replace_file(stored, name, content, rehash=False)
    assert refusal(stored) == f"{name}: its SHA-256 is not the one in sha256.json"


def _changed_last_row(found):
    changed = found["s3_perturbed_unmasked"].copy()
    changed[-1, -1] += 1e-3
    return changed


@pytest.mark.parametrize("name", evidence.HASHED)
def test_a_tampered_hash_is_named(stored, name):
    edit_json(stored, "sha256.json", lambda hashes: hashes | {name: "0" * 64})
    assert refusal(stored) == f"{name}: its SHA-256 is not the one in sha256.json"


@pytest.mark.parametrize("edit", [lambda h: {}, lambda h: h | {"manifest.json": "0" * 64}, lambda h: []])
def test_hashes_of_other_files_are_refused(stored, edit):
    edit_json(stored, "sha256.json", edit)
    assert refusal(stored).startswith("sha256.json")


@pytest.mark.parametrize("key", KEYS[1:])
def test_each_tampered_figure_is_named_even_with_its_hash_mended(stored, key):
    def edit(results):
        results[1][key] += 1 if isinstance(results[1][key], int) else 1e-15

    edit_json(stored, "results.json", edit)
    assert refusal(stored).startswith(f"results.json: seed 8: {key} is ")


def test_a_tampered_figure_names_the_file_that_changed_too(stored):
    edit_json(stored, "results.json", lambda r: r[0].update(chunk_error=0.5), rehash=False)
    message = refusal(stored)
    assert "chunk_error is 0.5" in message
    assert "changed since it was hashed: results.json" in message


DIFFERENCED = [name for figure in DIFFERENCES for name in (figure.rows, figure.reference)]


@pytest.mark.parametrize("name", sorted(set(DIFFERENCED)))
def test_a_tampered_array_is_caught_even_with_its_hash_mended(stored, name):
    found = arrays(stored)
    found[f"s3_{name}"] = np.clip(found[f"s3_{name}"] * 0.5, -1, 1)
    replace_file(stored, "arrays.npz", npz(found))
    assert f"s3_{name}" in refusal(stored) or "seed 3" in refusal(stored)


@pytest.mark.parametrize(
    ("name", "edit", "law"),
    [
        ("tokens", lambda a: (a + 1) % 5, "7i + 3"),
        ("full", lambda a: a * 9, "outside −1 to 1"),
        ("good", lambda a: a[::-1] + 1e-16 + 0.1, "second chunk"),
        ("sliding", lambda a: a * 0.9, "still reaches back"),
        ("attention", lambda a: np.ones_like(a) / len(a), "reads the future"),
        ("attention", lambda a: a * 0.5, "sum to 1"),
        ("attention", lambda a: -a, "negative"),
        ("cache_bytes", lambda a: a + 1, "formula"),
    ],
)
def test_each_law_of_the_arrays_can_fail(stored, name, edit, law):
    found = arrays(stored)
    replace_file(stored, "arrays.npz", npz(found | {f"s8_{name}": edit(found[f"s8_{name}"])}))
    message = refusal(stored)
    assert message.startswith(f"arrays.npz: s8_{name} ")
    assert law in message


@pytest.mark.parametrize(
    "change",
    [
        {"length": 7, "chunk_sizes": [2, 1, 4]},
        {"chunk_sizes": [3, 1, 2]},
        {"chunk_sizes": [2, 2, 2]},
        {"window": 2},
        {"window": 4},
        {"n_layers": 3},
        {"d_model": 6},
        {"vocab_size": 6},
        {"seeds": [3]},
        {"seeds": [8, 3]},
        {"seeds": [3, 9]},
        {"dtype": "float32"},
    ],
    ids=str,
)
def test_a_protocol_that_does_not_fit_the_arrays_is_refused(stored, change):
    edit_json(stored, "manifest.json", lambda m: m["protocol"].update(change))
    refusal(stored)


@pytest.mark.parametrize(
    "change",
    [
        {"length": 10**6},
        {"length": "6"},
        {"seeds": 3},
        {"seeds": [True]},
        {"seeds": [[3]]},
        {"chunk_sizes": [2, -1, 5]},
        {"tolerance": 0},
        {"tolerance": None},
        {"tolerance": 10**400},
        {"dtype": ["float64"]},
        {"extra": 1},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_protocol_that_cannot_be_run_is_refused(stored, change):
    edit_json(stored, "manifest.json", lambda m: m["protocol"].update(change))
    assert refusal(stored).startswith("manifest.json: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("time", "yesterday"),
        ("time", "2026-01-01T00:00:00"),
        ("time", 3),
        ("versions", {"python": "3"}),
        ("commit", "HEAD"),
        ("dirty", 1),
        ("engine_sha256", {}),
        ("engine_sha256", {"model.py": "0"}),
        ("protocol", []),
        ("more", 1),
    ],
)
def test_a_manifest_of_another_form_is_refused(stored, key, value):
    edit_json(stored, "manifest.json", lambda m: m.update({key: value}))
    assert refusal(stored).startswith("manifest.json: ")


@pytest.mark.parametrize("name", ["results.json", "manifest.json", "sha256.json"])
@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"{", b"[" * 100_000, b'{"a": 1, "a": 1}', b"[1e999]", b"[NaN]", b"null", b"9" * 5000]
)
def test_bad_json_is_one_line(stored, name, content):
    replace_file(stored, name, content)
    assert name in refusal(stored)


@pytest.mark.parametrize(
    "edit",
    [
        lambda r: r[:1],
        lambda r: [*r, r[0]],
        lambda r: r[::-1],
        lambda r: [r[0] | {"more": 1}, r[1]],
        lambda r: [{k: v for k, v in r[0].items() if k != "cache_error"}, r[1]],
        lambda r: [r[0] | {"cache_error": "0"}, r[1]],
        lambda r: [r[0] | {"full_kv_bytes": True}, r[1]],
        lambda r: [r[0] | {"full_kv_bytes": float(r[0]["full_kv_bytes"])}, r[1]],
        lambda r: [1, 2],
    ],
)
def test_results_of_another_form_are_refused(stored, edit):
    edit_json(stored, "results.json", edit)
    assert refusal(stored).startswith("results.json: ")


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace("cache_error", "cash_error"),
        lambda text: text.rsplit("\n", 2)[0] + "\n",
        lambda text: text + "1,2\n",
        lambda text: text.replace("0.0", "1.0", 1),
        lambda text: text.replace("0.0", "zero", 1),
        lambda text: text.replace("0.0", '"', 1),
        lambda text: "",
    ],
)
def test_a_table_that_says_something_else_is_refused(stored, edit):
    replace_file(stored, "results.csv", edit((stored / "results.csv").read_text()).encode())
    assert refusal(stored).startswith("results.csv: ")


def object_array():
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    return file.getvalue()


def bomb(shape="(1000000000000,)"):
    """A header that promises more than memory holds."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": eval(shape)})
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [object_array(), bomb(), bomb("(6, 4)"), b"", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((   \n", bytes(1000)],
)
def test_a_hostile_array_is_one_line(stored, content):
    file = io.BytesIO((stored / "arrays.npz").read_bytes())
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for name, old in members.items():
            archive.writestr(name, content if name == "s3_full.npy" else old)
    replace_file(stored, "arrays.npz", packed.getvalue())
    assert refusal(stored).startswith("arrays.npz: ")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_bomb_is_not_unpacked(stored, method):
    with zipfile.ZipFile(packed := io.BytesIO(), "w", method) as archive:
        for name in arrays(stored):
            archive.writestr(f"{name}.npy", bytes(10**6))
    replace_file(stored, "arrays.npz", packed.getvalue())
    assert "is larger than its shape" in refusal(stored)


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: {name: a for name, a in found.items() if name != "s8_reset"},
        lambda found: found | {"s8_more": np.zeros(1)},
        lambda found: found | {"s8_reset": found["s8_reset"][:-1]},
        lambda found: found | {"s8_reset": found["s8_reset"].astype(np.float32)},
        lambda found: found | {"s8_reset": found["s8_reset"] * np.nan},
        lambda found: found | {"s8_reset": found["s8_reset"] + np.inf},
    ],
)
def test_missing_extra_and_misshapen_arrays_are_named(stored, edit):
    replace_file(stored, "arrays.npz", npz(edit(arrays(stored))))
    message = refusal(stored)
    assert message.startswith("arrays.npz: ")
    assert "s8_reset" in message or "s8_more" in message


def test_arrays_packed_by_numpy_in_another_way_are_accepted(stored):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays(stored))
    replace_file(stored, "arrays.npz", file.getvalue())
    audit(stored)


def test_a_file_larger_than_it_may_be_is_not_read(stored):
    with (stored / "arrays.npz").open("r+b") as file:
        file.truncate(10**8)
    assert "larger than" in refusal(stored)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_damaged_byte_gives_anything_but_a_disagreement(fresh, tmp_path_factory, data):
    name = data.draw(st.sampled_from(evidence.FILES))
    content = bytearray(fresh[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    directory = tmp_path_factory.mktemp("damaged")
    for other, whole in fresh.items():
        (directory / other).write_bytes(whole)
    replace_file(directory, name, content)
    with contextlib.suppress(Disagreement):
        audit(directory)


@pytest.mark.parametrize("what", ["missing", "file"])
def test_no_folder_is_bad_input(stored, what):
    with pytest.raises(ValueError, match="is no folder"):
        audit(stored / ("missing" if what == "missing" else "results.json"))


def test_neither_the_decoder_nor_torch_is_imported(stored):
    code = (
        "import sys; from kvcore.cli import main; code = main(['audit', sys.argv[1]]);"
        " print(code, sorted({'torch', 'kvcore.model'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(stored)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def test_a_file_of_impossible_size_is_refused_before_it_is_hashed(stored):
    with (stored / "arrays.npz").open("r+b") as file:
        file.truncate(2**40)  # sparse: it takes no room
    assert refusal(stored).startswith("arrays.npz: it is larger than")


def test_a_link_in_place_of_a_file_is_named(stored, tmp_path):
    elsewhere = tmp_path / "elsewhere.csv"
    (stored / "results.csv").rename(elsewhere)
    (stored / "results.csv").symlink_to(elsewhere)
    assert refusal(stored).startswith("results.csv: the file is missing or no regular file")


def test_evidence_cannot_fill_the_screen(stored):
    edit_json(stored, "manifest.json", lambda manifest: manifest["protocol"].update(dtype="x" * 2_000_000))
    assert len(refusal(stored)) <= 301
