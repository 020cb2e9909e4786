"""Programs of tests as processes of their own that need not import torch and msprobe, which takes seconds each time.

One process imports both and does nothing else: no thread runs in it, nothing has been computed, seeded or recorded.
Each program is forked from it, gets its own folder, environment, arguments and output, and ends as Python ends: its
threads are waited for, what is registered at exit runs, the exit status is that of the program. Only the objects that
are left are not taken apart one by one: that costs more than the import, as it copies all memory. Call stacks end in
this file. A test that is about imports, options of Python or other things that are settled before the first line of a
program, or about its very end, starts a real process instead.

This file is also what that process runs: ``forked.py REQUESTS ANSWERS``, the two ends of pipes.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn

from msprobe.children import starting

_really_start_module = starting.start_module
_MODULE = str(Path(__file__).with_name("module_main.py"))
_FRESH = {"PYTHONPATH", "PYTHONUNBUFFERED"}  # of those below, what a fork can still follow
_READ_WHEN_IMPORTING = ("PYTHON", "MSPROBE_NATIVE", "OMP_", "MKL_", "ATEN_", "TORCH_", "TORCHDYNAMO")


def run(*words: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 200) -> Completed:
    """Run ``python WORDS...`` (a script or ``-m`` and a module, and arguments) to its end; what it printed."""
    return start(*words, cwd=cwd, env=env).wait(timeout)


def start(*words: str, cwd: Path, env: Mapping[str, str] | None = None) -> Started:
    """Start ``python WORDS...``; ``env``: its environment, that of this process by default."""
    env = dict(os.environ if env is None else env)
    return Started(_ready_for(env), words, cwd, env)


def start_module(module: str, *words: str, python: str = "", variables: Mapping[str, str] | None = None) -> Any:
    """In place of ``msprobe.children.starting.start_module``: the same process, without its imports. One of a different
    Python, or with variables that count while it imports, is started as ever.
    """
    if python or variables:
        return _really_start_module(module, *words, python=python, variables=variables)
    return StartedModule(_ready_for(dict(os.environ)), [_MODULE, module, *words], starting.child_environment())


def fork_modules() -> _Ready:
    """Have modules of msprobe that this process starts forked from how it is now: while it has a single thread."""
    key = _key_of(dict(os.environ))
    _ready[key] = _Ready.of_this_process()
    starting.start_module = start_module
    return _ready[key]


def _key_of(env: Mapping[str, str]) -> tuple[int, frozenset[tuple[str, str]]]:
    imports = {name: value for name, value in env.items() if name.startswith(_READ_WHEN_IMPORTING)}
    if imports.get("MSPROBE_NATIVE") == "1":  # as if it were not set
        del imports["MSPROBE_NATIVE"]
    # With the process: a fork of this one must not ask in its name.
    return os.getpid(), frozenset((name, value) for name, value in imports.items() if name not in _FRESH)


def _ready_for(env: dict[str, str]) -> _Ready:
    key = _key_of(env)
    if key not in _ready:
        _ready[key] = _Ready(env)
    return _ready[key]


Completed = subprocess.CompletedProcess[str]


class Started:
    """A process that runs a program."""

    def __init__(self, ready: _Ready, words: tuple[str, ...], cwd: Path, env: dict[str, str]) -> None:
        self._ready = ready
        self._words = words
        self._stdout = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._stderr = tempfile.NamedTemporaryFile()  # noqa: SIM115
        request = {"words": words, "cwd": str(cwd), "env": env, "out": self._stdout.name, "err": self._stderr.name}
        self._status: int | None = None
        self.pid = int(ready.ask(request))

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        if self._status is None:
            self._status = self._ready.poll(self.pid)
        return self._status

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = 200) -> Completed:
        """Wait for its end; TimeoutExpired if it takes more than ``timeout`` seconds, and then it is killed."""
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                self.kill()
                self.wait()
                raise subprocess.TimeoutExpired(self._words, timeout, *self.output())
            time.sleep(0.01)
        assert self._status is not None
        return Completed(self._words, self._status, *self.output())

    def output(self) -> tuple[str, str]:
        """What it has written to stdout and to stderr so far."""
        return Path(self._stdout.name).read_text(), Path(self._stderr.name).read_text()


class StartedModule:
    """A process of msprobe, with what :class:`subprocess.Popen` has of one: its input and output are pipes."""

    def __init__(self, ready: _Ready, words: list[str], env: dict[str, str]) -> None:
        self._ready = ready
        self.args = words
        self.returncode: int | None = None
        its_input, our_output = os.pipe()
        our_input, its_output = os.pipe()
        own = f"/proc/{os.getpid()}/fd"
        request = {"words": words, "cwd": os.getcwd(), "env": env, "in": f"{own}/{its_input}"}
        self.pid = int(ready.ask({**request, "out": f"{own}/{its_output}", "err": f"{own}/2"}))
        os.close(its_input)
        os.close(its_output)
        self.stdin = open(our_output, "wb")  # noqa: SIM115
        self.stdout = open(our_input, "rb")  # noqa: SIM115

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        if self.returncode is None:
            self.returncode = self._ready.poll(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.005)
        return status

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class _Ready:
    """The process that has imported everything. It ends when this one does."""

    def __init__(self, env: dict[str, str]) -> None:
        requests, to_it = os.pipe()
        from_it, answers = os.pipe()
        words = [sys.executable, __file__, str(requests), str(answers)]
        # There must be no threads. What is forked has an environment of its own.
        env = {**env, "OPENBLAS_NUM_THREADS": "1"}
        env.pop("PYTHONUNBUFFERED", None)
        process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, pass_fds=(requests, answers))
        self._talk(process.pid, (to_it, from_it), (requests, answers))
        self._process = process  # kept: Popen would warn of one that is let go

    @classmethod
    def of_this_process(cls) -> _Ready:
        """A fork of this process as it is now."""
        requests, to_it = os.pipe()
        from_it, answers = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(to_it)
            os.close(from_it)
            _end(_status_of(_serve(requests, answers)))
        ready = cls.__new__(cls)
        ready._talk(pid, (to_it, from_it), (requests, answers))
        return ready

    def _talk(self, pid: int, ours: tuple[int, int], its: tuple[int, int]) -> None:
        self.pid = pid
        self._lock = threading.Lock()  # threads of a check start their workers
        for descriptor in its:
            os.close(descriptor)
        self._requests = open(ours[0], "wb", buffering=0)  # noqa: SIM115
        self._answers = open(ours[1], "rb", buffering=0)  # noqa: SIM115

    def ask(self, request: dict[str, Any]) -> str:
        with self._lock:
            self._requests.write(json.dumps(request).encode() + b"\n")
            answer = self._answers.readline().decode().strip()
        assert answer, "the process that forks programs has ended"
        return answer

    def poll(self, pid: int) -> int | None:
        """The exit status of a fork, if it has ended; it is asked for no more then."""
        answer = self.ask({"poll": pid})
        return None if answer == "running" else int(answer)

    def end(self) -> None:
        """End the process, with none of its forks, and wait for it."""
        self._requests.close()
        os.waitpid(self.pid, 0)

    def cpu_seconds(self) -> float:
        """What it and the forks that have ended have used; 0 where there is no /proc."""
        try:
            words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


_ready: dict[tuple[int, frozenset[tuple[str, str]]], _Ready] = {}


def cpu_seconds() -> float:
    """CPU seconds of all programs that this process has forked and that have ended, and of the import before them."""
    return sum(ready.cpu_seconds() for (parent, _), ready in _ready.items() if parent == os.getpid())


def end_of_all(ranks: Sequence[Started], seconds: float) -> None:
    """Wait for the ranks of a job; if one fails or time is over, all are killed. AssertionError with what they said."""
    until = time.monotonic() + seconds
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < until:
        if any(rank.poll() for rank in ranks):
            break
        time.sleep(0.05)
    for rank in ranks:
        rank.kill()
    ended = [rank.wait() for rank in ranks]
    said = "\n".join(f"rank {number}: {(rank.stdout + rank.stderr)[-3000:]}" for number, rank in enumerate(ended))
    assert all(rank.returncode == 0 for rank in ended), said


# ---------------------------------------------------------------- in the process that forks, and in its forks


def _serve(requests: int, answers: int) -> list[str]:
    """Fork until nobody asks any more; returns in the forks only: the words to run."""
    with open(requests, "rb", buffering=0) as asked, open(answers, "wb", buffering=0) as told:
        while line := asked.readline():
            request = json.loads(line)
            if "poll" in request:
                ended, status = os.waitpid(request["poll"], os.WNOHANG)
                answer = str(os.waitstatus_to_exitcode(status)) if ended else "running"
            else:
                # Opened here: who asks closes its own ends when it has the answer.
                opened = [os.open(request[name], flags) for name, flags in _ENDS if name in request]
                child = os.fork()
                if child == 0:
                    break
                for descriptor in opened:
                    os.close(descriptor)
                answer = str(child)
            told.write(f"{answer}\n".encode())
        else:
            os._exit(0)
    _take_place(request, opened)
    words: list[str] = request["words"]
    return words


#: What a program reads, and what it writes to.
_ENDS = (("out", os.O_WRONLY | os.O_APPEND), ("err", os.O_WRONLY | os.O_APPEND), ("in", os.O_RDONLY))


def _take_place(request: dict[str, Any], opened: list[int]) -> None:
    """Take over folder, environment and ends of the program."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for source, descriptor in zip(opened, (1, 2, 0), strict=False):
        os.dup2(source, descriptor)
        os.close(source)
    if os.environ.get("PYTHONUNBUFFERED"):
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            raw = io.FileIO(descriptor, "w", closefd=False)
            stream = io.TextIOWrapper(raw, "utf-8", write_through=True)  # type: ignore[type-var]
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
    added = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    # The first place is that of this file, and becomes that of the program.
    sys.path[1:1] = [place for place in added if place not in sys.path[1:]]


def _end(status: int) -> NoReturn:
    """What Python does at the end of a program, up to where it takes all objects apart."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _status_of(words: list[str]) -> int:
    """Run the program; the exit status that Python would make of how it ended."""
    try:
        _execute(words)
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return (ending.code or 0) & 0xFF
        print(ending.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _execute(words: list[str]) -> None:
    """Run a script or a module as Python does."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __spec__=None, __annotations__={})
    sys.modules["__main__"] = main
    if words[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = ["-m", *words[2:]]
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        return
    path = os.path.join(os.getcwd(), words[0])
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    sys.argv = list(words)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), main.__dict__)


def _import_everything() -> None:
    import torch._dynamo  # the first step of an optimizer imports it
    import torch.distributed  # noqa: F401

    import msprobe.cli.run
    import msprobe.launcher.runscript
    import msprobe.pytorch  # noqa: F401

    assert len(os.listdir("/proc/self/task")) == 1, "threads do not survive a fork"
    # What is never looked at again need not be copied for a fork.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _import_everything()
    _end(_status_of(_serve(int(sys.argv[1]), int(sys.argv[2]))))
