"""Arrows run one way: app → pages → pages.common → kvcore.figures → kvcore; they may skip levels."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LEVELS = {"kvcore": 0, "kvcore.figures": 1, "pages.common": 2, "pages": 3, "app": 4}
LOWEST_LEVEL = {"plotly": 1, "streamlit": 2}
"""The lowest level that may import each of these."""
WITHOUT_TORCH = ("kvcore", "kvcore.config", "kvcore.masks", "kvcore.positions", "kvcore.work", "kvcore.compare")


def level(module):
    """The level of a module of this project by its longest known prefix, or None for any other module."""
    parts = module.split(".")
    for n in range(len(parts), 0, -1):
        if (found := LEVELS.get(".".join(parts[:n]))) is not None:
            return found
    return None


def module_name(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(root):
    return [*root.glob("app.py"), *sorted(path for top in ("pages", "kvcore") for path in (root / top).rglob("*.py"))]


def absolute_base(node, package):
    """The module that a `from … import` names, dots resolved against the package it stands in."""
    if not node.level:
        return node.module
    base = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def imported(path, root):
    """Every module or member that a file imports by name, wherever in the file it does so."""
    name = module_name(path, root)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute_base(node, package)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield node.args[0].value


ON_REQUEST = {("kvcore.verification.report", "kvcore.figures.report.figure")}
"""A report draws itself when asked to; the import stands in that method, so that plotly is loaded only then."""


def violations(root):
    """Imports that run upwards, one sentence each."""
    found = []
    for path in sources(root):
        name = module_name(path, root)
        own = level(name)
        for target in imported(path, root):
            needs = LOWEST_LEVEL.get(target.split(".")[0])
            reaches = level(target)
            if (name, target) in ON_REQUEST:
                continue
            if (needs is not None and own < needs) or (reaches is not None and own < reaches):
                found.append(f"{name} imports {target}")
    return found


def loaded_after(modules, root):
    """Names of every module in a fresh interpreter that has imported these."""
    code = "import sys, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, *modules], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def engine_modules(root):
    """Every module of the engine; its figures and its command line's entry script are none."""
    names = (module_name(path, root) for path in sorted((root / "kvcore").rglob("*.py")))
    return [name for name in names if level(name) == 0 and not name.endswith("__main__")]


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def test_arrows_run_one_way_in_every_file():
    assert len(sources(ROOT)) > 20
    assert violations(ROOT) == []


def test_importing_the_whole_engine_loads_neither_streamlit_nor_plotly():
    names = engine_modules(ROOT)
    assert {"kvcore.model", "kvcore.cache", "kvcore.paths"} <= set(names)
    assert {"streamlit", "plotly"} & loaded_after(names, ROOT) == set()


def test_importing_what_audit_needs_does_not_load_torch():
    assert {"torch", "streamlit", "plotly", "kvcore.model"} & loaded_after(WITHOUT_TORCH, ROOT) == set()


def test_names_load_lazily_and_unknown_ones_are_an_error():
    import kvcore
    from kvcore.model import LabDecoder

    assert kvcore.LabDecoder is LabDecoder
    with pytest.raises(AttributeError, match="has no attribute 'Transformer'"):
        _ = kvcore.Transformer


GOOD = {
    "app.py": "import streamlit\nfrom pages.common import nav\nfrom pages import overview\n",
    "pages/overview.py": "import streamlit\nfrom kvcore.figures import theme\nfrom kvcore import model\n",
    "pages/common/__init__.py": "",
    "pages/common/nav.py": "import plotly.io\nimport streamlit as st\nfrom kvcore.figures import theme\n",
    "kvcore/__init__.py": "",
    "kvcore/model.py": "from kvcore import masks\nfrom . import masks\n",
    "kvcore/masks.py": "import numpy\n",
    "kvcore/studies/__init__.py": "from ..masks import Mask\n",
    "kvcore/figures/__init__.py": "",
    "kvcore/figures/theme.py": "import plotly.graph_objects as go\nfrom kvcore.model import LabDecoder\n",
}
BAD = {
    "the engine imports plotly": ("kvcore/masks.py", "import plotly.graph_objects as go"),
    "the engine imports streamlit inside a function": ("kvcore/masks.py", "def draw():\n    import streamlit as st"),
    "a study imports a figure": ("kvcore/studies/deep.py", "from kvcore.figures.theme import COLOURS"),
    "the engine imports a figure as a member": ("kvcore/model.py", "from kvcore import figures"),
    "the engine imports a figure relatively": ("kvcore/model.py", "from .figures import theme"),
    "a study imports a figure relatively": ("kvcore/studies/deep.py", "from ..figures import theme"),
    "the engine imports a page": ("kvcore/model.py", "import pages.overview"),
    "the engine imports by text": ("kvcore/model.py", "import importlib\nimportlib.import_module('streamlit')"),
    "a figure imports streamlit": ("kvcore/figures/theme.py", "import streamlit"),
    "a figure imports a page's helper": ("kvcore/figures/theme.py", "from pages.common import nav"),
    "a page's helper imports a page": ("pages/common/nav.py", "from pages import overview"),
    "a page imports the app": ("pages/overview.py", "import app"),
}


def test_the_checker_passes_a_tree_whose_arrows_run_one_way(tmp_path):
    write(tmp_path, GOOD)
    assert violations(tmp_path) == []


@pytest.mark.parametrize("case", BAD)
def test_the_checker_catches_a_planted_import(case, tmp_path):
    path, text = BAD[case]
    write(tmp_path, GOOD | {path: text + "\n"})
    [found] = violations(tmp_path)
    assert found.startswith(path.removesuffix(".py").replace("/", ".") + " imports ")


def test_the_subprocess_catches_an_import_that_no_file_names(tmp_path):
    """Text put together at run time escapes the reading of files, and not the running of them."""
    hidden = "from importlib import import_module\nimport_module('stream' + 'lit')\n"
    write(tmp_path, {"kvcore/__init__.py": "", "kvcore/masks.py": hidden, "streamlit.py": ""})
    assert violations(tmp_path) == []
    assert "streamlit" in loaded_after(engine_modules(tmp_path), tmp_path)
