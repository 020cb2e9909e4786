"""Workers: processes that are handed one call at a time. One that dies or hangs costs that call and is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msprobe.errors import MsprobeError, NotAvailableError
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
    """One process. It is started with the first call that it is given."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._python = executor_of(task.candidate).python or ""
        self._bridge: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def ask(self, key: str, timeout: float) -> dict[str, Any]:
        """The answer to one call. Raises WorkerFailedError, and the process is gone."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(key).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._obituary() from None
        found: dict[str, Any] = json.loads(self._line(timeout))
        return found

    def _start(self) -> None:
        program = self._python or sys.executable
        try:
            self._process = subprocess.Popen(
                [program, "-m", "msprobe.precheck.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": self._modules()},
            )
        except OSError as problem:
            raise NotAvailableError(
                f'"{program}" cannot be run: {(problem.strerror or str(problem)).lower()}; '
                "python:PATH is the python of an environment, as /venv/bin/python."
            ) from None
        self._rest = b""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(self._task.to_json().encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise NotAvailableError(f"a worker did not start: {self._obituary()}") from None
        try:
            said = self._line(START_SECONDS).decode()
        except WorkerFailedError as problem:
            raise NotAvailableError(f"a worker did not start: {problem}") from None
        if said != READY:
            self.stop()
            raise NotAvailableError(_told(said))

    def _modules(self) -> str:
        """Where the worker finds modules: where we do; in another environment only msprobe is brought along."""
        if not self._python:
            return os.pathsep.join(path for path in sys.path if path)
        if self._bridge is None:
            self._bridge = tempfile.TemporaryDirectory(prefix="msprobe-")
            os.symlink(Path(__file__).resolve().parents[1], Path(self._bridge.name, "msprobe"))
        return self._bridge.name

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
                    raise WorkerFailedError(f"no answer within {timeout:g} s; the worker was ended.")
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
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        status = process.wait()
        if status < 0:
            name = signal.Signals(-status).name
            return WorkerFailedError(f"worker died of {name}.", killed=name == "SIGKILL")
        return WorkerFailedError(f"worker died with exit status {status}.")

    def stop(self, kill: bool = False) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Pool:
    """Some workers that take calls from one queue. ``answers`` gives what they say in the order of the calls."""

    def __init__(self, tasks: Sequence[Task], timeout: float) -> None:
        self._tasks = tasks
        self._timeout = timeout
        self._todo: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, Answer | MsprobeError]] = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._ended = False

    def answers(self, calls: Sequence[tuple[str, bool]]) -> Iterator[Answer]:
        """Check calls, each a key and whether it has a backward record.

        Raises NotAvailableError if no worker starts.
        """
        for number, (key, _) in enumerate(calls):
            self._todo.put((number, key))
        threads = []
        for task in self._tasks[: max(1, len(calls))]:
            self._todo.put(None)
            worker = Worker(task)
            self._workers.append(worker)
            threads.append(threading.Thread(target=self._work, args=(worker, task, calls), daemon=True))
        for thread in threads:
            thread.start()
        waiting: dict[int, Answer] = {}
        try:
            for number in range(len(calls)):
                while number not in waiting:
                    place, found = self._done.get()
                    if isinstance(found, MsprobeError):
                        raise found
                    waiting[place] = found
                yield waiting.pop(number)
        finally:
            self._ended = True
            finished = not waiting and self._todo.empty()
            for worker in self._workers:
                worker.stop(kill=not finished)

    def _work(self, worker: Worker, task: Task, calls: Sequence[tuple[str, bool]]) -> None:
        while not self._ended:
            job = self._todo.get()
            if job is None:
                return
            number, key = job
            try:
                self._done.put((number, answer_to(worker, task, calls[number], self._timeout)))
            except MsprobeError as problem:
                self._done.put((number, problem))
                return
            except Exception as problem:  # what is never to happen must not let the parent wait for ever
                if not self._ended:
                    self._done.put(
                        (number, MsprobeError(f"checking {key} failed: {type(problem).__name__}: {problem}"))
                    )
                return


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
        message = f"{problem} Is there too little memory?" if problem.killed else str(problem)
        return _lost(task, key, message, has_backward)


def _told(line: str) -> str:
    """The sentence that a worker gave for not starting."""
    try:
        return str(json.loads(line))
    except ValueError:  # no worker of ours
        return f"a worker did not start; it said {line[:200]!r}."


def _lost(task: Task, key: str, message: str, has_backward: bool) -> Answer:
    """The answer for a call that cost a worker."""
    if task.kind == "mindspore":
        return mindspore_rows.skipped(key, message, has_backward)
    further = (task.seed, task.candidate, task.control)
    return skipped(key, message, has_backward, task.decimals, further)


def tasks_for(task: Task, candidates: Sequence[str], count: int) -> list[Task]:
    """The tasks of ``count`` workers, which take the candidates in turn."""
    return [replace(task, candidate=candidates[number % len(candidates)]) for number in range(count)]
