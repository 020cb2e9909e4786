"""Drive the workers: pairs of iterations with recording off and on, alternating, and what they add up to."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reference_env import FOLDER, REFERENCES, REPOSITORY, clean_environment, make, python_of

WARM_UP = 3
#: Pairs of iterations by model size: enough for a steady median in reasonable time.
PAIRS = {"tiny": 25, "small": 15, "medium": 7}
QUICK_PAIRS = {"tiny": 15, "small": 7, "medium": 3}


@dataclass(frozen=True)
class Case:
    """What is measured: a tool (with extra config keys), a model size, a level and a task."""

    tool: str
    size: str
    level: str
    task: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Medians of one case. Times in milliseconds of process CPU for one whole training iteration.

    off_twin: a second process that never saw the tool; off_same: the same process between recorded
    iterations; idle: tool constructed, not yet started; update: the optimizer step, part of every
    iteration and never recorded.
    """

    case: Case
    pairs: int
    off_twin: float
    off_same: float
    idle: float
    on: float
    on_wall: float
    off_wall: float
    update: float
    records: int
    files: int
    bytes: int

    @property
    def leaves_nothing(self) -> bool:
        """Whether an unrecorded iteration is free of the tool (the published package keeps patches)."""
        return self.case.tool in ("ours", "debug_mode")

    @property
    def off(self) -> float:
        """What "on" is compared with: the same process where that is fair, else the twin."""
        return self.off_same if self.leaves_nothing else self.off_twin

    @property
    def ratio(self) -> float:
        """Iteration with recording over iteration without."""
        return self.on / self.off

    @property
    def ratio_recorded(self) -> float:
        """The strict ratio: over forward and backward alone, without the optimizer step."""
        return (self.on - self.update) / (self.off - self.update)

    @property
    def micros_per_record(self) -> float:
        """Added CPU microseconds for each record in dump.json."""
        return (self.on - self.off) * 1000 / max(self.records, 1)


class Worker:
    """A worker process and its conversation; ``checkout`` is the working tree whose msprobe is measured."""

    def __init__(self, python: Path, size: str, checkout: Path = REPOSITORY) -> None:
        folder = Path(os.environ.get("BENCH_DUMPS", FOLDER))
        folder.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="capture-", dir=folder))
        environment = {**clean_environment(), "MSPROBE_LOG_LEVEL": "4", "PYTHONWARNINGS": "ignore"}
        if python == Path(sys.executable):
            environment["PYTHONPATH"] = str(checkout / "src")
        self.errors = (self.folder / "errors.txt").open("w")
        self.process = subprocess.Popen(
            [str(python), str(Path(__file__).parent / "worker.py"), size, str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment,
            cwd=self.folder,
        )  # fmt: skip

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one command; raises RuntimeError with the worker's own words when it fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the worker died"}
        if "error" in answer:
            self.errors.flush()
            tail = (self.folder / "errors.txt").read_text()[-2000:]
            raise RuntimeError(f"{answer['error']}\n{tail}")
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(timeout=60)
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def interpreter(tool: str) -> Path:
    """The interpreter to measure `tool` with; makes the reference environment if needed."""
    version = tool.removesuffix("-ALL")
    if version in REFERENCES:
        make(version)
        return python_of(version)
    return Path(sys.executable)


def measure(case: Case, pairs: int) -> Outcome:
    """Measure one case in two fresh processes, one with the tool and a twin without, alternating."""
    python = interpreter(case.tool)
    with Worker(python, case.size) as tool, Worker(python, case.size) as twin:
        for worker in (tool, twin):
            worker.ask("off", n=WARM_UP)
        tool.ask("construct", name=case.tool, level=case.level, task=case.task, options=dict(case.options), without=())
        idle = []
        for _ in range(max(3, pairs // 2)):
            twin.ask("off", n=1)
            idle += tool.ask("off", n=2)["times"][1:]
        tool.ask("on", n=2)
        plain: list[dict[str, float]] = []
        off: list[dict[str, float]] = []
        on: list[dict[str, float]] = []
        last: dict[str, Any] = {}
        for _ in range(pairs):
            # Two of each in a row, of which the second counts: the first finds the caches cold.
            plain += twin.ask("off", n=2)["times"][1:]
            off += tool.ask("off", n=2)["times"][1:]
            last = tool.ask("on", n=2)
            on += last["times"][1:]

    def median(times: Sequence[dict[str, float]], key: str) -> float:
        return statistics.median(time[key] for time in times) * 1000

    return Outcome(
        case=case,
        pairs=pairs,
        off_twin=median(plain, "cpu"),
        off_same=median(off, "cpu"),
        idle=median(idle, "cpu"),
        on=median(on, "cpu"),
        on_wall=median(on, "wall"),
        off_wall=median(off if case.tool in ("ours", "debug_mode") else plain, "wall"),
        update=median(plain, "update"),
        records=last["records"],
        files=last["files"],
        bytes=last["bytes"],
    )
