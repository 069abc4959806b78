"""What is known of a fault, in words: its class, both formulas, where it was reported and what hides it."""

from __future__ import annotations

import re

import pandas as pd

from kvcore.faults import Fault

CLASSES = {
    "C1": "causal mask in the wrong corner",
    "C2": "padding not carried into cached calls",
    "C3": "wrong layer, head, tensor or pattern",
    "C4": "positions of new tokens",
    "C5": "window off by one",
    "C6": "window missing on one path",
    "C7": "prefix reuse",
    "C8": "going back",
    "C9": "evicted before it was read",
    "C10": "turning cached keys",
    "C11": "capacity and append",
    "C12": "order of a ring",
    "C13": "length read at the wrong time",
    "C14": "one index for a ragged batch",
    "C15": "causal mask dropped",
    "C16": "beam reordering",
    "C17": "shared, lost or left-over entries",
    "C18": "terms that depend on the length",
}
"""The classes of reported faults, in a few words."""

KINDS = {"PR": "pull", "issue": "issues"}


def sentence(fault: Fault) -> str:
    """The fault's name, class and sentence."""
    return f"Deliberate mistake “{fault.title}” ({class_name(fault)}): {fault.sentence}"


def class_name(fault: Fault) -> str:
    also = f", also {', '.join(fault.also)}" if fault.also else ""
    return f"{fault.fault_class}, {CLASSES[fault.fault_class]}{also}"


def facts(fault: Fault) -> pd.DataFrame:
    """What is known of a fault, one row a fact."""
    known = {
        "class": class_name(fault),
        "what goes wrong": fault.sentence,
        "wrong": fault.wrong,
        "right": fault.right,
        "reported in": "; ".join(fault.reported),
        "hidden by": fault.hidden_by,
    }
    return pd.DataFrame({"fact": known.keys(), "what": known.values()})


def linked(reported: str) -> str:
    """A report as a Markdown link where it names owner and repository: `owner/name PR 12`."""
    found = re.fullmatch(r"([\w.-]+/[\w.-]+) (PR|issue) (\d+)", reported)
    return f"[{reported}](https://github.com/{found[1]}/{KINDS[found[2]]}/{found[3]})" if found else reported
