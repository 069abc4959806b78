"""Where evidence comes from: versions, the commit, and hashes of the sources that computed it."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

ENGINE = Path(__file__).parent


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def engine_sha256() -> dict[str, str]:
    """Path below the engine's folder -> SHA-256 of each of its sources, those in its subfolders too."""
    found = {path.relative_to(ENGINE).as_posix(): path for path in ENGINE.rglob("*.py")}
    return {name: sha256(found[name].read_bytes()) for name in sorted(found)}


def versions() -> dict[str, str]:
    """Read from the installed packages, so that nothing is imported for it."""
    return {"python": platform.python_version(), "numpy": version("numpy"), "torch": version("torch")}


def checkout() -> dict[str, str | bool | None]:
    """Commit and dirty flag of the git checkout that holds the engine; both None where there is none."""
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name)
    commit = _git("rev-parse", "HEAD") if tracked else None
    changes = _git("status", "--porcelain") if commit else None
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(*arguments: str) -> str | None:
    """What git prints, or None where it is missing, slow or refuses."""
    command = ["git", "-C", str(ENGINE), *arguments]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, env=environment, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
