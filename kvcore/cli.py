"""The command line. Each command imports only what it needs, when it runs.

Exit codes: 0 as it should be; 1 a right path beyond tolerance, evidence that disagrees or a faulty cache; 2 a request
that cannot be met, in one line on stderr that says what is wrong and what is allowed. A fault of the
lab's own while it computes is none of these: it ends in a traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kvcore.arguments import Parser, number, whole_number, whole_numbers
from kvcore.computing import computing

if TYPE_CHECKING:
    from kvcore.experiment import Experiment


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit code."""
    overview = "\n".join(f"  python -m kvcore {name:13} {about}" for name, (about, _) in COMMANDS.items())
    if list(argv[:1]) in (["-h"], ["--help"]):
        print(f"KV Cache Lab without a browser:\n{overview}\nEach takes --help.")
        return 0
    try:
        if not argv or argv[0] not in COMMANDS:
            given = repr(argv[0]) if argv else "nothing"
            raise ValueError(f"{given} is no command; python -m kvcore takes {', '.join(COMMANDS)} or --help")
        about, command = COMMANDS[argv[0]]
        return command(Parser(f"python -m kvcore {argv[0]}", about), argv[1:])
    except ValueError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2


def _run(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore.folder import check_new
    from kvcore.protocol import Protocol

    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to make; it must not exist")
    parser.option("seeds", "7,19,41", "parameters, one model a seed")
    parser.option("length", "24", "tokens, 2 to 256")
    parser.option("chunks", "5,3,7,9", "sizes of at least two chunks that add up to the length")
    parser.option("window", "4", "keys that a query of the windowed paths sees, its own included, 1 or more")
    parser.option("layers", "2", "1 to 6")
    parser.option("d_model", "16", "an even number from 2 to 128")
    parser.option("vocab", "32", "2 to 1024; token i is (7i + 3) mod vocab")
    parser.option("tolerance", "1e-12", "largest difference that counts as equal")
    given = parser.parse(argv)
    protocol = Protocol(
        seeds=whole_numbers(given.seeds),
        length=whole_number(given.length),
        chunk_sizes=whole_numbers(given.chunks),
        window=whole_number(given.window),
        n_layers=whole_number(given.layers),
        d_model=whole_number(given.d_model),
        vocab_size=whole_number(given.vocab),
        tolerance=number(given.tolerance),
    )
    check_new(given.out)

    from kvcore import evidence, experiment
    from kvcore.threads import one_thread

    with computing(), one_thread():
        done = experiment.run(protocol)
    written = evidence.write(done, given.out)
    print("\n".join([f"{protocol.in_words()}.", *_results(done), "", done.reading, f"Evidence is in {written}."]))
    return 0 if done.passed else 1


def _results(done: Experiment) -> list[str]:
    """A block of lines a seed: figure, computed value, verdict, and the recorded value where there is one."""
    lines = []
    for seed, rows in done.to_frame().groupby("seed", sort=False):
        lines.append(f"\nseed {seed}")
        for row in rows.itertuples():
            computed = f"{row.computed:.6g}" if isinstance(row.computed, float) else str(row.computed)
            recorded = "" if row.agrees is None else f"recorded {row.recorded:.6g}: "
            agreement = "" if row.agrees is None else "agrees" if row.agrees else "DISAGREES"
            lines.append(f"  {row.figure:<24}{computed:>14}  {row.verdict:<18}{recorded}{agreement}".rstrip())
    return lines


def _audit(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore.audit import audit
    from kvcore.stored import Disagreement

    parser.add_argument("dir", metavar="DIR", help="a folder that `run --out` made, or the unpacked download")
    try:
        print(audit(parser.parse(argv).dir).summary)
    except Disagreement as found:
        print(f"Disagrees: {' '.join(str(found).split())}")
        return 1
    return 0


def _bench(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore.config import check_int

    parser.option("runs", "5", "runs of each measurement, 5 to 1000; a ratio is their median")
    parser.add_argument("--quick", action="store_true", help="only the smallest setting, in about a second")
    parser.add_argument("--json", action="store_true", help="a list of objects instead of text")
    given = parser.parse(argv)
    runs = check_int("--runs", whole_number(given.runs), 5, 1000)

    from kvcore import bench

    if given.json:
        print(json.dumps([ratio.to_json() for ratio in bench.bench(runs, given.quick)], indent=1))
        return 0
    print(bench.__doc__)
    for ratio in bench.bench(runs, given.quick):
        print(ratio.line, flush=True)
    return 0


def _show(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore.show import show

    return show(parser, argv)


def _verify(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore import verify_command

    parser.description = verify_command.ABOUT
    return verify_command.command(parser, argv)


def _selfcheck(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore.verification.selfcheck import command

    return command(parser, argv)


def _architectures(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore.integrations.record import command

    return command(parser, argv)


def _size(parser: Parser, argv: Sequence[str]) -> int:
    from kvcore import size_command

    parser.description = size_command.ABOUT
    return size_command.command(parser, argv)


COMMANDS: dict[str, tuple[str, Callable[[Parser, Sequence[str]], int]]] = {
    "run": ("run the recorded experiment and write its evidence", _run),
    "audit": ("check a folder of evidence without the decoder", _audit),
    "bench": ("measure ratios of run times", _bench),
    "show": ("print the numbers of one page", _show),
    "verify": ("check somebody's cached decoding against their full forward", _verify),
    "selfcheck": ("try verify on every planted fault and every right combination", _selfcheck),
    "size": ("what the K/V cache of a published model takes", _size),
    "architectures": ("verify small models of published architectures, and print the table", _architectures),
}
