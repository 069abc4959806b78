"""Evidence checked against itself: figures from the arrays, counts from formulas, hashes, and the protocol.

The decoder is not run and PyTorch is not imported. Files are somebody else's and may be damaged or
hostile: whatever is wrong with them ends in one `Disagreement`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvcore.evidence import FILES, HASHED
from kvcore.measures import (
    DIFFERENCES,
    FAILURES,
    FIGURES,
    KEYS,
    Number,
    array_shapes,
    closed_form,
    differences,
    payload_bytes,
    verdict,
)
from kvcore.protocol import Protocol
from kvcore.provenance import engine_sha256
from kvcore.reading import read_experiment
from kvcore.stored import Disagreement, changed_files, check_files, read_csv, read_json, read_manifest
from kvcore.stored_arrays import read_arrays


class Report(NamedTuple):
    """What an audit that found no disagreement has to say."""

    protocol: Protocol
    beyond: tuple[str, ...]  # "seed 7: prefix_error 3.3e-16 is beyond tolerance"; consistent, so no disagreement
    reading: str
    same_engine: bool  # whether the sources installed here are those that computed the evidence

    @property
    def summary(self) -> str:
        n_seeds = len(self.protocol.seeds)
        return "\n".join(
            [
                f"Agrees: {n_seeds * len(FIGURES)} figures of {n_seeds} seed(s) follow from the stored arrays and"
                f" formulas; hashes and protocol fit ({self.protocol.in_words()}).",
                self.reading,
                *(f"Consistently recorded, yet {line}." for line in self.beyond),
                "The engine's sources are those installed here."
                if self.same_engine
                else "Note: the evidence was computed by other sources of the engine than those installed here.",
            ]
        )


def audit(directory: str | os.PathLike) -> Report:
    """Check one folder of evidence.

    Raises ValueError where there is no such folder, and Disagreement, naming the first file or figure
    that disagrees, for everything else.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ValueError(f"{str(directory)!r} is no folder; give one that `python -m kvcore run --out` has written")
    check_files(folder, FILES)
    changed = changed_files(folder, HASHED)
    try:
        report = _check(folder)
    except Disagreement as found:
        also = f" (changed since it was hashed: {', '.join(changed)})" if changed else ""
        raise Disagreement(f"{found}{also}") from None
    if changed:
        raise Disagreement(f"{changed[0]}: its SHA-256 is not the one in sha256.json")
    return report


def _check(folder: Path) -> Report:
    manifest = read_manifest(folder)
    protocol = manifest.protocol
    results = _checked_results(read_json(folder, "results.json"), protocol)
    shapes = {f"s{seed}_{name}": shape for seed in protocol.seeds for name, shape in array_shapes(protocol).items()}
    arrays = read_arrays(folder, "arrays.npz", shapes)
    for result in results:
        seed = result["seed"]
        mine = {name: arrays[f"s{seed}_{name}"] for name in array_shapes(protocol)}
        _check_arrays(mine, protocol, seed)
        _check_figures(result, mine, protocol)
    read_csv(folder, "results.csv", results)
    beyond = tuple(
        f"seed {result['seed']}: {figure.key} {result[figure.key]:.2g} is {word}"
        for result in results
        for figure in FIGURES
        if (word := verdict(figure, result[figure.key], protocol)) in FAILURES
    )
    same = manifest.engine_sha256 == engine_sha256()
    return Report(protocol, beyond, read_experiment(protocol, results), same)


def _checked_results(results: object, protocol: Protocol) -> list[dict[str, Number]]:
    """`results.json` as one object a seed of the protocol, with every key and numbers of the right kind."""
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise Disagreement("results.json: it must be a list with one object a seed")
    for result in results:
        for key in (*KEYS, *result):
            if key not in result or key not in KEYS:
                fault = "is missing" if key not in result else "is no figure"
                raise Disagreement(f"results.json: {key[:40]!r} {fault}")
        for key in KEYS:
            kinds = (int, float) if key in {figure.key for figure in DIFFERENCES} else (int,)
            if type(result[key]) not in kinds:
                raise Disagreement(f"results.json: {key} is not a {'number' if float in kinds else 'whole number'}")
    seeds = tuple(result["seed"] for result in results)
    if seeds != protocol.seeds:
        raise Disagreement("results.json: its seeds are not those of the protocol in manifest.json, in that order")
    return results


def _check_figures(result: Mapping[str, Number], arrays: Mapping[str, np.ndarray], protocol: Protocol) -> None:
    """Every figure exactly: the largest difference of the same arrays is the same number on every machine."""
    expected = differences(protocol, arrays) | closed_form(protocol)
    for figure in FIGURES:
        recorded, found = result[figure.key], expected[figure.key]
        if recorded != found:
            source = (
                f"s{result['seed']}_{figure.rows} and _{figure.reference} give" if figure.rows else "the formula is"
            )
            raise Disagreement(
                f"results.json: seed {result['seed']}: {figure.key} is {recorded!r:.40}, {source} {found}"
            )


def _check_arrays(arrays: Mapping[str, np.ndarray], protocol: Protocol, seed: int) -> None:
    """The laws that one seed's arrays must obey under this protocol, whatever the figures say."""

    def demand(holds: bool | np.bool_, name: str, law: str) -> None:
        if not holds:
            raise Disagreement(f"arrays.npz: s{seed}_{name} {law}")

    length, close = protocol.length, protocol.decoder(seed).tolerance
    demand(np.array_equal(arrays["tokens"], protocol.token_ids), "tokens", "are not (7i + 3) mod the vocabulary")
    for name, array in arrays.items():
        if name not in ("tokens", "cache_bytes", "attention"):
            demand(bool((np.abs(array) <= 1).all()), name, "holds a hidden state outside −1 to 1")
    good = arrays["chunked"][protocol.second_chunk]
    demand(np.array_equal(arrays["good"], good), "good", f"is not the second chunk's rows of s{seed}_chunked")
    before_window = slice(0, protocol.window)
    gap = np.abs(arrays["sliding"][before_window] - arrays["full"][before_window]).max()
    demand(
        gap <= close,
        "sliding",
        f"differs from s{seed}_full where the window of {protocol.window} still reaches back to 0",
    )
    weights = arrays["attention"]
    demand(bool((weights >= 0).all()), "attention", "holds a negative weight")
    demand(not np.triu(weights, 1).any(), "attention", "reads the future")
    demand(np.abs(weights.sum(axis=1) - 1).max() <= close, "attention", "has a row that does not sum to 1")
    payload = [(kept, payload_bytes(protocol, kept)) for kept in range(1, length + 1)]
    demand(np.array_equal(arrays["cache_bytes"], payload), "cache_bytes", "are not what the formula gives")
