"""For test suites of models with a cache: one assertion whose failure message is the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvcore.verification.report import Report
from kvcore.verification.verify import verify


def assert_cache_equivalent(
    full: Callable[[Any], Any], step: Callable[[Any, Any], tuple[Any, Any]], token_ids: Sequence[int], **hooks: Any
) -> Report:
    """Fail with the report unless cached decoding equals the full forward at every position.

    Takes what `kvcore.verify` takes, and gives its report where all is well.
    """
    __tracebackhide__ = True
    report = verify(full, step, token_ids, **hooks)
    if not report.ok:
        raise AssertionError(f"cached decoding disagrees with the full forward\n{report}")
    return report
