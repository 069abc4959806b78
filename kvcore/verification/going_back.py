"""Which mistake in going back or in reusing a prefix leaves what was seen: the engine's own under the same check."""

from __future__ import annotations

from collections.abc import Sequence

from kvcore.faults import FAULTS, Fault
from kvcore.setting import Setting
from kvcore.verification.evidence import Signature
from kvcore.verification.hooked import check_crop, check_reuse
from kvcore.verification.hooks import Hooks
from kvcore.verification.lab import model
from kvcore.verification.match import distance
from kvcore.verification.outputs import TokenIds
from kvcore.verification.subject import Subject
from kvcore.verification.trial import prepare

CHECK = {"crop": check_crop, "reuse": check_reuse}


def likeliest(kind: str, signature: Signature, setting: Setting, token_ids: Sequence[int]) -> list[Fault]:
    """The faults shown by the hook `kind` whose evidence under that check is most like this, one or several."""
    seen = {key: bad for key, bad in signature.items() if key[0] == kind}
    faults = [fault for fault in FAULTS.values() if fault.shown_by == kind and not fault.needs(setting)]
    apart = [distance(seen, _left(kind, fault, setting, token_ids)) for fault in faults]
    return [fault for fault, each in zip(faults, apart, strict=True) if each == min(apart)]


def _left(kind: str, fault: Fault, setting: Setting, token_ids: Sequence[int]) -> Signature:
    """What this fault leaves under the check."""
    made = model(setting, fault)
    subject = Subject(made.pop("full"), made.pop("step"), TokenIds(list(token_ids)))
    trial = prepare(subject, Hooks(**made), None, None)
    CHECK[kind](trial)
    return {key: bad for key, bad in trial.signature.items() if key[0] == kind}
