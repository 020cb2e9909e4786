"""The online check: what ranks send is checked step by step while they train.

Each call is judged as by ``--candidate recorded``: nothing is run on the training's device again, what that device gave
is held against the reference. With a control, that is run here, and the verdict is one of three parties.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from msprobe import log
from msprobe.errors import MsprobeError, NotAvailableError, PathError
from msprobe.messages import said
from msprobe.paths import write_atomically
from msprobe.precheck import precision_compare
from msprobe.precheck.columns import BLANK, DETAILS_HEADER, RESULT_HEADER, lines_of
from msprobe.precheck.control_verdict import beside_control
from msprobe.precheck.executors import RECORDED
from msprobe.precheck.job import Answer, Task, skipped
from msprobe.precheck.online.arriving import Arriving
from msprobe.precheck.online.shared_folder import FolderReceiver
from msprobe.precheck.online.spool import ReceivedStep, Spool
from msprobe.precheck.online.tcp_receiver import TcpReceiver
from msprobe.precheck.online.tls import context_for
from msprobe.precheck.pool import Pool, tasks_for
from msprobe.precheck.requests import Requests, open_requests
from msprobe.precheck.settings import Settings
from msprobe.precheck.writer import BOM, CheckFiles, CheckWriter, time_stamp

STEP = "Step"
_NOT_JUDGED = ("SKIP", BLANK, "")
# Each step that is open, and each connection, takes one or two.
_WANTED_FILES = 16384


@dataclass(frozen=True)
class OnlineRequest:
    """What is asked for. ``senders``: the check ends when so many ranks have ended. ``idle``: seconds without a word
    of anybody, after which it ends as well.
    """

    output: str
    task: Task
    settings: Settings
    workers: int = 1
    senders: int = 1
    idle: float = 600.0
    timeout: float = 600.0


@dataclass
class OnlineReport:
    """What came and what was found: the files of each rank, and how many calls of it failed in each step."""

    files: dict[int, CheckFiles] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)
    #: (rank, step, call) of those that failed, in the order in which they came.
    failed: list[tuple[int, int, str]] = field(default_factory=list)
    checked: int = 0
    #: How many of the calls that were checked have a verdict: others were left out, with the reason in their row.
    judged: int = 0
    #: (rank, step) of those of which no call could be checked.
    unchecked: list[tuple[int, int]] = field(default_factory=list)


def run_online(request: OnlineRequest, progress: Callable[[str], None] = lambda text: None) -> OnlineReport:
    """Listen, check what comes, and write the files of each rank, until all have ended. Raises MsprobeError."""
    settings = request.settings
    receiver: TcpReceiver | FolderReceiver
    if settings.address.nfs_path:
        receiver = FolderReceiver(settings.address.nfs_path, request.senders, request.idle, settings.ranks)
        log.info(said("online-waits-for-ranks", settings.address.nfs_path))
    else:
        tls = context_for(settings.address.tls_path, "server")
        address = settings.address
        receiver = TcpReceiver(address.host, address.port, tls, request.senders, request.idle, ranks=settings.ranks)
        log.info(said("online-listens", address.host, receiver.port, said("with-tls") if tls else ""))
        if tls is None and not settings.address.host.startswith("127.") and settings.address.host != "localhost":
            log.warning(said("online-without-tls"))
    task = replace(request.task, dump="", candidate=RECORDED, decimals=settings.decimals)
    workers = Pool(tasks_for(task, (RECORDED,), request.workers), request.timeout)
    session = _Session(request, task, workers)
    _allow_more_files()
    try:
        # They import their framework while the trainings start.
        workers.begin()
        with workers, tempfile.TemporaryDirectory(prefix="msprobe-online-", ignore_cleanup_errors=True) as spool:
            arriving = Arriving(
                Spool(Path(spool), settings.ranks, receiver.refuse).steps(receiver.frames()), Path(spool)
            )
            for step in arriving:
                progress(said("steps-checked-so-far", step.rank, step.step, arriving.waiting))
                session.check(step)
                step.drop()
    finally:
        receiver.close()
    return session.report


def _allow_more_files() -> None:
    """Let this process have as many files open as the system allows, up to some thousand."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _WANTED_FILES if most == resource.RLIM_INFINITY else min(most, _WANTED_FILES)
        if least != resource.RLIM_INFINITY and least < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class _Session:
    """One online check: its workers, which stay from step to step, and the files of each rank."""

    def __init__(self, request: OnlineRequest, task: Task, workers: Pool) -> None:
        self.report = OnlineReport()
        self._request = request
        self._task = task
        self._workers = workers
        self._stamp = time_stamp()
        self._writers: dict[int, CheckWriter] = {}

    def check(self, step: ReceivedStep) -> None:
        """Check one step; one that cannot be read is named in the log. Raises NotAvailableError if no worker has
        ever started.
        """
        report = self.report
        report.steps.append((step.rank, step.step))
        try:
            if step.problem:
                raise PathError(step.problem)
            answers = list(self._answers(open_requests(step.folder / "dump.json")))
            self._keep(step, answers)
        except NotAvailableError as problem:
            if not report.checked:
                raise
            self._leave_out(step, problem.message)
        except MsprobeError as problem:
            self._leave_out(step, problem.message)
        except Exception as problem:  # what a step holds ends no check of the others
            self._leave_out(step, said("step-fails-by-mistake", type(problem).__name__, problem))

    def _leave_out(self, step: ReceivedStep, why: str) -> None:
        self.report.unchecked.append((step.rank, step.step))
        log.error(said("online-step-not-checked", step.step, step.rank, why))

    def _keep(self, step: ReceivedStep, answers: list[Answer]) -> None:
        if not answers:
            return
        report, writer = self.report, self._writer(step.rank)
        for answer in answers:
            writer.add([*answer.result, str(step.step)], [[*row, str(step.step)] for row in answer.details])
            report.checked += 1
            report.judged += any(cell not in _NOT_JUDGED for cell in answer.result[1:3])
            if (beside_control(answer, self._task.standard) if self._task.control else answer).failed:
                report.failed.append((step.rank, step.step, answer.key))
                log.warning(said("online-call-wrong", answer.key, step.step, step.rank))
        if self._task.control:
            _compare(self._request, step, answers, self._stamp)

    def _writer(self, rank: int) -> CheckWriter:
        if rank not in self._writers:
            writer = self._writers[rank] = _writer(Path(self._request.output), self._stamp, rank)
            self.report.files[rank] = writer.files
        return self._writers[rank]

    def _answers(self, requests: Requests) -> Iterator[Answer]:
        task, selection = self._task, self._request.settings.selection
        refused = {key: why for key in requests.keys if (why := selection.refuse(key))}
        todo = [(key, requests.has_backward(key)) for key in requests.keys if key not in refused]
        done = self._workers.answers(todo, str(requests.part.path)) if todo else iter(())
        for key in requests.keys:
            if key in refused:
                further = (task.seed, RECORDED, task.control, task.judged_by)
                yield skipped(key, refused[key], requests.has_backward(key), task.decimals, further)
            else:
                yield next(done)


def _writer(folder: Path, stamp: str, rank: int) -> CheckWriter:
    result, details = (folder / f"accuracy_checking_{kind}_{stamp}_rank{rank}.csv" for kind in ("result", "details"))
    writer = CheckWriter(CheckFiles(result, details, stamp), (*RESULT_HEADER, STEP), (*DETAILS_HEADER, STEP))
    writer.begin()
    return writer


def _compare(request: OnlineRequest, step: ReceivedStep, answers: list[Answer], stamp: str) -> None:
    """The recorded results against the control's: a file for each step, as each has the same names."""
    named = f"{stamp}_rank{step.rank}_step{step.step}"
    ours = _table(step.folder / "candidate.csv", [row for answer in answers for row in answer.details])
    theirs = _table(step.folder / "control.csv", [row for answer in answers for row in answer.control])
    precision_compare.compare(ours, theirs, request.output, request.task.standard, named)


def _table(path: Path, rows: list[list[str]]) -> Path:
    write_atomically(path, BOM + lines_of([DETAILS_HEADER, *rows]))
    return path
