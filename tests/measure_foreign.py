"""How `verify` does on decoders that were written without a look at the engine: `python -m tests.measure_foreign`.

Three arguments only: full, step and token ids. Prints what was missed, who was accused, and at which rank
the right class stands; an argument gives another seed.
"""

import sys
from collections import Counter

import kvcore
from kvcore.threads import one_thread
from tests import foreign_numpy, foreign_torch


def outcome(case, seed):
    """(report, rank of the right class or None) of one case."""
    full, step, token_ids = case.make(seed)
    report = kvcore.verify(full, step, token_ids)
    ranks = [entry.rank for entry in report.diagnosis if entry.fault_class == case.fault_class]
    return report, min(ranks, default=None)


def main(seed):
    for module in (foreign_numpy, foreign_torch):
        counts, by_class = Counter(), {}
        for case in module.CASES:
            report, rank = outcome(case, seed)
            if case.fault_class is None:
                counts["right", report.ok] += 1
                if not report.ok:
                    print(f"ACCUSED {case.name}: {report.verdict}")
                continue
            counts["faulty", not report.ok] += 1
            near = rank is not None and rank <= 2
            counts["near", near] += 1
            found = by_class.setdefault(case.fault_class, Counter())
            found[near] += 1
            if report.ok or not near:
                best = ", ".join(f"{entry.rank} {entry.fault_class}" for entry in report.diagnosis[:4])
                print(f"{'MISSED' if report.ok else f'rank {rank}'} {case.name} ({case.fault_class}): {best}")
        n_right, n_faulty = (
            sum(n for (kind, _), n in counts.items() if kind == wanted) for wanted in ("right", "faulty")
        )
        print(
            f"{module.__name__}, seed {seed}: {counts['right', True]} of {n_right} right decoders accepted,"
            f" {counts['faulty', True]} of {n_faulty} faulty ones caught, the right class at rank 1 or 2 in"
            f" {counts['near', True]}"
        )
        print("  " + ", ".join(f"{code} {found[True]}/{found.total()}" for code, found in sorted(by_class.items())))


if __name__ == "__main__":
    with one_thread():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
