"""Jobs side by side in processes of this machine: each takes one job at a time, and results come in order."""

from __future__ import annotations

import atexit
import os
import pickle
import selectors
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from msprobe.children import starting
from msprobe.children.job_process import read_frame, result_of, write_frame
from msprobe.guard import guarded

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

# Libraries that compute in threads: together the processes take as many as there are CPUs.
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
)


class ProcessLostError(Exception):
    """A process ended in the middle of a job."""


# Processes without a job, kept for the next ones; they belong to the process that started them.
_idle: list[starting.Process] = []
_owner = os.getpid()


def results(function: Callable[[_Job], _Result], jobs: Sequence[_Job], count: int) -> Generator[_Result, None, None]:
    """Call ``function`` with each job in ``count`` processes; the results in the order of the jobs.

    Function, jobs and results travel as pickles. At most ``count`` results wait to be taken. Raises ProcessLostError
    where a process ends in the middle of a job, and the error of the first job, in their order, that raised one.
    """
    crew = _Crew(count)
    try:
        yield from crew.results(function, jobs)
    finally:
        crew.dismiss()


class _Crew:
    """Some processes that do the jobs of one sequence."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free: list[starting.Process] = []
        self._busy: dict[starting.Process, int] = {}
        self._selector = selectors.DefaultSelector()

    def results(self, function: Callable[[_Job], _Result], jobs: Sequence[_Job]) -> Iterator[_Result]:
        answers: dict[int, bytes] = {}
        todo = iter(range(len(jobs)))
        following = next(todo, None)
        for number in range(len(jobs)):
            while number not in answers:
                while following is not None and len(self._busy) < self._count and following <= number + self._count:
                    self._give(following, pickle.dumps((function, jobs[following])))
                    following = next(todo, None)
                self._take(answers)
            yield result_of(answers.pop(number))

    def _give(self, number: int, job: bytes) -> None:
        process = self._free.pop() if self._free else hired(self._count)
        assert process.stdin is not None
        assert process.stdout is not None
        self._busy[process] = number
        self._selector.register(process.stdout, selectors.EVENT_READ, process)
        try:
            write_frame(process.stdin, job)
        except OSError:
            raise self._lost(process) from None

    def _take(self, answers: dict[int, bytes]) -> None:
        for key, _ in self._selector.select():
            process: starting.Process = key.data
            assert process.stdout is not None
            text = read_frame(process.stdout)
            if text is None:
                raise self._lost(process)
            self._selector.unregister(key.fileobj)
            answers[self._busy.pop(process)] = text
            self._free.append(process)

    def _lost(self, process: starting.Process) -> ProcessLostError:
        status = process.wait()
        return ProcessLostError(signal.Signals(-status).name if status < 0 else f"exit status {status}")

    def dismiss(self) -> None:
        """Keep the processes that have no job, and end the others."""
        self._selector.close()
        for process in self._busy:
            process.kill()
            starting.close(process)
            process.wait()
        self._busy.clear()
        _idle.extend(self._free)
        self._free.clear()


def hired(count: int) -> starting.Process:
    """A process that waits for a job: one that is idle, or a new one."""
    global _owner
    if _owner != os.getpid():  # this process was forked: the idle ones belong to its parent
        _idle.clear()
        _owner = os.getpid()
    while _idle:
        process = _idle.pop()
        if process.poll() is None:
            return process
        starting.close(process)
    each = str(max(1, (os.cpu_count() or 1) // count))
    threads = {name: os.environ.get(name, each) for name in _THREADS}
    return starting.start_module("msprobe.children.job_process", variables=threads)


@atexit.register
@guarded
def dismiss_all() -> None:
    """End the idle processes."""
    if _owner != os.getpid():
        return
    while _idle:
        process = _idle.pop()
        starting.close(process)
        try:
            process.wait(5)
        except starting.TimeoutExpired:
            process.kill()
            process.wait()
