"""The check matrix in words: the lesson, from this very result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kvcore.config import TOLERANCE
from kvcore.studies.check_row import CHECKS, SPLITS
from kvcore.units import plural
from kvcore.verification.plan import ONE_CALL

if TYPE_CHECKING:
    from kvcore.studies.check_matrix import Result

EVERY, LAST, ARGMAX = (CHECKS.index(check) for check in ("every position", "last position", "every argmax"))
ONE = SPLITS.index(ONE_CALL)


def reading(result: Result) -> str:
    return " ".join(_sentences(result))


def _sentences(result: Result) -> Iterator[str]:
    config, always = result.config, result.always
    models = f"all {config.n_models} models" if config.n_models > 1 else "the one model"
    at_best = ", ".join(f"{check} {_at_best(always[at])}" for at, check in enumerate(CHECKS))
    yield (
        f"Of {plural(len(config.faults), 'fault')}, each check under its best split notices in {models}: {at_best}"
        f" ({config.dtype}, tolerance {TOLERANCE[config.dtype]:g})."
    )
    single, best = int(always[EVERY].max()), int(always[EVERY].argmax())
    if single > (weaker := always[:EVERY, best])[LAST]:
        yield (
            f"Under {SPLITS[best]}, the last position misses {single - weaker[LAST]} of the faults that every position"
            f" notices, and every argmax {single - weaker[ARGMAX]}."
        )
    yield f"One call with all tokens, at every position, notices {always[EVERY, ONE]}."
    together = (result.noticed[:, EVERY] == config.n_models).any(axis=1)
    if together.sum() > single:
        yield f"No single split notices all that can be seen: the five together, at every position, {together.sum()}."
    unseen = int((~result.plain).sum())
    if unseen:
        yield (
            f"{plural(unseen, 'fault')} can show in no split at all: {'it needs' if unseen == 1 else 'they need'} going"
            " back, a stored prefix, a second sequence or a branch."
        )
    hidden = int((~together & result.plain).sum())
    if hidden:
        yield f"{plural(hidden, 'more fault')} {'is' if hidden == 1 else 'are'} not noticed in {models} by any of it."
    alarms = int(result.false_alarms.max())
    if alarms:
        at = np.unravel_index(int(result.false_alarms.argmax()), result.false_alarms.shape)
        yield f"The right step is accused too, in {plural(alarms, 'model')} by {CHECKS[at[0]]} under {SPLITS[at[1]]}."
    else:
        yield "The right step is never accused."


def _at_best(counts: np.ndarray) -> str:
    most = int(counts.max())
    return f"{most} ({SPLITS[int(counts.argmax())]})" if most else "none"
