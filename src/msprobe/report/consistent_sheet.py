"""The sheet of a training against its inference engine: the columns of the form 26.2."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msprobe import log
from msprobe.compare.problems import DamagedDataError, InvalidArgumentError, TaskMismatchError
from msprobe.compare.sides import cut_short, files_of, is_folder_pair, open_pair, pair_ranks
from msprobe.compare.table import header_of
from msprobe.compare.training_inference import (
    BACKENDS,
    DumpedTensor,
    PlacePair,
    compare_training,
    joint_statistics,
)
from msprobe.coverage import Coverage, NotRead, write
from msprobe.errors import MsprobeError
from msprobe.messages import joined, said, translated
from msprobe.paths import StrPath, check_output_folder, make_folder
from msprobe.report.formats import sheet_format
from msprobe.report.workbook import Cell, Sheet

_NOTHING = "N/A"
_WORDS = {True: "True", False: "False", None: _NOTHING}


@dataclass(frozen=True)
class WrittenSheets:
    """``written``: the sheets, ``coverage``: what was compared and what not."""

    written: list[Path]
    coverage: Coverage


def consistent_check(
    training: StrPath,
    inference: StrPath,
    output: StrPath,
    backend: str | None,
    file_format: str = "csv",
) -> WrittenSheets:
    """Compare two dumps or two folders of ranks, and write a sheet for each rank.

    ``backend`` is what the training runs on, ``fsdp`` or ``megatron``; ``file_format`` is the word of a
    format of sheets. Raises InvalidArgumentError for another backend, and what comparing raises; a rank that cannot
    be compared is reported where there are others.
    """
    known = next((name for name in BACKENDS if name == backend), None)
    if known is None:
        raise InvalidArgumentError(said("consistent-check-backend", joined(" or ", BACKENDS), backend))
    folder = check_output_folder(output)
    missing: list[NotRead] = []
    if not is_folder_pair(training, inference, ("-tp", "-gp")):
        return _checked([_compare(training, inference, folder, known, file_format, "", missing)], missing, folder)
    written: list[Path] = []
    first: MsprobeError | None = None
    pairs, lone = pair_ranks(Path(training), Path(inference), strict=False)
    missing += [NotRead(name, said("only-in", f'"{side}"')) for name, side in lone]
    for pair in pairs:
        try:
            ours, theirs = files_of(pair.candidate), files_of(pair.reference)
            if "dump" not in ours or "dump" not in theirs:
                raise DamagedDataError(said("pair-without-dump-json", pair.candidate, pair.reference))
            sheets = _compare(ours["dump"], theirs["dump"], folder, known, file_format, f"_{pair.name}", missing)
            written.append(sheets)
        except (DamagedDataError, TaskMismatchError) as problem:
            log.error(said("rank-not-compared", pair.name, problem.message))
            missing.append(NotRead(pair.name, problem.message))
            first = first or problem
    if first is not None and not written:
        raise first
    return _checked(written, missing, folder)


def _checked(written: list[Path], missing: list[NotRead], folder: Path) -> WrittenSheets:
    covered = Coverage({"ranks": len(written)}, tuple(missing))
    if missing:
        path = write(covered, folder / f"coverage_{time.strftime('%Y%m%d%H%M%S')}.json")
        log.warning(said("all-not-read-in-file", covered.sentence(), path))
    return WrittenSheets(written, covered)


def _compare(
    training: StrPath,
    inference: StrPath,
    folder: Path,
    backend: Literal["fsdp", "megatron"],
    file_format: str,
    rank: str,
    missing: list[NotRead],
) -> Path:
    kind = sheet_format(file_format)
    ours, theirs = open_pair(training, inference)
    try:
        rows = [_row(pair, kind.between) for pair in compare_training(ours, theirs, backend)]
        missing += cut_short(ours, theirs)
    finally:
        ours.close()
        theirs.close()
    matched = sum(_NOTHING not in row[:2] for row in rows)
    mine = sum(row[0] != _NOTHING for row in rows)
    if rows and not matched:
        log.warning(said("no-training-tensor-paired"))
    header = header_of("tensor", "26.2", with_stack=False)
    columns: list[Sequence[Cell]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in header]
    path = make_folder(folder) / kind.file.format(part=f"{rank}_{time.strftime('%Y%m%d%H%M%S')}")
    kind.render()(path, [Sheet("Sheet", header, [columns], len(rows))])
    log.info(said("rollout-asks-more"))
    log.info(said("training-tensors-paired", matched, mine, path))
    return path


def _row(pair: PlacePair, between: str) -> tuple[Cell, ...]:
    sides = (pair.candidate, pair.reference)
    grads = [{piece.requires_grad for piece in pieces} for pieces in sides]
    words = [_WORDS[next(iter(kinds))] if len(kinds) == 1 else _NOTHING for kinds in grads]
    return (
        *(between.join(piece.name for piece in pieces) or _NOTHING for pieces in sides),
        *(_word_of([piece.dtype for piece in pieces], between) for pieces in sides),
        *(_word_of([str(list(piece.shape)) for piece in pieces], between) for pieces in sides),
        *words,
        *pair.measures.values,
        *(value for pieces in sides for value in _statistics(pieces)),
        _NOTHING if _NOTHING in words else str(words[0] == words[1]),
        pair.result,
        json.dumps(list(map(translated, pair.messages)), ensure_ascii=False),
        str([between.join(piece.data_name or "-1" for piece in pieces) or _NOTHING for pieces in sides]),
    )


def _word_of(words: list[str], between: str) -> str:
    """One word where all are the same."""
    return words[0] if len(set(words)) == 1 else between.join(words) or _NOTHING


def _statistics(pieces: tuple[DumpedTensor, ...]) -> list[Cell]:
    return [_NOTHING if not pieces else value if value is not None else "None" for value in joint_statistics(pieces)]
