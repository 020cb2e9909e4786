"""One dump of the folders of several machines: each has the ranks that ran there.

Nothing is copied of folders: that of each rank gets a symbolic link, so that the parts may lie anywhere, on disks of
other machines that are mounted here, too. What is in object storage is copied, into the folder of the collected dump.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign import links
from msprobe.messages import Wording, joined, said
from msprobe.paths import StrPath, check_output_folder, make_folder
from msprobe.store import object_storage
from msprobe.store.reader import Dump, open_dumps

StepAndRank = tuple[int | None, int | str]
#: Where copies from object storage lie in a collected dump.
COPIES = ".copies"
_MOST_SHOWN = 4


@dataclass(frozen=True)
class Collected:
    """What was put together. ``missing``: of each step that lacks ranks which others have, or ranks below the largest,
    these.
    """

    folder: Path
    parts: int
    ranks: tuple[int | str, ...]
    steps: tuple[int | None, ...]
    missing: dict[int | None, tuple[int, ...]]


def collect(folders: Sequence[StrPath], output: StrPath) -> Collected:
    """Make ``output`` a dump of symbolic links to the ranks of several folders of dumps.

    A folder is the root of a dump, or of one step; a URL (``s3://bucket/run``) is copied before. Raises PathError for
    folders that hold no dump and for an output that is not empty, InvalidInputError where two have the same rank of the
    same step: all such places at once; see :func:`msprobe.store.object_storage.copy`. Nothing is left there then.
    """
    target = check_output_folder(output)
    if target.exists() and any(target.iterdir()):
        raise PathError(said("collect-folder-not-empty", target))
    was_there = target.exists()
    copies = target / COPIES
    try:
        local = [
            _copied(folder, copies / str(number)) if object_storage.is_url(folder) else folder
            for number, folder in enumerate(folders)
        ]
        return _collect(local, target)
    except BaseException:
        shutil.rmtree(copies, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise


def _copied(url: StrPath, folder: Path) -> Path:
    object_storage.copy(str(url), folder)
    return folder


def _collect(folders: Sequence[StrPath], target: Path) -> Collected:
    dumps = open_dumps(folders)
    there: dict[StepAndRank, list[Dump]] = {}
    for dump in dumps:
        for step in dump.steps:
            for rank in dump.ranks(step):
                there.setdefault((step, rank), []).append(dump)
    _check(there)
    for (step, rank), (dump, *_) in there.items():
        above = make_folder(target if step is None else target / f"step{step}")
        part = dump.folder(step, rank).resolve()
        os.symlink(part, above / (f"rank{rank}" if isinstance(rank, int) else rank), target_is_directory=True)
    links.mark(make_folder(target))
    steps = list(dict.fromkeys(step for step, _ in there))
    ranks = sorted({rank for _, rank in there}, key=lambda rank: (isinstance(rank, str), rank))
    missing = {step: lacking for step in steps if (lacking := _missing(there, step, ranks))}
    return Collected(target, len(there), tuple(ranks), tuple(steps), missing)


def _check(there: dict[StepAndRank, list[Dump]]) -> None:
    """Raises InvalidInputError for ranks that are there twice, and for steps with and without a number."""
    twice: dict[tuple[int | None, tuple[str, ...]], list[int | str]] = {}
    for (step, rank), dumps in there.items():
        if len(dumps) > 1:
            twice.setdefault((step, tuple(str(dump) for dump in dumps)), []).append(rank)
    problems = []
    for (step, paths), ranks in list(twice.items())[:_MOST_SHOWN]:
        where = "" if step is None else said("of-step", step)
        named: str = f'"{paths[0]}"'
        for path in paths[1:]:
            named = said("path-and-in", named, f'"{path}"')
        problems.append(_twice(ranks, where, named))
    if problems:
        more = [said("collect-more-steps", len(twice) - _MOST_SHOWN)] if len(twice) > _MOST_SHOWN else []
        hint = said("collect-give-folders")
        raise InvalidInputError(said("collect-ranks-twice", joined(" ", [*problems, *more, hint])))
    steps = {step for step, _ in there}
    if None in steps and len(steps) > 1:
        raise InvalidInputError(said("step-without-number"))


def _missing(there: Iterable[StepAndRank], step: int | None, ranks: Sequence[int | str]) -> tuple[int, ...]:
    """Numbers up to the largest rank of all steps that one step does not have."""
    own = {rank for other, rank in there if other == step}
    largest = max((rank for rank in ranks if isinstance(rank, int)), default=-1)
    return tuple(rank for rank in range(largest + 1) if rank not in own)


def _twice(ranks: Sequence[int | str], where: str, paths: str) -> str:
    """Of ranks that are there twice: ``ranks 0, 1, 2, ... (8 in all) are in "a" and in "b".``"""
    if list(ranks) == ["rank"]:
        return said("single-folder-at", where, paths)
    if len(ranks) == 1:
        return said("one-rank-at", ranks[0], where, paths)
    shown = ", ".join(map(str, ranks[:_MOST_SHOWN]))
    more = said("numbers-in-all", len(ranks)) if len(ranks) > _MOST_SHOWN else ""
    return said("several-ranks-at", Wording("{}{}", shown, more), where, paths)
