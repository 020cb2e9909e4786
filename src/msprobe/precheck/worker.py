"""A process that checks calls, which ``pool`` starts. It reads its task and then names of calls from
stdin, a line of JSON each, and answers each with another. Its first line says that it is ready, or why it is not. A
line ``{"dump": PATH}`` says that the next calls are of another dump, and has the same answer.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.messages.as_data import packed
from msprobe.precheck.job import READY, Answer, Task

#: Kind of task -> the module whose ``runner(task)`` makes what runs it.
RUNNERS = {
    "torch": "msprobe.precheck.torch.runner",
    "overflow": "msprobe.precheck.torch.overflow",
    "mindspore overflow": "msprobe.precheck.mindspore.overflow",
    "samples": "msprobe.precheck.torch.samples",
    "mindspore": "msprobe.precheck.mindspore.runner",
}


class Runner(Protocol):
    """Checks single calls."""

    def run(self, key: str) -> Answer:
        """Check one call. Problems of the call are part of the answer."""


def runner_of(task: Task) -> Runner:
    """What runs a task; its framework is imported here."""
    module = importlib.import_module(RUNNERS[task.kind])
    return cast(Runner, module.runner(task))


def main() -> int:
    """Answer until stdin ends."""
    # What is checked may print: the answers have a way of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Ctrl-C reaches all processes of a terminal, and it is the parent who ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _offer_to_be_killed_first()

    def say(line: str) -> None:
        try:
            answers.write(f"{line}\n")
            answers.flush()
        except BrokenPipeError:  # the check has ended meanwhile, and nobody listens
            os._exit(0)

    def made(task: Task) -> Runner | None:
        """What runs it, if the parent was informed that it is ready."""
        try:
            runner = runner_of(task)
        except (MsprobeError, ImportError) as problem:
            say(json.dumps(packed(_why(problem))))
            return None
        say(READY)
        return runner

    task = Task.from_json(sys.stdin.readline())
    runner = made(task)
    while runner is not None and (line := sys.stdin.readline()):
        asked = json.loads(line)
        if isinstance(asked, str):
            say(runner.run(asked).to_json())
        else:
            runner = made(replace(task, dump=asked["dump"]))
    return int(runner is None)


def _offer_to_be_killed_first() -> None:
    """Where memory gets short, the system is to end this process and no other: it is replaced."""
    with contextlib.suppress(OSError):  # not on Linux
        Path("/proc/self/oom_score_adj").write_text("800")


def _why(problem: MsprobeError | ImportError) -> str:
    """What keeps a runner from starting, in one sentence."""
    if isinstance(problem, MsprobeError):
        return problem.message
    return said("worker-lacks-package", sys.executable, problem.name or problem)
