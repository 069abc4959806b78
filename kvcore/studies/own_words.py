"""The report on one's own cache in words: what was planted, the verdict, and what is probably wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcore.studies.check_your_own import Result
    from kvcore.verification.report import Report


def reading(result: Result) -> str:
    return f"{planted(result)} {verdict(result.report)} {found(result)}".strip()


def planted(result: Result) -> str:
    config, fault = result.config, result.config.mistake
    window = "" if config.window is None else f" and a window of {config.window}"
    if window and len(config.setting.windows) > 1:
        window += " in every other layer"
    decoder = f"A decoder with {config.positions if config.positions != 'none' else 'no'} positions{window}"
    if fault is None:
        return f"{decoder}, right in every rule."
    return f"{decoder}, and one deliberate mistake ({fault.fault_class} {fault.name}): {fault.sentence}"


def verdict(report: Report) -> str:
    """The verdict, and what counts as equal."""
    return f"verify says: {report.verdict}. Equal means within {report.tolerance.equal:.2g}."


def suspects(report: Report) -> str:
    """The faults of the first rank with their classes, or nothing."""
    codes: dict[str, list[str]] = {}
    for suspect in report.diagnosis:
        if suspect.rank == 1:
            codes.setdefault(suspect.fault, []).append(suspect.fault_class)
    if not codes:
        return ""
    names = ", ".join(f"{name} ({' and '.join(classes)})" for name, classes in codes.items())
    alike = "" if len(codes) == 1 else ", and not told apart by this evidence"
    return f"Probably wrong{alike}: {names}."


def found(result: Result) -> str:
    """The first suspects, and where the planted class stands among them."""
    report, fault = result.report, result.config.mistake
    said = suspects(report)
    if fault is None or report.ok:
        return said if fault is None else "In this setting the mistake changes no row by more than rounding."
    codes = {fault.fault_class, *fault.also}
    rank = min((suspect.rank for suspect in report.diagnosis if suspect.fault_class in codes), default=None)
    where = "not in the ranking" if rank is None else f"at rank {rank}"
    return f"{said} The planted class, {' or '.join(sorted(codes))}, stands {where}.".strip()
