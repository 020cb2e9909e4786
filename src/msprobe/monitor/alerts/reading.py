"""The alerts of all ranks and runs below a folder, and what of them could not be read: no file is no all-clear."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msprobe.errors import MsprobeError, PathError
from msprobe.foreign.opening import is_regular
from msprobe.messages import said
from msprobe.monitor.alerts.alert import place_in_training
from msprobe.monitor.alerts.analysis import Records, read_alerts, read_details
from msprobe.monitor.alerts.journal import JOURNAL, JudgedRun, read_journal
from msprobe.monitor.alerts.sink import FILE, FOLDER
from msprobe.monitor.files import RunFolder, find_runs, parse_folder_name
from msprobe.monitor.whole_runs import recorded_steps
from msprobe.paths import StrPath


@dataclass(frozen=True, slots=True)
class AlertsRead:
    """``records``: by key, the earliest in the training first, each with the rule, the value, the limit and the text
    where they are known. ``read``: what was judged, a line for each run of a rank; ``unread``: what is not known.
    ``folders``: the runs.
    """

    records: Records
    read: tuple[str, ...]
    unread: tuple[str, ...]
    folders: tuple[RunFolder, ...]

    @property
    def is_whole(self) -> bool:
        """True if of all that is there it is known whether rules have fired."""
        return bool(self.read) and not self.unread


def read_all_alerts(folder: StrPath) -> AlertsRead:
    """``folder``: the output folder of the monitor, that of one run, or ``anomaly_detected``. Raises PathError and
    InvalidInputError.
    """
    path = Path(folder)
    if not path.is_dir():
        kind = said("is-no-folder") if os.path.lexists(path) else said("is-not-there")
        raise PathError(said("no-monitor-folder", folder, kind))
    absolute = Path(os.path.abspath(path))
    is_one_run = parse_folder_name(absolute.name) is not None
    base = absolute.parent if absolute.name == FOLDER or is_one_run else absolute
    detected = base / FOLDER
    if not detected.is_dir() and not is_one_run and _ranks_of_files(path):
        detected = path
    folders = [replace(folder, path=absolute) for folder in find_runs(absolute)] if is_one_run else find_runs(base)
    journals = [_journal_of(folder) for folder in folders]
    ranks = _ranks_of_files(detected)
    without = {
        folder.rank for folder, journal in zip(folders, journals, strict=True) if not isinstance(journal, JudgedRun)
    }
    ranks_of_files = {rank for rank in ranks if rank in without or rank not in {folder.rank for folder in folders}}
    by_key: dict[str, Mapping[str, Any]] = {}
    if ranks_of_files:
        details = read_details(detected)
        by_key = {
            key: {**record, **details.get(key, {})}
            for key, record in read_alerts(detected).items()
            if record.get("rank") in ranks_of_files or not isinstance(record.get("rank"), int)
        }
    read: list[str] = [said("alerts-of-rank", rank, f"{FOLDER}/rank{rank}/{FILE}") for rank in sorted(ranks_of_files)]
    unread: list[str] = []
    for run_folder, journal in zip(folders, journals, strict=True):
        if isinstance(journal, JudgedRun):
            read.append(_judged(run_folder, journal))
            if journal.damaged:
                unread.append(
                    said("damaged-lines-of-run", run_folder.rank, run_folder.path.name, journal.damaged, JOURNAL)
                )
            for alert in journal.alerts:
                key = str(alert.get("key", ""))
                by_key[key if key not in by_key else f"{key} {run_folder.path.name}"] = alert
        elif run_folder.rank not in ranks_of_files:
            unread.append(said("run-not-judged", run_folder.rank, run_folder.path.name, journal))
    if not folders and not ranks_of_files:
        unread.append(said("folder-without-runs", folder, FILE))
    records = dict(sorted(by_key.items(), key=lambda entry: place_in_training(entry[1])))
    return AlertsRead(records, tuple(read), tuple(unread), tuple(folders))


def _journal_of(folder: RunFolder) -> JudgedRun | str:
    """What rules have said of a run, or why that is not known."""
    try:
        journal = read_journal(folder.path)
    except PathError as problem:
        return problem.message.rstrip(".")
    if journal is not None and journal.rules:
        return journal
    config = folder.about.get("config")
    alert = config.get("alert") if isinstance(config, dict) else None
    if isinstance(config, dict) and not (isinstance(alert, dict) and alert.get("rules")):
        return said("no-rule-looked")
    return said("no-journal-of-alerts", JOURNAL)


def _judged(folder: RunFolder, journal: JudgedRun) -> str:
    last = journal.last_step
    if last is None:
        try:
            steps = recorded_steps(folder)
        except (MsprobeError, OSError):
            steps = None
        last = None if steps is None else steps[1]
    until = said("no-step-judged") if last is None else said("steps-judged-up-to", last)
    ended = "" if journal.is_ended else said("run-not-ended")
    return said("run-judged", folder.rank, folder.path.name, ended, until, ", ".join(journal.rules))


def _ranks_of_files(folder: Path) -> set[int]:
    """The ranks that have a file of alerts in ``anomaly_detected``."""
    try:
        names: Sequence[str] = os.listdir(folder)
    except OSError:
        return set()
    ranks = [name for name in names if name.startswith("rank") and name[4:].isdecimal() and len(name) < 14]
    return {int(name[4:]) for name in ranks if is_regular(folder / name / FILE)}
