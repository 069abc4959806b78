"""The table of verdicts on published architectures as stored data: made by one command, read without transformers."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcore.arguments import Parser
from kvcore.integrations.published import ARCHITECTURES

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "architecture", "model_type", "cache", "attention", "verdict", "difference", "first_bad_position", "check", "note",
)  # fmt: skip
"""Of a row; `difference` is the largest one as a part of the output scale, None where nothing could be run."""

VERDICTS = ("equal", "rounding", "fault", "not supported")
PACKAGES = ("transformers", "torch", "numpy")


def record(
    names: Sequence[str] = tuple(ARCHITECTURES),
    table: Callable[..., Any] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """The verdicts on these architectures with date and versions, as plain data; all take 10 minutes or more.

    `table` makes the rows of a list of names, `verdict_table` of `kvcore.integrations.architectures` where it is left
    out; `progress` is told a line an architecture.
    """
    from kvcore.integrations import architectures

    table, rows = table or architectures.verdict_table, []
    for index, name in enumerate(names, start=1):
        found = [_plain(row) for row in table([name]).to_dict("records")]
        counted = Counter(row["verdict"] for row in found)
        progress(f"{index} of {len(names)}: {name}: {', '.join(f'{n} {verdict}' for verdict, n in counted.items())}")
        rows += found
    return {
        "about": "What kvcore.verify says of small random-weight models of published architectures and their caches.",
        "made_by": "python -m kvcore architectures --out FILE",
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "token_ids": list(architectures.TOKEN_IDS),
        "rows": rows,
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """One row of `verdict_table` with its reason apart from its verdict, and without NaN."""
    verdict, _, reason = row["verdict"].partition(": ")
    assert verdict in VERDICTS, verdict
    # The library's refusals end in an invitation to ask for the feature, which is no reason.
    note = reason.partition(" yet. ")[0].partition(" Please ")[0] or row["note"]
    difference, position = row["difference"], row["first_bad_position"]
    made = {
        "architecture": row["architecture"],
        "model_type": row["model_type"],
        "cache": row["cache"],
        "attention": row["attention"],
        "verdict": verdict,
        "difference": None if math.isnan(difference) else float(difference),
        "first_bad_position": None if position is None or math.isnan(position) else int(position),
        "check": row["split"],
        "note": note,
    }
    if made["difference"] == math.inf:  # strict JSON knows no infinity
        made |= {"difference": None, "note": f"outputs are not finite; {note}".removesuffix("; ")}
    return made


def load() -> dict[str, Any]:
    """The stored table as it is: about, made_by, date, versions, token_ids, rows."""
    return json.loads(files("kvcore").joinpath("data/architectures.json").read_text(encoding="utf-8"))


def to_frame(stored: dict[str, Any]) -> pd.DataFrame:
    """A row an architecture, cache and attention, with the columns COLUMNS."""
    import pandas as pd

    return pd.DataFrame(stored["rows"], columns=list(COLUMNS)).astype({"first_bad_position": "Int64"})


def arrays(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """The numbers of the table, a row of it an entry; NaN where there is none."""
    return {name: table[name].to_numpy(float, na_value=np.nan) for name in ("difference", "first_bad_position")}


def in_words(stored: dict[str, Any]) -> str:
    """How many combinations ended how, of which versions and when."""
    rows, versions = stored["rows"], stored["versions"]
    count = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    faulty = list(dict.fromkeys(row["architecture"] for row in rows if row["verdict"] == "fault"))
    names = f" (in {', '.join(faulty)})" if faulty else ""
    return (
        f"transformers {versions['transformers']} with PyTorch {versions['torch']}, recorded on {stored['date']}:"
        f" of {len(rows)} combinations of {len({row['architecture'] for row in rows})} architectures, caches and"
        f" attentions {count['equal']} are equal at every position, {count['rounding']} equal but for rounding,"
        f" {count['fault']} faulty{names}, and {count['not supported']} not supported."
    )


def wrong(stored: dict[str, Any]) -> list[str]:
    """One sentence an architecture that has a fault: how far off, where it shows first, and what does it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in stored["rows"]:
        if row["verdict"] == "fault":
            found.setdefault(row["architecture"], []).append(row)
    return [_told(name, rows) for name, rows in found.items()]


def _told(name: str, rows: list[dict[str, Any]]) -> str:
    worst = max(rows, key=lambda row: np.inf if row["difference"] is None else row["difference"])
    where = ", ".join(dict.fromkeys(f"{row['cache']} {row['attention']}" for row in rows))
    off = "not finite" if worst["difference"] is None else f"off by up to {worst['difference']:.2g} of the output scale"
    at = "" if worst["first_bad_position"] is None else f", first at position {worst['first_bad_position']}"
    under = f" under {worst['check']}" if worst["check"] else ""
    note = f": {worst['note']}" if worst["note"] else ""
    return f"{name} ({where}): {off}{at}{under}{note}."


def command(parser: Parser, argv: Sequence[str]) -> int:
    parser.add_argument("--out", metavar="FILE", help="a new file for the table as JSON")
    parser.add_argument("--only", metavar="NAMES", help="architectures with commas between them; all without it")
    given = parser.parse(argv)
    names = list(ARCHITECTURES) if given.only is None else [name.strip() for name in given.only.split(",")]
    if unknown := [name for name in names if name not in ARCHITECTURES]:
        raise ValueError(f"architecture {unknown[0]!r} is unknown; choose from {', '.join(ARCHITECTURES)}")
    path = None if given.out is None else Path(given.out)
    if path is not None and (path.exists() or not path.absolute().parent.is_dir()):
        raise ValueError(f"{given.out!r} exists already or lies in no folder; give a file that can be made")
    made = record(names, progress=lambda line: print(line, file=sys.stderr, flush=True))
    if path is not None:
        path.write_text(_lines(made), encoding="utf-8")
    shown = to_frame(made).drop(columns=["model_type"])
    print(shown.to_string(index=False, max_colwidth=60, float_format="{:.1e}".format, na_rep=""))
    print(f"\n{in_words(made)}")
    return 0


def _lines(made: dict[str, Any]) -> str:
    """JSON with a line a row, so that two recordings can be compared line by line."""
    head = json.dumps({name: part for name, part in made.items() if name != "rows"}, indent=1, ensure_ascii=False)
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False, allow_nan=False) for row in made["rows"])
    return head.removesuffix("\n}") + f',\n "rows": [\n{rows}\n ]\n}}\n'
