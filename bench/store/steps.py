"""What a step costs the store, besides its records: many short steps, each in a folder of its own.

    python bench/store/steps.py [--steps 1000] [--records 100] [--below FOLDER] [--json FILE]

A step is what a tiny model gives: RECORDS calls of one tensor in and one out, each with a stack and a parent, then
stop and step. For each phase the median over all steps of CPU time (of the thread) and wall time in microseconds:
"open" until the journal takes records, "put" for all records (making the trees is not counted), "stop" and "step"
for the two publishes. Between the phases four megabytes are copied, for a training leaves nothing of ours in the
processor's caches either. "whole" is the process CPU of a step with what background threads did, as a mean. With
strace at hand the calls of the system in a step are counted too.

What a new file costs depends on the disk, and on how many files were removed near to it of late (ext4 passes over
all of them for half a minute, at each new file): it is told beside the result, and `--below` chooses another place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SRC = REPOSITORY / "src"
PHASES = ("open", "put", "stop", "step")
STACKS = 40
WARM_UP = 20
SWEPT_BYTES = 4 << 20


class Clock:
    """CPU and wall time of named phases, one entry for each step, and the CPU of what comes between them."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.wall: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self.between = 0.0
        self._swept = bytearray(SWEPT_BYTES)

    def run(self, phase: str, work: Callable[..., object], *arguments: object) -> None:
        before = time.thread_time()
        bytes(self._swept)
        wall, cpu = time.perf_counter(), time.thread_time()
        work(*arguments)
        self.cpu[phase].append(time.thread_time() - cpu)
        self.wall[phase].append(time.perf_counter() - wall)
        self.between += cpu - before


def tree(number: int) -> dict[str, object]:
    """A forward record of one tensor in and one out."""
    tensor = {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 16, 64], "Max": 1.0 + number * 1e-6,
        "Min": -1.0, "Mean": 0.001, "Norm": 31.25, "requires_grad": True,
    }  # fmt: skip
    return {"input_args": [tensor, 2], "input_kwargs": {}, "is_recompute": False, "output": [tensor]}


def measure(steps: int, records: int, below: Path) -> dict[str, Any]:
    from msprobe.capture.native import encode
    from msprobe.store import durable
    from msprobe.store.writer import DumpWriter

    trees = [tree(number) for number in range(records)]
    names = [f"Functional.linear.{number}.forward" for number in range(records)]
    parents = [f"Module.block.{number // 8}.Linear.forward.0" for number in range(records)]
    frames = [[f'File "train.py", line {10 * s + f}, in step' for f in range(12)] for s in range(STACKS)]
    header: dict[str, object] = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    clock = Clock()
    whole_cpu = 0.0
    new_file = cost_of_a_new_file(below)

    def put(writer: DumpWriter) -> None:
        for number in range(records):
            if number < STACKS:
                writer.define_stack(number, frames[number])
            writer.put_call(names[number], trees[number], number % STACKS, parents[number])

    for step in range(steps + WARM_UP):
        if step == WARM_UP:
            clock = Clock()
            whole_cpu = time.process_time()
        writer = DumpWriter(below / f"step{step}" / "rank", header, encode=encode)
        clock.run("open", writer.open)
        clock.run("put", put, writer)
        clock.run("stop", writer.publish, False)
        clock.run("step", writer.publish, True)
        if writer.failed:
            raise SystemExit("writing failed, see the log")
    durable.drain()
    whole_cpu = time.process_time() - whole_cpu - clock.between
    encoding = []
    for _ in range(20):
        started = time.thread_time()
        for number in range(records):
            encode(trees[number], 2)
        encoding.append(time.thread_time() - started)
    result: dict[str, Any] = {
        phase: {
            "cpu_us": statistics.median(clock.cpu[phase]) * 1e6,
            "wall_us": statistics.median(clock.wall[phase]) * 1e6,
        }
        for phase in PHASES
    }
    result["whole"] = {"cpu_us": whole_cpu / steps * 1e6}
    result["put_call_us_beside_encode"] = (result["put"]["cpu_us"] - statistics.median(encoding) * 1e6) / records
    result["new_file_us"] = {"before": new_file, "after": cost_of_a_new_file(below)}
    return result


def cost_of_a_new_file(below: Path) -> float:
    """CPU time of making an empty file, in microseconds."""
    folder = Path(tempfile.mkdtemp(prefix="new-", dir=below))
    times = []
    for number in range(30):
        started = time.thread_time()
        os.close(os.open(folder / str(number), os.O_WRONLY | os.O_CREAT))
        times.append(time.thread_time() - started)
    return statistics.median(times) * 1e6


def calls(steps: int, records: int, below: Path) -> dict[str, float]:
    """Calls of the system in one step, by name: of `steps` steps more, so that starting does not count."""
    found = []
    for count in (1, steps + 1):
        folder = Path(tempfile.mkdtemp(dir=below))
        asked = ["--phase", "--steps", str(count), "--records", str(records), "--below", str(folder)]
        trace = folder / "trace"
        subprocess.run(
            ["strace", "-f", "-c", "-o", str(trace), sys.executable, __file__, *asked],
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        rows = [line.split() for line in trace.read_text().splitlines()[2:]]
        found.append({row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit()})
    few, many = found
    each = {name: (many[name] - few.get(name, 0)) / steps for name in many if name not in ("total", "clock_gettime")}
    return {name: round(count, 1) for name, count in sorted(each.items()) if count >= 0.3}


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--below", type=Path, help="where the dumps go; removed afterwards")
    parser.add_argument("--json", type=Path, help="also write everything measured here")
    parser.add_argument("--phase", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.phase:
        sys.path.insert(0, str(SRC))
        print(json.dumps(measure(asked.steps, asked.records, asked.below)))
        return
    below = asked.below or REPOSITORY / ".bench"
    below.mkdir(exist_ok=True, parents=True)
    folder = Path(tempfile.mkdtemp(prefix="steps-", dir=below))
    try:
        command = [sys.executable, __file__, "--phase", "--steps", str(asked.steps)]
        command += ["--records", str(asked.records), "--below", str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        if shutil.which("strace"):
            result["calls"] = calls(200, asked.records, folder)
    finally:
        shutil.rmtree(folder)
    print("| phase | CPU µs | wall µs |\n|---|---|---|")
    for phase in PHASES:
        print(f"| {phase} | {result[phase]['cpu_us']:.0f} | {result[phase]['wall_us']:.0f} |")
    print(f"| whole | {result['whole']['cpu_us']:.0f} | |")
    fixed = sum(result[phase]["cpu_us"] for phase in PHASES if phase != "put")
    print(f"\nbesides the records: {fixed:.0f} µs CPU")
    print(f"put_call beside encode: {result['put_call_us_beside_encode']:.2f} µs")
    new_file = result["new_file_us"]
    print(f"an empty file costs {new_file['before']:.0f} µs here before, {new_file['after']:.0f} µs after")
    if "calls" in result:
        listed = ", ".join(f"{name} {count:g}" for name, count in result["calls"].items())
        print(f"calls of the system in a step: {sum(result['calls'].values()):.0f} ({listed})")
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
