"""One check of PyTorch's own samples: the files of :mod:`msprobe.precheck.check`, without a dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msprobe.errors import NotAvailableError
from msprobe.precheck.job import Task
from msprobe.precheck.pool import START_SECONDS, Pool, Worker, WorkerFailedError
from msprobe.precheck.ranking import Ranking
from msprobe.precheck.writer import CheckFiles, CheckWriter

#: Asked of a worker instead of a call: the names of all samples.
LIST = "?"


def check_samples(
    task: Task, folder: Path, workers: int, timeout: float, tell: Callable[[str], None] = lambda text: None
) -> tuple[CheckFiles, Ranking]:
    """Check all samples that the task asks for, and write the files. Raises MsprobeError."""
    asked = Worker(task)
    try:
        keys = asked.ask(LIST, START_SECONDS)["notes"]
    except WorkerFailedError as problem:
        raise NotAvailableError(f"the samples cannot be listed: {problem}") from None
    finally:
        asked.stop()
    files = CheckFiles.fresh(folder)
    writer = CheckWriter(files)
    writer.begin()
    ranking = Ranking(lambda name: (), _command_of(task))
    for number, answer in enumerate(Pool([task] * workers, timeout).answers([(key, False) for key in keys])):
        tell(f"samples, {number + 1} of {len(keys)}")
        writer.add(answer.result, answer.details)
        ranking.add(answer)
    return files, ranking


def _command_of(task: Task) -> Callable[[str, str], str]:
    _, dtypes, most = task.dump.split(":")

    def command(key: str, direction: str) -> str:
        group = key.split(".")[1].rpartition("_")[0]
        return f"msprobe op_check --ops {group} --dtypes {dtypes} --samples {most} --candidate '{task.candidate}'"

    return command
