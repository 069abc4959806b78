"""The checker tried on the engine's own decoders: every planted fault, and every right combination, over seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pandas as pd

from kvcore.arguments import Parser, whole_number
from kvcore.config import POSITIONS, DecoderConfig, check_choice, check_int
from kvcore.faults import FAULTS, Fault
from kvcore.faults.example import example
from kvcore.setting import STORAGE, Setting
from kvcore.threads import one_thread
from kvcore.units import plural
from kvcore.verification.hooks import Hooks
from kvcore.verification.lab import model
from kvcore.verification.outputs import TokenIds
from kvcore.verification.report import Report
from kvcore.verification.simulate import Simulations
from kvcore.verification.subject import Subject
from kvcore.verification.verify import report

TOKEN_IDS = (3, 10, 17, 24, 31, 6, 13, 20, 27, 2, 9, 16)
"""The lab's tokens: 12, all different."""


def faults_table(
    seeds: Sequence[int],
    hooks: bool = True,
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> pd.DataFrame:
    """A row a fault: in how many seeds it was caught, and in how many its class had rank 1, or at most rank 2.

    Without `hooks` the checker gets full, step and ids only; faults that these cannot show are left out.
    `progress` hears each fault's name before it is tried.
    """
    rows, simulations = [], Simulations()
    for fault in FAULTS.values() if names is None else [FAULTS[name] for name in names]:
        if not hooks and fault.shown_by:
            continue
        progress(fault.name)
        rows.append(_fault_row(fault, seeds, hooks, simulations))
    return pd.DataFrame(rows)


def _report(setting: Setting, fault: Fault | None, hooks: bool, simulations: Simulations) -> Report:
    """What `verify` says of such a decoder; simulations are shared, since the tokens are always the same."""
    made = model(setting, fault, hooks)
    subject = Subject(made.pop("full"), made.pop("step"), TokenIds(list(TOKEN_IDS)))
    return report(subject, Hooks(**made), simulations=simulations)


def _fault_row(fault: Fault, seeds: Sequence[int], hooks: bool, simulations: Simulations) -> dict[str, object]:
    ranks = []
    for seed in seeds:
        told = _report(example(fault, seed), fault, hooks, simulations)
        found = [entry.rank for entry in told.diagnosis if entry.fault_class in (fault.fault_class, *fault.also)]
        ranks.append(None if told.ok else min(found, default=99))
    caught = [rank for rank in ranks if rank is not None]
    return {
        "class": fault.fault_class,
        "fault": fault.name,
        "caught": len(caught),
        "missed": len(ranks) - len(caught),
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


def accepted_table(
    seeds: Sequence[int], hooks: bool = True, progress: Callable[[str], None] = lambda what: None
) -> pd.DataFrame:
    """A row a right combination: in how many seeds it was accepted, and the largest difference found."""
    simulations = Simulations()
    counts: dict[tuple, list[float]] = {}
    accused: dict[tuple, int] = {}
    for seed in seeds:
        progress(f"right combinations, seed {seed}")
        for setting in right_settings(seed):
            key = (setting.decoder.positions, str(setting.windows), setting.n_sinks, setting.storage)
            told = _report(setting, None, hooks, simulations)
            largest = max(check.largest for check in told.checks if check.largest is not None)
            counts.setdefault(key, []).append(largest)
            accused[key] = accused.get(key, 0) + (not told.ok)
    return pd.DataFrame(
        [
            {
                "positions": key[0],
                "windows": key[1],
                "sinks": key[2],
                "storage": key[3],
                "accepted": len(found) - accused[key],
                "accused": accused[key],
                "largest difference": max(found),
                "hooks": "all" if hooks else "none",
            }
            for key, found in counts.items()
        ]
    )


def command(parser: Parser, argv: Sequence[str]) -> int:
    """Print both tables; exit code 0 where every fault is caught and no right combination accused; ranks are shown."""
    parser.option("seeds", "20", "how many seeds, 1 to 100; 20 take a good while")
    parser.option("hooks", "all", "all: every hook is given; none: only full, step and token ids")
    given = parser.parse(argv)
    seeds = range(check_int("--seeds", whole_number(given.seeds), 1, 100))
    hooks = check_choice("--hooks", given.hooks, ("all", "none")) == "all"

    def heard(what: str) -> None:
        print(what, file=sys.stderr, flush=True)

    with one_thread():
        caught, accepted = faults_table(seeds, hooks, progress=heard), accepted_table(seeds, hooks, progress=heard)
    print(f"Planted faults, {plural(len(seeds), 'seed')}, hooks: {given.hooks}\n{caught.to_string(index=False)}")
    print(f"\nRight combinations, hooks: {given.hooks}\n{accepted.to_string(index=False)}")
    missed = int((caught["missed"] > 0).sum())
    late = int((caught["rank 1 or 2"] < caught["caught"]).sum())
    accused = int((accepted["accused"] > 0).sum())
    print(
        f"\n{len(caught) - missed} of {len(caught)} faults caught in every seed, {len(caught) - late} with their class"
        f" at rank 1 or 2 in every such seed; {accused} of {len(accepted)} right combinations accused"
    )
    return int(bool(missed or accused))
