"""The report on outputs that were saved to a file: the same tolerance, checks and ranking, without the model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

import numpy as np

from kvcore.threads import one_thread
from kvcore.verification import plan
from kvcore.verification.character import Character
from kvcore.verification.checks import Check, not_tested
from kvcore.verification.diagnose import diagnose
from kvcore.verification.hooks import Hooks
from kvcore.verification.outputs import TokenIds
from kvcore.verification.plan import BASE, CONSTANT, Sizes
from kvcore.verification.report import Report
from kvcore.verification.saved_file import Saved, read_saved
from kvcore.verification.subject import Subject
from kvcore.verification.suspects import Suspect, with_care
from kvcore.verification.tolerance import from_format
from kvcore.verification.trial import Trial
from kvcore.verification.verify import BEHIND, RANKED_BY, told

AT_MOST = 64
"""Never more tokens than these are ranked by, for each is simulated."""

NEEDS_THE_MODEL = {
    "full of a prefix": "whether full itself depends on what comes later",
    "edits": "what an edited token moves and what it does not",
    CONSTANT: "whether positions or values are at fault",
    "second run from None": "whether a run leaves something behind",
    "two branches": "whether two continuations of one prefix disturb each other",
    "crop": "going back after rejected tokens",
    "reuse": "use of a stored prefix",
    "layers": "the first layer that goes wrong",
    "inspect": "what lies in the cache",
}
"""What saved outputs cannot tell."""


def verify_saved(content: bytes) -> Report:
    """Compare every saved split with the saved full forward at every position.

    `content` is an NPZ file: `full` (T, features), and one such array for each split, named by its chunk
    sizes, as in `5,4,3`; `token_ids` (T,) may be there. What needs the model is listed as not tested.
    Raises ValueError, in one sentence, for a file that is anything else.
    """
    begin = time.perf_counter()
    saved = read_saved(content)
    trial = trial_of(saved)
    suspects, notes = _ranked(saved, trial) if trial.faulty else ([], [])
    return told(trial, suspects, notes, begin)


def trial_of(saved: Saved) -> Trial:
    """The battery as if it had been run, as far as the file goes."""
    length = len(saved.full)
    tokens = saved.token_ids or tuple(range(length))
    tolerance = from_format(saved.full, saved.dtype, floor=0.0, influence=0.0)
    splits = {_name(sizes, length): sizes for sizes in saved.splits}
    trial = Trial(Subject(_no_model, _no_model, TokenIds(list(tokens))), Hooks(), length, splits, [], tolerance)
    trial.sequences = {BASE: tokens}
    trial.found.reference[BASE] = saved.full
    # Not known: under rotary positions the most faults can be in force, and most models have them.
    trial.character = Character("rotary", reach=None, n_sinks=0)
    for name, sizes in splits.items():
        trial.found.rows[name, BASE] = saved.splits[sizes]
        shown = "+".join(map(str, sizes)) if len(sizes) <= 6 and name != _plus(sizes) else ""
        trial.compare(f"{name} {shown}".strip(), name, BASE)
    trial.checks += _missing(trial)
    trial.signature = trial.found.signature(trial.battery, trial.tolerance.rounding)
    return trial


def _no_model(*_: object) -> NoReturn:
    raise ValueError("only saved outputs are there, and no model")


def _plus(sizes: Sizes) -> str:
    return "+".join(map(str, sizes))


def _name(sizes: Sizes, length: int) -> str:
    """What the battery calls this split, or its sizes."""
    return next((name for name, known in plan.splits(length, None).items() if known == sizes), _plus(sizes))


def _missing(trial: Trial) -> Iterator[Check]:
    """Splits of the battery that are not in the file, under the name to save them by, and what needs the model."""
    for name, sizes in plan.splits(trial.length, None).items():
        if name not in trial.splits:
            wanted = ",".join(map(str, sizes[:6])) + (",…" if len(sizes) > 6 else "")
            yield not_tested(name, f"the file has no array named {wanted}")
    for name, what in NEEDS_THE_MODEL.items():
        yield not_tested(name, f"{what}: needs the model, as kvcore.verify(full, step, token_ids)")


def _ranked(saved: Saved, trial: Trial) -> tuple[list[Suspect], list[str]]:
    """Suspects by the first tokens only, for long sequences are not simulated whole; and notes on that."""
    bad = np.logical_or.reduce(list(trial.signature.values()))
    stop = min(trial.length, AT_MOST, max(RANKED_BY, int(np.flatnonzero(bad)[0]) + BEHIND))
    if not bad[:stop].any():
        return [], [f"what is wrong begins behind the first {stop} tokens, so no mistake was looked for"]
    notes = [f"what is probably wrong follows from the first {stop} tokens"] if stop < trial.length else []
    short = replace(
        saved,
        full=saved.full[:stop],
        splits={_cut(sizes, stop): rows[:stop] for sizes, rows in saved.splits.items()},
        token_ids=None if saved.token_ids is None else saved.token_ids[:stop],
    )
    cut = trial_of(short)
    cut.splits = plan.splits(stop, None) | cut.splits
    cut.tolerance = trial.tolerance
    cut.signature = cut.found.signature(cut.battery, trial.tolerance.rounding)
    with one_thread():
        suspects = diagnose(cut)
    return suspects, [*notes, *with_care(suspects)]


def _cut(sizes: Sizes, stop: int) -> Sizes:
    """The calls that the first `stop` tokens come in."""
    kept: list[int] = []
    for size in sizes:
        if sum(kept) < stop:
            kept.append(min(size, stop - sum(kept)))
    return tuple(kept)
