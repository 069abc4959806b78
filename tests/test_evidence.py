"""Evidence on disk and in a zip: the contract's files, whole or not at all."""

import csv
import io
import json
import re
import subprocess
import sys
import zipfile
from hashlib import sha256

import numpy as np
import pytest

from kvcore import evidence, experiment, folder, provenance
from kvcore.audit import audit
from kvcore.measures import KEYS
from kvcore.protocol import Protocol

PROTOCOL = Protocol(seeds=(3, 8), length=6, chunk_sizes=(2, 4), window=3, d_model=4, vocab_size=5)


@pytest.fixture(scope="module")
def done():
    return experiment.run(PROTOCOL)


@pytest.fixture
def written(done, tmp_path):
    return evidence.write(done, tmp_path / "evidence")


def test_the_contracts_files_are_written_and_nothing_else(written):
    names = {"results.json", "results.csv", "arrays.npz", "manifest.json", "sha256.json"}
    assert {path.name for path in written.iterdir()} == names
    assert [path.name for path in written.parent.iterdir()] == ["evidence"]


def test_results_read_back_as_the_same_numbers(done, written):
    assert json.loads((written / "results.json").read_text()) == done.results()
    with (written / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{key: float(value) for key, value in row.items()} for row in rows] == done.results()
    assert list(rows[0]) == list(KEYS)


def test_arrays_read_back_bit_for_bit(done, written):
    with np.load(written / "arrays.npz", allow_pickle=False) as found:
        assert set(found.files) == set(done.arrays())
        assert all(np.array_equal(found[name], array) for name, array in done.arrays().items())


def test_hashes_cover_every_file_but_the_manifest_and_themselves(written):
    hashes = json.loads((written / "sha256.json").read_text())
    assert hashes == {
        name: sha256((written / name).read_bytes()).hexdigest()
        for name in ("results.json", "results.csv", "arrays.npz")
    }


def test_the_manifest_says_when_with_what_and_from_which_sources(written):
    manifest = json.loads((written / "manifest.json").read_text())
    assert set(manifest["versions"]) == {"python", "numpy", "torch"}
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest["time"].endswith("+00:00")
    assert {"model.py", "attention.py", "cache.py", "measures.py"} <= set(manifest["engine_sha256"])
    assert Protocol(**{k: tuple(v) if isinstance(v, list) else v for k, v in manifest["protocol"].items()}) == PROTOCOL


def test_the_commit_is_a_hash_in_a_checkout_and_null_elsewhere(tmp_path, monkeypatch):
    found = provenance.checkout()
    assert found["commit"] is None or re.fullmatch("[0-9a-f]{40,64}", found["commit"])
    monkeypatch.setattr(provenance, "ENGINE", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.checkout() == {"commit": None, "dirty": None}


def test_evidence_is_written_without_git(done, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    manifest = json.loads((evidence.write(done, tmp_path / "evidence") / "manifest.json").read_text())
    assert (manifest["commit"], manifest["dirty"]) == (None, None)
    audit(tmp_path / "evidence")


def test_a_dirty_checkout_is_called_dirty(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    (tmp_path / "provenance.py").write_text("")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(provenance, "ENGINE", tmp_path)
    clean = provenance.checkout()
    (tmp_path / "provenance.py").write_text("changed")
    assert clean["dirty"] is False
    assert provenance.checkout() == {"commit": clean["commit"], "dirty": True}


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_something_that_exists_is_refused_and_left_alone(done, tmp_path, kind):
    target = tmp_path / "there"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="exists already"):
        evidence.write(done, target)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert kind != "folder" or list(target.iterdir()) == []


def test_a_folder_in_no_folder_is_refused(done, tmp_path):
    with pytest.raises(ValueError, match="make that one first"):
        evidence.write(done, tmp_path / "no" / "evidence")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(ValueError, match="cannot be written"):
        folder.write_new(tmp_path / "half", {"first": b"1", "no/such/folder": b"2"})
    assert list(tmp_path.iterdir()) == []


def test_the_zip_unpacks_to_a_folder_that_passes_the_audit(done, tmp_path):
    with zipfile.ZipFile(io.BytesIO(evidence.zip_bytes(done))) as archive:
        archive.extractall(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]
    assert audit(tmp_path / "evidence").protocol == PROTOCOL


def test_all_but_the_manifest_is_the_same_every_time(done):
    first, second = evidence.files(done), evidence.files(experiment.run(PROTOCOL))
    assert {name for name in first if first[name] != second[name]} <= {"manifest.json"}


def test_importing_the_file_names_needs_no_torch():
    code = "import sys, kvcore.evidence; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_source_hashes_cover_every_folder_of_the_engine(tmp_path, monkeypatch):
    found = provenance.engine_sha256()
    assert {"model.py", "studies/overview.py", "figures/theme.py"} <= set(found)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "one.py").write_bytes(b"1")
    monkeypatch.setattr(provenance, "ENGINE", tmp_path)
    assert provenance.engine_sha256() == {"studies/one.py": sha256(b"1").hexdigest()}
