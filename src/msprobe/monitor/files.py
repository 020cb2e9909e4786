"""The folders of monitored runs: how they are called, what ``run.json`` in them says, and how they are found again."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from msprobe import __version__, log
from msprobe.errors import InvalidInputError, MsprobeError, PathError, reason_of
from msprobe.foreign.json_text import read_json
from msprobe.messages import said
from msprobe.monitor.measurements import MonitorRun
from msprobe.paths import StrPath, check_path_form, make_folder, write_atomically

RUN_FILE = "run.json"
#: Fields of it: the number of the first step that the program gave, and which of the monitors that the process had at
#: once this is, from 0.
FIRST_STEP, MONITOR = "first_step", "monitor"
#: As ``strftime("%b")`` gives them in English, whatever the language of the process.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_STAMP = re.compile(rf"({'|'.join(MONTHS)})(\d\d)_(\d\d)-(\d\d)-(\d\d)", re.ASCII)
_FOLDER = re.compile(rf"(?P<stamp>{_STAMP.pattern})-rank(?P<rank>\d{{1,9}})-(?P<mark>[0-9a-f]{{8}})", re.ASCII)
_MOST_BYTES_OF_RUN_FILE = 64 << 20

#: Month, day, hour, minute, second: a folder's name has no year.
Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder of one run of one rank. ``about``: what its ``run.json`` says; empty for folders of other tools."""

    path: Path
    rank: int
    stamp: str
    mark: str
    about: Mapping[str, Any]

    @property
    def started(self) -> tuple[float, Stamp]:
        """For sorting runs by age: the seconds of ``run.json`` where there is one, else the year of the folder's
        last change with the stamp of its name.
        """
        seconds = self.about.get("started_seconds")
        stamp = stamp_of(self.stamp)
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
            changed = datetime.fromtimestamp(self.path.stat().st_mtime)
            try:
                seconds = datetime(changed.year, *stamp).timestamp()
            except ValueError:  # 29 February of another year
                seconds = changed.timestamp()
        return float(seconds), stamp


def stamp_text(seconds: float) -> str:
    """``Nov23_18-05-09``: this moment, given in seconds since the epoch, in local time."""
    at = time.localtime(seconds)
    return f"{MONTHS[at.tm_mon - 1]}{at.tm_mday:02d}_{at.tm_hour:02d}-{at.tm_min:02d}-{at.tm_sec:02d}"


def stamp_of(text: object, where: str = "timestamp") -> Stamp:
    """Read a stamp as folders have it; ``where``: what the message of the InvalidInputError calls it."""
    match = _STAMP.fullmatch(text) if isinstance(text, str) else None
    if match is not None:
        stamp = (MONTHS.index(match[1]) + 1, int(match[2]), int(match[3]), int(match[4]), int(match[5]))
        try:
            datetime(2000, *stamp)  # a leap year
        except ValueError:
            match = None
        else:
            return stamp
    raise InvalidInputError(said("timestamp-wrong", where, text))


def folder_name(seconds: float, rank: int, mark: str | None = None) -> str:
    """The name of a run's folder. ``mark``: 8 hexadecimal digits, random by default."""
    return f"{stamp_text(seconds)}-rank{rank}-{mark or os.urandom(4).hex()}"


def parse_folder_name(name: str) -> tuple[str, int, str] | None:
    """Stamp, rank and mark of a run's folder; None if it is no such folder."""
    match = _FOLDER.fullmatch(name)
    return None if match is None else (match["stamp"], int(match["rank"]), match["mark"])


def begin(run: MonitorRun) -> MonitorRun:
    """Make the folder of ``run``, or choose the one it goes on in, and write ``run.json``; the run with its folder.

    With ``append_to`` the newest folder of this rank whose stamp lies between the two, both included, is gone on with;
    where there is none, a warning says so and a new one is made. Raises PathError and InvalidInputError.
    """
    earlier = _to_append_to(run) if run.append_to else None
    if earlier is not None:
        _log_resumed(earlier, run)
        return replace(run, folder=str(earlier.path))
    folder = make_folder(os.path.join(run.base, folder_name(run.started, run.rank)))
    _write_about(folder, _about(run))
    return replace(run, folder=str(folder))


def describe(folder: str, **fields: Any) -> None:
    """Add to what ``run.json`` says of the run that goes on in this folder now. Raises PathError."""
    about = dict(_read_about(Path(folder)))
    resumed = about.get("resumed")
    if isinstance(resumed, list) and resumed and isinstance(resumed[-1], dict):
        about["resumed"] = [*resumed[:-1], {**resumed[-1], **fields}]
    else:
        about.update(fields)
    _write_about(Path(folder), about)


def is_resumed(folder: str) -> bool:
    """True if an earlier run has begun this folder."""
    return bool(_read_about(Path(folder)).get("resumed"))


def find_runs(base: StrPath) -> list[RunFolder]:
    """All folders of runs in ``base``, or ``base`` itself if it is one; by rank, then from the oldest to the newest.

    Raises PathError if ``base`` is no readable folder.
    """
    folder = check_path_form(base, "folder")
    if not folder.is_dir():
        kind = said("is-no-folder") if os.path.lexists(folder) else said("is-not-there")
        raise PathError(said("no-monitor-folder", base, kind))
    alone = _run_folder(Path(os.path.abspath(folder)))
    if alone is not None:
        return [replace(alone, path=folder)]
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        raise PathError(said("folder-unreadable", base, reason_of(problem))) from None
    runs = [run for name in names if (run := _run_folder(folder / name)) is not None]
    return sorted(runs, key=lambda run: (run.rank, run.started))


def by_rank(runs: list[RunFolder]) -> dict[int, list[RunFolder]]:
    """The folders of each rank, from the oldest to the newest, whichever run they are of; more than one of a rank are
    named in the log.
    """
    ranks: dict[int, list[RunFolder]] = {}
    for run in runs:
        ranks.setdefault(run.rank, []).append(run)
    for rank, several in ranks.items():
        if len(several) > 1:
            names = ", ".join(run.path.name for run in several)
            log.info(said("monitor-runs-merged", rank, len(several), names))
    return ranks


def is_within(stamp: Stamp, begin_at: Stamp, end_at: Stamp) -> bool:
    """True if the stamp lies in the closed range, which may go over the end of the year."""
    if begin_at <= end_at:
        return begin_at <= stamp <= end_at
    return stamp >= begin_at or stamp <= end_at


def _run_folder(path: Path) -> RunFolder | None:
    parts = parse_folder_name(path.name)
    if parts is None or not path.is_dir():
        return None
    stamp, rank, mark = parts
    return RunFolder(path, rank, stamp, mark, _read_about(path))


def _to_append_to(run: MonitorRun) -> RunFolder | None:
    if len(run.append_to) != 2:
        raise InvalidInputError(said("append-output-wrong", len(run.append_to)))
    first, last = (stamp_of(text, f"append_output[{at}]") for at, text in enumerate(run.append_to))
    folders: list[RunFolder] = []
    if os.path.isdir(run.base):
        folders = [
            folder
            for folder in find_runs(run.base)
            if folder.rank == run.rank and is_within(stamp_of(folder.stamp), first, last)
        ]
    if folders:
        return max(folders, key=lambda folder: folder.started)
    log.warning(said("append-output-finds-nothing", run.base, run.rank, run.append_to[0], run.append_to[1]))
    return None


def _about(run: MonitorRun) -> dict[str, Any]:
    return {
        "started": datetime.fromtimestamp(run.started).astimezone().isoformat(timespec="milliseconds"),
        "started_seconds": run.started,
        "rank": run.rank,
        "world": run.world,
        "framework": run.framework,
        "process": os.getpid(),
        "steps_per_file": run.steps_per_file,
        "config": dict(run.config),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    """Versions of what takes part, as far as it is loaded; nothing is imported for it."""
    versions = {"msprobe": __version__, "python": sys.version.split()[0]}
    for name in ("numpy", "torch", "mindspore", "torch_npu", "deepspeed", "megatron.core", "lightning", "transformers"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            versions[name] = str(version)
    return versions


def _log_resumed(folder: RunFolder, run: MonitorRun) -> None:
    about = dict(folder.about) or _about(run)
    resumed = about.get("resumed")
    entry = {name: value for name, value in _about(run).items() if name != "steps_per_file"}
    about["resumed"] = [*(resumed if isinstance(resumed, list) else []), entry]
    _write_about(folder.path, about)


def _write_about(folder: Path, about: Mapping[str, Any]) -> None:
    text = json.dumps(about, indent=2, ensure_ascii=False, default=str)
    write_atomically(folder / RUN_FILE, text.encode("utf-8", "backslashreplace") + b"\n", fsync=False)


def _read_about(folder: Path) -> Mapping[str, Any]:
    """What ``run.json`` says; empty if there is none or it is not one of ours."""
    try:
        content = read_json(folder / RUN_FILE, most_bytes=_MOST_BYTES_OF_RUN_FILE)
    except MsprobeError:
        return {}
    return content if isinstance(content, dict) else {}


def files_of(folder: StrPath, ending: str = ".csv") -> Iterator[Path]:
    """The regular files of this ending in a folder, by name; nothing if it cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        path = Path(folder, name)
        if name.endswith(ending) and path.is_file():
            yield path
