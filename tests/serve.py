"""A Streamlit server of our own on a free loopback port, for the browser journeys and the measurement."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(script: Path, on_start: Callable[[int], None] = lambda pid: None) -> Iterator[int]:
    """A Streamlit server for `script` on a free port; `on_start` is told its process."""
    port = free_port()
    options = ["--server.port", str(port), "--server.headless", "true", "--server.address", "127.0.0.1"]
    command = [sys.executable, "-m", "streamlit", "run", str(script), *options]
    process = subprocess.Popen(command, cwd=script.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    on_start(process.pid)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1)
                break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()
