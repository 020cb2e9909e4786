"""What recording the replays of a captured graph costs (``"graphs": "record"``): see ``--replays`` of run.py.

``replays.py FOLDER LEVEL WIDTH READER`` runs one case in this process and prints a line of JSON: a GPT of two layers
without gradients, captured once and replayed as often as ``REPLAYS`` on a simulated accelerator (tests/simdev).
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import device

REPLAYS = 20
HEADINGS = (
    "level", "width", "reader", "kernels in the graph", "added", "launches of the host a replay", "waits before stop",
    "host ms/replay", "records a replay",
)  # fmt: skip


@dataclass(frozen=True)
class Replays:
    """Of one run: kernels of the graph; of a replay what the host launches, and the median CPU time of the thread that
    calls it, in seconds; waits of all replays; records of a replay. Not memory: a simulated graph uses none twice.
    """

    kernels: int
    launches: int
    waits: int
    seconds: float
    records: int


def run(folder: Path, level: str, width: int, reader: str) -> Replays:
    """One graph, recorded unless ``level`` is "off"."""
    sys.path[:0] = [str(device.HERE.parent), str(device.REPOSITORY / "tests")]
    import simdev
    import torch
    from models import GPT, Size

    sim: Any = simdev.load()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = Size("device", width=width, heads=4, batch=3, length=16, vocabulary=50, layers=2)
    model = GPT(size).to("sim").eval()
    ids = torch.randint(0, size.vocabulary, (size.batch, size.length)).to("sim")
    sim.offer_rows(reader == "kernel")
    debugger = None
    if level != "off":
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level=level, graphs="record")
        debugger.start(model)
    graph = simdev.Graph()
    with torch.no_grad(), graph.capture():
        model(ids)
    waits, launches, seconds = sim.waits(), [], []
    for _ in range(REPLAYS):
        begun, launched = time.thread_time(), sim.launches()
        graph.replay()
        seconds.append(time.thread_time() - begun)
        launches.append(sim.launches() - launched)
    waits = sim.waits() - waits
    torch.sim.synchronize()  # type: ignore[attr-defined]
    records = 0
    if debugger is not None:
        debugger.stop()
        debugger.step()
        (dump,) = folder.glob("step0/*/dump.json")
        records = len(json.loads(dump.read_text())["data"]) // REPLAYS
    return Replays(
        graph.kernels, int(statistics.median(launches)), waits, statistics.median(seconds), records
    )  # fmt: skip


def table(levels: Sequence[str], widths: Sequence[int], readers: Sequence[str]) -> str:
    """All cases as Markdown."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'|'.join('---' for _ in HEADINGS)}|"]
    for width in widths:
        off = Replays(**device.in_a_process("replays.py", "off", str(width), ""))
        lines.append(_line("off", width, "", off, off))
        for reader, level in itertools.product(readers, levels):
            case = Replays(**device.in_a_process("replays.py", level, str(width), reader))
            lines.append(_line(level, width, reader, case, off))
    return "\n".join(lines) + "\n"


def _line(level: str, width: int, reader: str, case: Replays, off: Replays) -> str:
    cells = (
        level, width, reader, case.kernels, case.kernels - off.kernels, case.launches, case.waits,
        f"{case.seconds * 1e3:.2f}", case.records,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    place, asked_level, asked_width, asked_reader = sys.argv[1:]
    print(json.dumps(vars(run(Path(place) / "dump", asked_level, int(asked_width), asked_reader))))
