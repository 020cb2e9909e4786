"""Names of the files and folders of a dump, and what is done with files of an earlier run."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.paths import StrPath

DUMP_FILE = "dump.json"
DEBUG_FILE = "debug.json"
#: Behind the name of one of these two that is compressed.
COMPRESSED = ".zst"
STACK_FILE = "stack.json"
CONSTRUCT_FILE = "construct.json"
ROWS_FILE = "dump_rows.bin"
DEBUG_ROWS_FILE = "debug_rows.bin"
TENSOR_FOLDER = "dump_tensor_data"
# Where a recording has two dumps (MindSpore): what ran step by step, and what was compiled.
STEP_BY_STEP = "pynative"
COMPILED = "graph"
ERROR_FILE = "dump_error_info.log"
#: Of task free_benchmark, beside an empty dump.
BENCHMARK_FILES = ("free_benchmark.csv", "free_benchmark_details.csv")

FileKind = Literal["dump", "debug"]
Existing = Literal["clean", "overwrite", "refuse"]


class DumpExistsError(PathError):
    """There is a dump of an earlier run, and it was asked to refuse that (``existing``)."""


_JOURNAL = re.compile(r"(dump|debug)-\d+-[0-9a-f]+\.journal")
_STEP = re.compile(r"step(\d+)")
# No process of Linux has this number or a greater one.
_PROCESS_NUMBERS = 1 << 22
_TEMPORARY = re.compile(r"\.msprobe-\d+-\d+\.tmp")
# Processes on several machines may share a folder and a process number, so the numbers begin anywhere.
_generations = itertools.count(int.from_bytes(os.urandom(6), "big") | 1)
_KINDS: dict[str, FileKind] = {
    DUMP_FILE: "dump",
    DEBUG_FILE: "debug",
    DUMP_FILE + COMPRESSED: "dump",
    DEBUG_FILE + COMPRESSED: "debug",
}
#: The files that hold records, by whatever names.
MAIN_FILES = tuple(_KINDS)
_NAMED_FILES = (*MAIN_FILES, STACK_FILE, CONSTRUCT_FILE, ROWS_FILE, DEBUG_ROWS_FILE)


def kind_of(name: str) -> FileKind | None:
    """What the file of this name holds; None for a name that no file of records has."""
    return _KINDS.get(name)


def main_file(folder: Path, kind: FileKind) -> Path:
    """The file of records in a folder: the compressed one where that alone is there."""
    plain = folder / (DUMP_FILE if kind == "dump" else DEBUG_FILE)
    compressed = plain.with_name(plain.name + COMPRESSED)
    return compressed if not os.path.lexists(plain) and os.path.lexists(compressed) else plain


def step_folder(dump_path: StrPath, step: int) -> Path:
    """The folder of one step: ``dump_path/step{N}``."""
    return Path(dump_path) / f"step{step}"


def rank_folder(step_folder: StrPath, rank: int | None) -> Path:
    """The folder of one rank in a step folder: ``rank{R}``, or ``rank`` where there are no ranks."""
    return Path(step_folder) / ("rank" if rank is None else f"rank{rank}")


def step_folders(dump_path: StrPath) -> list[tuple[int, Path]]:
    """The folders of steps in ``dump_path``, of whatever run, with their numbers; no links. Raises OSError."""
    with os.scandir(dump_path) as entries:
        return sorted(
            (int(match[1]), Path(entry.path))
            for entry in entries
            if (match := _STEP.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
        )


def steps_of_rank(dump_path: StrPath, rank: int | None) -> list[int]:
    """The steps, ascending, of which there is a dump of this rank, of whatever run. Raises OSError."""
    with os.scandir(dump_path) as entries:
        steps = [(int(match[1]), entry.path) for entry in entries if (match := _STEP.fullmatch(entry.name))]
    return sorted(step for step, path in steps if _has_dump(rank_folder(path, rank)))


def _has_dump(folder: Path) -> bool:
    try:
        return any(os.path.lexists(folder / name) for name in MAIN_FILES) or bool(journals(folder))
    except OSError:
        return False


def process_folder(step_folder: StrPath, number: int = 0) -> Path:
    """The folder of this process in a step folder, for when another process has the rank's: ``proc{pid}``.

    ``number`` above 0: for when a process of the same number has that one, too, in another container.
    """
    return Path(step_folder) / f"proc{os.getpid() + number * _PROCESS_NUMBERS}"


def new_journal(folder: StrPath, kind: FileKind) -> tuple[str, int]:
    """A name for a journal of this process in ``folder``, and the generation in it, which no other has:
    ``dump-{pid}-{generation}.journal`` or ``debug-...``.
    """
    generation = next(_generations)
    return f"{os.fspath(folder)}/{kind}-{os.getpid()}-{generation:x}.journal", generation


def is_journal(name: str) -> bool:
    return _JOURNAL.fullmatch(name) is not None


def journals(folder: StrPath) -> list[Path]:
    """The journals in ``folder``, each left by a run that has not finished this step (or never will)."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if is_journal(entry.name) and _is_file(entry)]
    return [Path(folder) / name for name in sorted(names)]


def old_files(folder: StrPath) -> list[Path]:
    """Files of a dump in ``folder``, known by their names, tensor files included; links are named, never
    followed.

    A folder that does not exist has none.
    """
    paths: list[Path] = []
    base = Path(folder)
    with contextlib.suppress(FileNotFoundError), os.scandir(base) as entries:
        for entry in entries:
            if entry.name == TENSOR_FOLDER and entry.is_dir(follow_symlinks=False):
                with os.scandir(entry.path) as values:
                    paths.extend(Path(value.path) for value in values if not value.is_dir(follow_symlinks=False))
            elif _is_ours(entry.name) and not entry.is_dir(follow_symlinks=False):
                paths.append(Path(entry.path))
    return sorted(paths)


def prepare(folder: Path, existing: Existing, ours: str) -> None:
    """Deal with what an earlier run left in ``folder``, which this process has claimed with its journal ``ours``.

    ``clean`` removes the files that are ours by name and nothing else, ``overwrite`` does so but leaves
    tensor files (old ones stay among the new ones), ``refuse`` raises DumpExistsError if there are any. Raises
    PathError where a file cannot be removed.
    """
    paths = [path for path in old_files(folder) if path.name != ours]
    if existing == "overwrite":
        paths = [path for path in paths if path.parent == folder]
    if not paths:
        return
    if existing == "refuse":
        raise DumpExistsError(said("dump-exists", folder, len(paths), paths[0].name))
    if folder.is_symlink():
        raise PathError(said("dump-folder-is-link", folder))
    _remove(paths)


def remove(folder: Path) -> bool:
    """Remove the files of a dump in ``folder``, and the folder and its step's where they are empty then.

    False if there were none. Raises PathError where a file cannot be removed.
    """
    # First what makes a dump of the rest: an interruption leaves nothing that looks whole.
    files = sorted(old_files(folder), key=lambda path: path.name not in MAIN_FILES)
    if not files:
        return False
    _remove(files)
    remove_empty(folder)
    return True


def remove_empty(folder: Path) -> None:
    """Remove the folder of a rank, that of its tensors and that of its step, as far as they are empty."""
    for empty in (folder / TENSOR_FOLDER, folder, folder.parent):
        with contextlib.suppress(OSError):
            empty.rmdir()


def _remove(files: Iterable[Path]) -> None:
    for path in files:
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        except OSError as problem:
            raise PathError(said("old-dump-not-removed", path, problem.strerror)) from problem


def is_of_dump(name: str) -> bool:
    """Whether a file of a dump has this name: not one of tensors, and none that is half written."""
    return name in (*_NAMED_FILES, *BENCHMARK_FILES, ERROR_FILE) or is_journal(name)


def _is_ours(name: str) -> bool:
    return is_of_dump(name) or _TEMPORARY.fullmatch(name) is not None


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)


def ranks_written_since(dump_path: StrPath, since: float, below: str = "") -> Iterator[str]:
    """The names of ranks' folders, of any step, in which a file was written at or after ``since`` (seconds since the
    epoch). Other processes may create and remove folders meanwhile. ``below``: "*/" for those of processes that are
    no ranks.
    """
    # ``Path.glob`` raises where a folder is removed while it looks.
    for folder in glob.iglob(f"{glob.escape(os.fspath(dump_path))}/{below}step*/rank*"):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            # The clock of a file system ticks more slowly.
            if any(entry.stat().st_mtime >= since - 2 for entry in entries):
                yield os.path.basename(folder)
