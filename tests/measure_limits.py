"""The pages at their largest settings: seconds a run and the server's memory; `python -m tests.measure_limits`.

Every setting is opened as an address for the first time, so nothing of it is cached; the seed or, on
pages without one, another field makes each address new. Nothing is asserted: machines are noisy.
"""

from __future__ import annotations

import argparse
import subprocess
from urllib.parse import urlencode

from tests.measure_rerun import Client
from tests.serve import ROOT, server

LARGEST = {
    "overview": {"overview_dtype": "bfloat16"},
    "mask_explorer": {"mask_n_cached": 64, "mask_n_new": 32, "mask_n_layers": 6, "mask_n_heads": 4, "mask_seed": None},
    "decode_paths": {
        "paths_length": 256, "paths_n_layers": 6, "paths_d_model": 128, "paths_n_heads": 8, "paths_n_kv_heads": 8,
        "paths_dtype": "bfloat16", "paths_seed": None,
    },
    "work_counts": {
        "work_length": 256, "work_n_layers": 6, "work_d_model": 128, "work_n_heads": 8, "work_n_kv_heads": 8,
        "work_itemsize": 2, "work_prompt": None,
    },
    "sliding_window": {
        "slide_length": 64, "slide_n_layers": 6, "slide_window": 32, "slide_crop": 64, "slide_step": 60,
        "slide_seed": None,
    },
}  # fmt: skip
"""Page -> its controls; None takes a number that has not been there yet."""


def resident_mib(pid: int) -> float:
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(pid)])) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visits", type=int, default=5, help="visits of each page (5)")
    options = parser.parse_args()
    pids: list[int] = []
    with server(ROOT / "app.py", pids.append) as port:
        Client(port).close()
        print(f"after the first page: {resident_mib(pids[0]):.0f} MiB resident", flush=True)
        for page, controls in LARGEST.items():
            seconds = []
            for visit in range(options.visits):
                fields = {key: visit + 32 if value is None else value for key, value in controls.items()}
                client = Client(port, "" if page == "overview" else page, query=urlencode(fields))
                seconds.append(client.opened_in)
                client.close()
            memory = resident_mib(pids[0])
            print(f"{page:15s} at most {max(seconds):.2f} s a run, then {memory:.0f} MiB resident", flush=True)


if __name__ == "__main__":
    main()
