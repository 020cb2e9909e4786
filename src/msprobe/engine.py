"""Run many independent jobs side by side: in processes of this machine, or on a Ray cluster.

A job is one call of a function with one value. Function, value and result travel between processes, so they must be
picklable, and the function importable by name. On a cluster msprobe must be installed on all nodes, and files must have
the same paths there.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, TypeVar, get_args

from msprobe import log
from msprobe.children import jobs as local_jobs
from msprobe.distribution import install
from msprobe.errors import InvalidInputError, MsprobeError, NotAvailableError
from msprobe.foreign.console import say
from msprobe.messages import said

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

# Variables of the environment that are settings of msprobe.
_SETTINGS = "MSPROBE_"
#: A job whose worker or node is lost is done again elsewhere, so often in all; nothing else is.
_TRIES_ON_RAY = 3

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class WorkerLostError(MsprobeError):
    """A process that ran jobs is gone: use fewer at once, or machines with more memory."""

    code = 6


@dataclass(frozen=True)
class Workers:
    """How many jobs run at once, and where.

    ``count``: None for one on this machine, and for as many as there are CPUs on a Ray cluster. Raises
    InvalidInputError for a count or an engine that there is not, NotAvailableError for Ray where it is not installed.
    """

    count: int | None = None
    engine: Engine = "local"

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise InvalidInputError(said("engine-unknown", ", ".join(ENGINES), self.engine))
        if self.count is not None and (not isinstance(self.count, int) or self.count < 1):
            raise InvalidInputError(said("jobs-too-few", self.count))
        if self.engine == "ray":
            _check_installed("the engine ray needs", "ray", "ray")

    @property
    def alone(self) -> bool:
        """True if jobs run one after the other, in this process."""
        return self.count == 1 or (self.count is None and self.engine == "local")

    def inside(self, jobs: int) -> int:
        """How many threads each of so many jobs may use, where one job can use several."""
        return max(1, (self.count or 1) // max(1, min(jobs, self.count or 1)))


#: One job after the other, in this process.
ALONE = Workers()


def run(
    function: Callable[[_Job], _Result],
    jobs: Sequence[_Job],
    workers: Workers = ALONE,
    progress: Callable[[int], None] = lambda number: None,
) -> Iterator[_Result]:
    """Call ``function`` with each job; gives the results in the order of the jobs, each when it is there.

    One job, or one worker, runs in this process. ``progress`` gets the number of the job whose result is waited for.
    Jobs run in the working folder of the caller, and what they say in the log is said here, with their result. The
    first MsprobeError of a job, in their order, is raised here and no further job begins; so it is when the iterator is
    closed, and after Ctrl-C. A job whose worker on a Ray cluster is lost is done again by another; the others are not.
    Raises WorkerLostError if a process here ends in the middle of a job, or three workers on Ray in the same one.
    """
    if workers.alone or len(jobs) <= 1:
        if workers.engine == "ray" and len(jobs) == 1:
            log.once("one job", "info", said("one-job-without-ray"))
        for number, job in enumerate(jobs):
            progress(number)
            yield function(job)
        return
    local = workers.engine == "local"
    settings = {name: text for name, text in os.environ.items() if name.startswith(_SETTINGS)}
    work = _Work(function, os.getcwd(), settings, deaf=local)
    results = _in_processes(work, jobs, workers) if local else _on_ray(work, jobs, workers)
    with contextlib.closing(results):
        for number in range(len(jobs)):
            progress(number)
            done = next(results)
            if done.said:
                say(done.said, end="", flush=True)
            if done.problem is not None:
                raise done.problem
            yield done.result


@dataclass(frozen=True)
class _Done(Generic[_Result]):
    """What comes back of a job; without ``problem`` there is a ``result``."""

    result: _Result
    problem: MsprobeError | None
    said: str


@dataclass(frozen=True)
class _Work(Generic[_Job, _Result]):
    """Runs one job in a worker, as if it ran in the process of the caller.

    ``settings``: variables of the environment that msprobe reads. ``deaf``: Ctrl-C reaches all processes of a terminal,
    and it is the caller who ends the workers. Ray ends its own by the same signal.
    """

    function: Callable[[_Job], _Result]
    folder: str
    settings: dict[str, str]
    deaf: bool

    def __call__(self, job: _Job) -> _Done[Any]:
        if self.deaf:
            with contextlib.suppress(ValueError):  # not the main thread of its process
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(OSError):  # a node without this folder
            os.chdir(self.folder)
        for name in [name for name in os.environ if name.startswith(_SETTINGS) and name not in self.settings]:
            del os.environ[name]
        os.environ.update(self.settings)
        with contextlib.redirect_stdout(io.StringIO()) as spoken:
            try:
                return _Done(self.function(job), None, spoken.getvalue())
            except MsprobeError as problem:
                return _Done(None, _portable(problem), spoken.getvalue())


def _call(work: _Work[_Job, _Result], job: _Job) -> _Done[_Result]:
    return work(job)


def _portable(problem: MsprobeError) -> MsprobeError:
    """The error; if it cannot travel, one that says the same."""
    try:
        pickle.loads(pickle.dumps(problem))
    except Exception:
        return MsprobeError(problem.message)
    return problem


def _check_installed(what: str, module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise NotAvailableError(said("engine-package-missing", what, module, install(extra)))


def _in_processes(
    work: _Work[_Job, _Result], jobs: Sequence[_Job], workers: Workers
) -> Generator[_Done[_Result], None, None]:
    try:
        yield from local_jobs.results(work, jobs, min(workers.count or 1, len(jobs)))
    except local_jobs.ProcessLostError as problem:
        raise WorkerLostError(_lost(str(problem))) from problem


def _on_ray(
    work: _Work[_Job, _Result], jobs: Sequence[_Job], workers: Workers
) -> Generator[_Done[_Result], None, None]:
    ray: Any = importlib.import_module("ray")
    _connect(ray, workers)
    count = workers.count or max(1, int(ray.cluster_resources().get("CPU", 1)))
    call = ray.remote(max_retries=_TRIES_ON_RAY - 1)(_call)
    waiting: deque[Any] = deque()
    todo = iter(jobs)
    try:
        for _ in jobs:
            waiting.extend(call.remote(work, job) for job in islice(todo, count - len(waiting)))
            with contextlib.redirect_stdout(sys.stderr):  # Ray prints there that it has lost a node
                done = ray.get(waiting.popleft())
            yield done
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as lost:
        raise WorkerLostError(_lost(type(lost).__name__)) from lost
    # What is under way when the caller stops is not cancelled: that may end the program where a task is done at that
    # moment (seen in Ray 2.60). It ends by itself, or with the program.


def _connect(ray: Any, workers: Workers) -> None:
    """Use the Ray that the program has, or the cluster of this machine, or one that is started and ends with us."""
    if ray.is_initialized():
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "job_config": _job_config()}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        if os.environ.get("RAY_ADDRESS"):
            raise NotAvailableError(said("ray-cluster-missing", os.environ["RAY_ADDRESS"])) from None
        ray.init(address="local", num_cpus=workers.count, include_dashboard=False, **quiet)


def _job_config() -> Any:
    """Workers of Ray find modules where this Python has them. Ray would put the working directory and the folder of the
    script in front, unless the workers have a working directory of their own (2.9 to 2.60).
    """
    kind: Any = importlib.import_module("ray.job_config").JobConfig

    class _OfPackages(kind):  # type: ignore[misc]
        def _runtime_env_has_working_dir(self) -> bool:
            return True

    return _OfPackages()


def _lost(how: str) -> str:
    return said("process-of-jobs-ended", how)
