"""`python -m kvcore`: see `kvcore/cli.py`."""

import os
import sys

from kvcore.cli import main


def _run() -> int:
    """Print what the terminal cannot show as escapes, and stop quietly where nobody reads on (`| head`)."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    return code


if __name__ == "__main__":
    raise SystemExit(_run())
