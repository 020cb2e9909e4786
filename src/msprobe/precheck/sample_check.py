"""One check of PyTorch's own samples: the files of :mod:`msprobe.precheck.check`, without a dump."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from msprobe import log
from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.precheck.columns import CANDIDATE
from msprobe.precheck.control_verdict import Control
from msprobe.precheck.job import Task, answer_of
from msprobe.precheck.page import write_summary
from msprobe.precheck.pool import START_SECONDS, Pool, Worker, WorkerFailedError
from msprobe.precheck.ranking import Ranking
from msprobe.precheck.writer import CheckFiles, CheckWriter

#: Asked of a worker instead of a call: the names of all samples.
LIST = "?"


def check_samples(
    task: Task, folder: Path, workers: int, timeout: float, progress: Callable[[str], None] = lambda text: None
) -> tuple[list[Path], Ranking]:
    """Check all samples that the task asks for, and write the files; gives their paths. Raises MsprobeError."""
    control = Control(task, made=True)
    asked = Worker(task)
    try:
        listed = asked.ask(LIST, START_SECONDS)
    except WorkerFailedError as problem:
        raise NotAvailableError(said("samples-not-listed", problem)) from None
    finally:
        asked.stop()
    checked = answer_of(listed)
    keys, (warning, *without) = checked.notes, checked.result
    if warning:
        log.warning(warning)
    control.demand_calls(keys)
    files = CheckFiles.fresh(folder)
    writer = CheckWriter(files, with_control=control.runs)
    writer.begin()
    ranking = Ranking(lambda name: (), _command_of(task), control=control.name, without_samples=tuple(without))
    with Pool([task] * workers, timeout) as pool:
        for number, answer in enumerate(pool.answers([(key, False) for key in keys])):
            progress(said("job-of-jobs", said("samples-checked-so-far"), number + 1, len(keys)))
            is_first = not number and task.candidate.startswith(("auto", "inject"))
            if is_first and answer.details[0][CANDIDATE].startswith("cpu"):
                log.warning(said("no-accelerator"))
            answer = control.settled(answer)
            writer.add(answer.result, answer.details, answer.control)
            ranking.add(control.judge(answer))
    paths = [*files.written, *write_summary(files, ranking, said("samples-title"))]
    return [*paths, *control.compare(files, folder)], ranking


def _command_of(task: Task) -> Callable[[str, str], str]:
    _, _, most = task.dump.split(":")
    words = ["--samples", most, "--candidate", task.candidate, "--standard", task.standard, "--seed", str(task.seed)]
    words += ["--control", task.control] if task.control else []

    def command(key: str, direction: str) -> str:
        group, _, dtype = key.split(".")[1].rpartition("_")
        return shlex.join(["msprobe", "op_check", "--ops", group, "--dtypes", dtype, *words])

    return command
