"""One process that trains one model under one tool, iteration by iteration, as told on its standard input.

Commands, one JSON object a line, each answered by one JSON line:

    {"do": "off", "n": 3}       plain iterations -> CPU and wall seconds of each
    {"do": "construct", ...}    import and construct the tool
    {"do": "on", "n": 1}        recorded iterations -> the same, with bytes and records of the last

Times are process CPU time of all threads (`time.process_time`). After a recorded iteration the worker waits
until the process is idle again, so that work left to background threads counts as part of that iteration.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

import torch  # noqa: E402
from models import SIZES, Training  # noqa: E402
from parts import leave_out  # noqa: E402
from tools import Tool, last_step, open_tool  # noqa: E402

#: The process counts as idle when it used less than this share of a waiting period of 2 ms.
IDLE_SHARE = 0.05


def wait_until_idle(limit: float = 30.0) -> None:
    """Sleep until no background thread uses the CPU any more."""
    end = time.monotonic() + limit
    quiet = 0
    while quiet < 2 and time.monotonic() < end:
        before = time.process_time()
        time.sleep(0.002)
        quiet = quiet + 1 if time.process_time() - before < 0.002 * IDLE_SHARE else 0


def folder_bytes(folder: Path) -> int:
    """What is left of a step: without the journal of ours, which goes when the files are safe on the disk."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".journal", ".lock")]
    return sum(path.stat().st_size for path in files)


def lies_in_memory(folder: Path) -> bool:
    """Whether the folder is on a file system without a disk (Linux; False where that cannot be told)."""
    kinds = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, place, kind, *_ = line.split()
            kinds[Path(place)] = kind
    return next((kinds[one] == "tmpfs" for one in (folder, *folder.parents) if one in kinds), False)


def remove_earlier_steps(folder: Path) -> None:
    """Remove what lies in ``folder/dump`` of all steps but the last two."""
    steps = sorted((folder / "dump").glob("step*"), key=lambda path: int(path.name[4:]))
    for path in steps[:-2]:
        shutil.rmtree(path, ignore_errors=True)


class Worker:
    def __init__(self, size: str, folder: Path) -> None:
        self.training = Training(SIZES[size])
        self.folder = folder
        self.in_memory = lies_in_memory(folder)
        self.tool: Tool | None = None

    def iterate(self, recorded: bool) -> dict[str, float]:
        """One whole iteration; `recorded` puts the tool around forward and backward."""
        training = self.training
        wall, cpu = time.perf_counter(), time.process_time()
        if recorded:
            assert self.tool is not None
            self.tool.begin(training.model)
            training.forward_backward()
            self.tool.end()
        else:
            training.forward_backward()
        update_from = time.process_time()
        training.update()
        update = time.process_time() - update_from
        wall = time.perf_counter() - wall
        if recorded:
            wait_until_idle()
        return {"cpu": time.process_time() - cpu, "wall": wall, "update": update}

    def off(self, n: int) -> dict[str, Any]:
        return {"times": [self.iterate(recorded=False) for _ in range(n)]}

    def on(self, n: int) -> dict[str, Any]:
        times = []
        for _ in range(n):
            # Dumps stay until the end, as in a training: on ext4 a new file near many recently removed ones costs
            # 100 to 500 us, which would be counted here. In memory they go: memory that a virtual machine never had
            # before costs more than all else.
            times.append(self.iterate(recorded=True))
            if self.in_memory:
                remove_earlier_steps(self.folder)
        assert self.tool is not None
        records, files = self.tool.count()
        return {
            "times": times,
            "bytes": folder_bytes(last_step(self.folder)),
            "records": records,
            "files": files,
        }

    def construct(self, without: list[str], **settings: Any) -> dict[str, Any]:
        if without:
            leave_out(without)
        self.tool = open_tool(folder=self.folder, **settings)
        return {}


def main() -> None:
    # Tools may print: answers go to the real standard output, everything else to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    size, folder = sys.argv[1:]
    torch.set_num_threads(1)
    worker = Worker(size, Path(folder))
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:  # told to the parent, which decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
