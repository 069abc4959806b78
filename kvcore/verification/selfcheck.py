"""The checker tried on the engine's own decoders: every planted fault, and every right combination, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pandas as pd

from kvcore.config import POSITIONS, DecoderConfig
from kvcore.faults import FAULTS, Fault
from kvcore.faults.example import example
from kvcore.setting import STORAGE, Setting
from kvcore.verification.lab import model
from kvcore.verification.verify import verify

TOKEN_IDS = (3, 10, 17, 24, 31, 6, 13, 20, 27, 2, 9, 16, 23, 30)
"""The lab's tokens: 14, all different."""

NEEDS_HOOKS = {"C7": "reuse", "C8": "crop", "branches_share_a_buffer": "copy or in_place"}
"""Classes and faults that full and step alone cannot show, and the hook that shows them."""


def hook_needed(fault: Fault) -> str:
    return NEEDS_HOOKS.get(fault.name) or NEEDS_HOOKS.get(fault.fault_class, "")


def faults_table(
    seeds: Sequence[int], hooks: bool = True, names: Sequence[str] | None = None, told: Callable[[str], None] = str
) -> pd.DataFrame:
    """A row a fault: in how many seeds it was caught, and in how many its class had rank 1, or at most rank 2.

    Without `hooks` the checker gets full, step and ids only; faults that these cannot show are left out.
    `told` hears each fault's name before it is tried.
    """
    rows = []
    for fault in FAULTS.values() if names is None else [FAULTS[name] for name in names]:
        if not hooks and hook_needed(fault):
            continue
        told(fault.name)
        rows.append(_fault_row(fault, seeds, hooks))
    return pd.DataFrame(rows)


def _fault_row(fault: Fault, seeds: Sequence[int], hooks: bool) -> dict[str, object]:
    ranks = []
    for seed in seeds:
        report = verify(token_ids=list(TOKEN_IDS), **model(example(fault, seed), fault, hooks))
        found = [entry.rank for entry in report.diagnosis if entry.fault_class in (fault.fault_class, *fault.also)]
        ranks.append(None if report.ok else min(found, default=99))
    caught = [rank for rank in ranks if rank is not None]
    return {
        "class": fault.fault_class,
        "fault": fault.name,
        "caught": f"{len(caught)} of {len(ranks)}",
        "rank 1": sum(rank == 1 for rank in caught),
        "rank 1 or 2": sum(rank <= 2 for rank in caught),
        "hooks": "all" if hooks else "none",
    }


def right_settings(seed: int) -> Iterator[Setting]:
    """Every scheme of positions with every pattern of windows, sinks and storage that go together."""
    patterns: tuple[tuple[int | None, ...], ...] = ((None,), (4,), (4, 4, None))
    for positions, windows, n_sinks, storage in product(POSITIONS, patterns, (0, 2), STORAGE):
        ring = storage.startswith("ring")
        if (ring or n_sinks or storage == "sliding") and windows == (None,):
            continue  # nothing is evicted, so it is the growing cache again
        if ring and n_sinks:
            continue
        decoder = DecoderConfig(seed=seed, n_layers=3, n_heads=4, n_kv_heads=2, positions=positions)
        capacity = 64 if storage == "preallocated" else 8 if ring else None
        yield Setting(decoder, windows, n_sinks, storage, capacity)


def accepted_table(seeds: Sequence[int], hooks: bool = True, told: Callable[[str], None] = str) -> pd.DataFrame:
    """A row a right combination: in how many seeds it was accepted, and the largest difference found."""
    counts: dict[tuple, list[float]] = {}
    accused: dict[tuple, int] = {}
    for seed in seeds:
        told(f"right combinations, seed {seed}")
        for setting in right_settings(seed):
            key = (setting.decoder.positions, str(setting.windows), setting.n_sinks, setting.storage)
            report = verify(token_ids=list(TOKEN_IDS), **model(setting, None, hooks))
            told_differences = [check.largest for check in report.checks if check.largest is not None and not check.note.startswith("the old")]
            counts.setdefault(key, []).append(max(told_differences))
            accused[key] = accused.get(key, 0) + (not report.ok)
    return pd.DataFrame(
        [
            {
                "positions": key[0],
                "windows": key[1],
                "sinks": key[2],
                "storage": key[3],
                "accepted": f"{len(found) - accused[key]} of {len(found)}",
                "largest difference": max(found),
                "hooks": "all" if hooks else "none",
            }
            for key, found in counts.items()
        ]
    )
