"""Workers: processes that are handed one call at a time. One that dies or hangs costs that call and is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from msprobe import log
from msprobe.children import starting
from msprobe.errors import MsprobeError, NotAvailableError, reason_of
from msprobe.messages import said, text_of
from msprobe.messages.as_data import unpacked
from msprobe.precheck import mindspore_rows
from msprobe.precheck.executors import executor_of
from msprobe.precheck.job import READY, Answer, Task, answer_of, skipped

#: What a worker may take to start: importing a framework on a busy machine.
START_SECONDS = 600.0


class WorkerFailedError(Exception):
    """A worker died or did not answer in time. ``killed``: by somebody else, and not by the call that it ran."""

    def __init__(self, message: str, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


class Worker:
    """One process. It is started with the first call that it is given, or by ``begin``."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._python = executor_of(task.candidate).python or ""
        self._process: starting.Process | None = None
        self._is_ready = False
        self._rest = b""

    def begin(self) -> None:
        """Start the process without waiting for it. Raises NotAvailableError."""
        if self._process is None:
            self._start()

    def turn_to(self, task: Task) -> None:
        """From here on calls of another dump are asked for; all else is as it was. Raises NotAvailableError."""
        self._task = task
        if self._process is None:
            return
        self._be_ready()
        with contextlib.suppress(WorkerFailedError):  # the next call starts another process
            self._write(json.dumps({"dump": task.dump}))
            self._hear_ready()

    def ask(self, key: str, timeout: float) -> dict[str, Any]:
        """The answer to one call. Raises WorkerFailedError, and the process is gone."""
        self._be_ready()
        self._write(json.dumps(key))
        answer: dict[str, Any] = json.loads(self._line(timeout))
        return answer

    def _be_ready(self) -> None:
        self.begin()
        if self._is_ready:
            return
        try:
            self._hear_ready()
        except WorkerFailedError as problem:
            raise NotAvailableError(said("worker-did-not-start", problem)) from None
        self._is_ready = True

    def _hear_ready(self) -> None:
        line = self._line(START_SECONDS).decode()
        if line != READY:
            self.stop()
            raise NotAvailableError(_reason_in(line))

    def _write(self, line: str) -> None:
        """Say one thing, in JSON. Raises WorkerFailedError."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._obituary() from None

    def _start(self) -> None:
        try:
            self._process = starting.start_module("msprobe.precheck.worker", python=self._python)
        except OSError as problem:
            raise NotAvailableError(
                said("python-cannot-be-run", self._python or sys.executable, reason_of(problem))
            ) from None
        self._rest, self._is_ready = b"", False
        try:
            self._write(self._task.to_json())
        except WorkerFailedError as problem:
            raise NotAvailableError(said("worker-did-not-start", problem)) from None

    def _line(self, timeout: float) -> bytes:
        """The next line. Raises WorkerFailedError."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.stop(kill=True)
                    raise WorkerFailedError(said("worker-timed-out", timeout))
                data = os.read(descriptor, 1 << 20)
                if not data:
                    raise self._obituary()
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _obituary(self) -> WorkerFailedError:
        """How the process ended."""
        process, self._process = self._process, None
        assert process is not None
        starting.close(process)
        status = process.wait()
        if status < 0:
            name = signal.Signals(-status).name
            return WorkerFailedError(said("worker-killed", name), killed=name == "SIGKILL")
        return WorkerFailedError(said("worker-ended", status))

    def stop(self, kill: bool = False) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        starting.close(process)
        try:
            process.wait(10)
        except starting.TimeoutExpired:
            process.kill()
            process.wait()


class _Jobs:
    """Calls that wait for a worker, each a number and a key. One that is given back is taken by another worker."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._waiting = deque(enumerate(keys))
        self._under_way = 0
        self._changed = threading.Condition()
        self._ended = False

    def take(self) -> tuple[int, str] | None:
        """The next one; None when all are done. Waits while one is under way, which may be given back."""
        with self._changed:
            while not self._ended and not self._waiting and self._under_way:
                self._changed.wait()
            if self._ended or not self._waiting:
                return None
            self._under_way += 1
            return self._waiting.popleft()

    def over(self, given_back: tuple[int, str] | None = None) -> None:
        """One that was taken is done, or given back."""
        with self._changed:
            self._under_way -= 1
            if given_back is not None:
                self._waiting.appendleft(given_back)
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody takes any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Pool:
    """Some workers that take calls from one queue: those of one dump, or of one after the other.

    They start with the first calls, or with ``begin``, and stay until ``close``. One that does not start leaves its
    calls to the others.
    """

    def __init__(self, tasks: Sequence[Task], timeout: float) -> None:
        self._tasks = tasks
        self._timeout = timeout
        self._workers: list[Worker] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close(kill=problem[0] is not None)

    def begin(self) -> None:
        """Start all workers without waiting for them. Raises NotAvailableError."""
        for worker in self._hired(len(self._tasks)):
            worker.begin()

    def answers(self, calls: Sequence[tuple[str, bool]], dump: str = "") -> Iterator[Answer]:
        """Check calls, each a key and whether it has a backward record; the answers come in their order.

        ``dump``: which they are of, where it is another one than the tasks say. Raises NotAvailableError if no worker
        starts.
        """
        tasks = [replace(task, dump=dump) if dump else task for task in self._tasks[: max(1, len(calls))]]
        batch = _Batch(calls, self._timeout, len(tasks))
        for worker, task in zip(self._hired(len(tasks)), tasks, strict=True):
            threading.Thread(target=batch.work, args=(worker, task, bool(dump)), daemon=True).start()
        try:
            yield from batch.answers()
        finally:
            if not batch.end():
                self.close(kill=True)

    def close(self, kill: bool = False) -> None:
        """End the workers."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.stop(kill)

    def _hired(self, count: int) -> list[Worker]:
        self._workers += [Worker(task) for task in self._tasks[len(self._workers) : count]]
        return self._workers[:count]


class _Batch:
    """Calls of one dump that workers take."""

    def __init__(self, calls: Sequence[tuple[str, bool]], timeout: float, workers: int) -> None:
        self._calls = calls
        self._timeout = timeout
        self._jobs = _Jobs([key for key, _ in calls])
        self._done: queue.SimpleQueue[tuple[int, Answer | MsprobeError]] = queue.SimpleQueue()
        self._count = workers
        self._not_started: list[MsprobeError] = []
        self._counting = threading.Lock()
        self._is_done = False

    def answers(self) -> Iterator[Answer]:
        """The answers in the order of the calls."""
        waiting: dict[int, Answer] = {}
        for number in range(len(self._calls)):
            while number not in waiting:
                place, answers = self._done.get()
                if isinstance(answers, MsprobeError):
                    raise answers
                waiting[place] = answers
            self._is_done = number + 1 == len(self._calls)
            yield waiting.pop(number)

    def end(self) -> bool:
        """Begin no more calls; True if all were answered, so that no worker is at work."""
        self._jobs.end()
        if self._is_done and self._not_started:
            count = said("workers-of", len(self._not_started), self._count)
            log.warning(said("workers-not-usable", count, self._not_started[0].message))
        return self._is_done or not self._calls

    def work(self, worker: Worker, task: Task, is_other: bool) -> None:
        """Give calls to one worker until there are none. ``is_other``: it may know another dump."""
        job: tuple[int, str] | None = None
        try:
            if is_other:
                worker.turn_to(task)
            while (job := self._jobs.take()) is not None:
                number, _ = job
                self._done.put((number, answer_to(worker, task, self._calls[number], self._timeout)))
                self._jobs.over()
        except MsprobeError as problem:
            self._lose(problem, job)
        except Exception as problem:  # what is never to happen must not let the parent wait for ever
            doing = said("checking-call", job[1]) if job else said("one-worker")
            failed = said("worker-task-failed", doing, type(problem).__name__, problem)
            self._done.put((0, MsprobeError(failed)))
            self._jobs.end()

    def _lose(self, problem: MsprobeError, job: tuple[int, str] | None) -> None:
        """A worker cannot be used; the others take its call."""
        with self._counting:
            self._not_started.append(problem)
            if len(self._not_started) == self._count:
                self._done.put((0, problem))
        if job is not None:
            self._jobs.over(given_back=job)


def answer_to(worker: Worker, task: Task, call: tuple[str, bool], timeout: float) -> Answer:
    """The answer to one call, a key and whether it has a backward record; one that costs the worker is skipped.

    A worker that was killed (where memory is short, the system does that) is replaced and asked once more.
    """
    key, has_backward = call
    try:
        try:
            return answer_of(worker.ask(key, timeout))
        except WorkerFailedError as problem:
            if not problem.killed:
                raise
            return answer_of(worker.ask(key, timeout))
    except WorkerFailedError as problem:
        message = said("killed-for-memory", problem) if problem.killed else text_of(problem)
        return skip_lost(task, key, message, has_backward)


def _reason_in(line: str) -> str:
    """The reason that a worker gave for not starting."""
    try:
        reason: str = unpacked(json.loads(line))
    except (ValueError, LookupError):  # no worker of ours
        return said("worker-said-otherwise", line[:200])
    return reason


def skip_lost(task: Task, key: str, message: str, has_backward: bool) -> Answer:
    """The answer for a call that cost a worker."""
    if task.kind == "mindspore":
        return mindspore_rows.skipped(key, message, has_backward)
    further = (task.seed, task.candidate, task.control_name, task.judged_by)
    return skipped(key, message, has_backward, task.decimals, further)


def tasks_for(task: Task, candidates: Sequence[str], count: int) -> list[Task]:
    """The tasks of ``count`` workers, which take the candidates in turn."""
    return [replace(task, candidate=candidates[number % len(candidates)]) for number in range(count)]
