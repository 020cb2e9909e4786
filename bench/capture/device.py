"""What recording costs on an accelerator, a simulated one (tests/simdev): see ``--device`` of run.py.

``device.py FOLDER LEVEL TASK WIDTH READER`` runs one case in this process and prints a line of JSON. A step is forward,
backward and AdamW, all of it recorded, of a GPT of two layers; the first step, in which tables and kernels are made, is
left out.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
STEPS = 4
# What measures a tensor of more than 32 KiB: a kernel that the device offers, or the framework's reductions; "alone":
# they measure every tensor of real floats with dimensions, however small.
READERS = ("kernel", "reductions", "reductions-alone")
HEADINGS = (
    "level", "task", "width", "reader", "launches", "added", "a new tensor", "waits before stop", "in stop",
    "device KiB held", "host µs/record", "records",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step: what the device was asked for, the most memory that lay there above what lay there before, and the CPU
    time of the thread that trains.
    """

    launches: int
    waits: int
    waits_in_stop: int
    bytes_held: int
    seconds: float
    records: int
    tensors: int


def train(folder: Path, level: str, task: str, width: int, reader: str) -> list[Step]:
    """The steps of one training, recorded unless ``level`` is "off"."""
    sys.path[:0] = [str(HERE.parent), str(REPOSITORY / "tests")]
    import simdev
    import torch
    from models import GPT, Size
    from torch.nn import functional

    sim = simdev.load()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = Size("device", width=width, heads=4, batch=3, length=16, vocabulary=50, layers=2)
    model = GPT(size).to("sim")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
    debugger = None
    if reader == "kernel":
        sim.offer_rows(True)
    if level != "off":
        from msprobe.capture.torch.devices import device_statistics
        from msprobe.pytorch import PrecisionDebugger

        if reader == "reductions-alone":
            device_statistics.MOST_COPIED = 0

        digest = task in ("md5", "xxh3")
        settings: dict[str, Any] = {"summary_mode": task} if digest else {}
        settings |= {"task": "statistics" if digest else task, "level": level}
        debugger = PrecisionDebugger(dump_path=str(folder), **settings)
    steps = []
    for number in range(STEPS):
        ids = torch.randint(0, size.vocabulary, (size.batch, size.length + 1)).to("sim")
        torch.sim.synchronize()
        sim.reset_peak()
        memory, waits, launches = sim.allocated(), sim.waits(), sim.launches()
        begun = time.thread_time()
        if debugger is not None:
            debugger.start(model)
        logits = model(ids[:, :-1])
        functional.cross_entropy(logits.reshape(-1, size.vocabulary), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()
        before_stop = sim.waits()
        if debugger is not None:
            debugger.stop()
        seconds = time.thread_time() - begun
        held, in_stop, launched = sim.peak() - memory, sim.waits() - before_stop, sim.launches() - launches
        optimizer.zero_grad()
        if debugger is not None:
            debugger.step()
        records, tensors = _count(folder / f"step{number}")
        steps.append(Step(launched, before_stop - waits, in_stop, held, seconds, records, tensors))
    return steps[1:]


def _count(folder: Path) -> tuple[int, int]:
    """The records of a step, and the rows of its tensors, of which equal ones are one."""
    records = tensors = 0
    for dump in folder.glob("*/dump.json"):
        text = dump.read_text()
        records += len(json.loads(text)["data"])
        rows = dump.with_name("dump_rows.bin")
        tensors += rows.stat().st_size // 128 - 4 if rows.exists() else 0
    return records, tensors


def measure(level: str, task: str, width: int, reader: str = "") -> list[Step]:
    """The same in a process of its own. RuntimeError with what it wrote if it fails."""
    return [Step(**step) for step in in_a_process("device.py", level, task, str(width), reader)]


def in_a_process(script: str, *words: str) -> Any:
    """What a script of this folder prints in its last line, given a folder and these words. RuntimeError with what it
    wrote if it fails.
    """
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "MSPROBE_LOG_LEVEL": "4"}
    with tempfile.TemporaryDirectory(prefix="device-") as folder:
        command = [sys.executable, str(HERE / script), folder, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def table(levels: Sequence[str], tasks: Sequence[str], widths: Sequence[int], readers: Sequence[str]) -> str:
    """All cases as Markdown; medians of the steps."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'|'.join('---' for _ in HEADINGS)}|"]
    for width in widths:
        off = measure("off", "statistics", width)
        lines.append(_line("off", "", width, "", off, off))
        for task, reader, level in itertools.product(tasks, readers, levels):
            lines.append(_line(level, task, width, reader, measure(level, task, width, reader), off))
    return "\n".join(lines) + "\n"


def _line(level: str, task: str, width: int, reader: str, steps: Sequence[Step], off: Sequence[Step]) -> str:
    def median(of: Sequence[Step], name: str) -> float:
        return statistics.median(getattr(step, name) for step in of)

    records, tensors = median(steps, "records"), median(steps, "tensors")
    added = median(steps, "launches") - median(off, "launches")
    micros = 1e6 * (median(steps, "seconds") - median(off, "seconds"))
    held = (median(steps, "bytes_held") - median(off, "bytes_held")) / 1024
    cells = (
        level,
        task,
        str(width),
        reader,
        f"{median(steps, 'launches'):.0f}",
        f"{added:.0f}",
        f"{added / tensors:.1f}" if tensors else "",
        f"{median(steps, 'waits'):.0f}",
        f"{median(steps, 'waits_in_stop'):.0f}",
        f"{held:.0f}",
        f"{micros / records:.0f}" if records else "",
        f"{records:.0f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    place, asked_level, asked_task, asked_width, asked_reader = sys.argv[1:]
    found = train(Path(place) / "dump", asked_level, asked_task, int(asked_width), asked_reader)
    print(json.dumps([vars(step) for step in found]))
