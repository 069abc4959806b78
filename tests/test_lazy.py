"""The first page shows something before PyTorch is there: what it needs for its first words does not bring it."""

import subprocess
import sys

import pytest

from tests.serve import ROOT

FIRST_WORDS = (
    "pages.common.nav, pages.common.controls, pages.common.export, pages.common.cached,"
    " kvcore.figures.overview, kvcore.studies.overview"
)


def brings_torch(modules: str) -> bool:
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip() == "True"


def test_first_words_of_the_overview_come_without_pytorch():
    assert not brings_torch(FIRST_WORDS)


@pytest.mark.parametrize("module", ["kvcore.model", "kvcore.experiment"])
def test_the_check_sees_a_module_that_brings_pytorch(module):
    assert brings_torch(module)
