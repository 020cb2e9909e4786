"""Do time and memory grow with the ranks? Dumps of up to 1,024 ranks with one planted fault, a process per command.

    python bench/scale/run.py [--ranks 8,64,256,1024] [--records 5000] [--commands nan_analyze,check,compare,checkpoint]

Each line: wall and CPU seconds, the largest memory of the command with all its processes, the bytes of its files, and
whether it is right: the first thing that it says names the rank and the call, or its files have all ranks. At the end:
the exponent of each between the smallest and the largest number of ranks (1: what grows with the ranks), without what
the command costs on one rank. ``--folder`` is where the dumps go (about 1 kB a record; they are removed).
``--jobs``, ``--engine``: handed on to the commands that have them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from dumps import Planted, write

_BYTES_A_RECORD = 1300


@dataclass(frozen=True)
class Cost:
    """Seconds of wall and CPU; megabytes of the process and of those that it started, together; those of its files."""

    wall: float
    cpu: float
    megabytes: float
    written: float = 0.0


class Memory(threading.Thread):
    """Watches how much memory a process and its descendants have, until it is told to stop."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.most = 0.0
        self._root = root
        self._over = threading.Event()

    def run(self) -> None:
        """Look ten times a second."""
        while not self._over.wait(0.1):
            self.most = max(self.most, sum(map(_megabytes, _family(self._root))))

    def stop(self) -> float:
        """The most that was seen."""
        self._over.set()
        self.join()
        return self.most


def _family(root: int) -> list[int]:
    found = [root]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _megabytes(process: int) -> float:
    """What a process has for itself; of memory that several share, its part."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except (OSError, ValueError):
        pass
    return 0.0


def measured(command: list[str], folder: Path) -> Cost:
    """Run a command and say what it cost; its status does not matter."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    memory = Memory(process.pid)
    memory.start()
    _, _, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    # Not its largest resident set, which begins as that of this process.
    return Cost(wall, used.ru_utime + used.ru_stime, memory.stop())


def nan_analyze(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """The command, and what reads rank and call from its answer."""

    def answer() -> tuple[object, object]:
        (file,) = out.glob("anomaly_analyze_*.json")
        rank, entries = next(iter(json.loads(file.read_text()).items()))
        return int(rank.removeprefix("rank_")), entries[0]["op_name"]

    return ["nan_analyze", "-i", str(dump / "step0"), "-o", str(out)], answer


def check(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """As above."""
    return ["check", str(dump), "-o", str(out)], lambda: _first_finding(out / "check.json")


def compare(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """As above."""
    command = ["compare", str(dump), str(dump.with_name("healthy")), "-o", str(out)]
    return command, lambda: _first_finding(out / "verdict.json")


def checkpoint(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """As above, of two checkpoints of Megatron with a file of each rank: its answer is the changed parameter."""
    result = out / "checkpoint.json"
    command = ["config_check", "-c", str(dump.with_name("one")), str(dump.with_name("two")), "-o", str(result)]

    def answer() -> tuple[object, object]:
        rows = (out / "checkpoint_table.csv").read_text().splitlines()
        return None, rows[1].split(",")[3]  # the first row is the worst

    return command, answer


def sheets(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """The verdict with a sheet of each rank: its answer is how many there are."""
    command = ["compare", str(dump), str(dump.with_name("healthy")), "-o", str(out), "--csv"]
    return command, lambda: (None, _of_ranks(len(list(out.glob("compare_result_*.csv")))))


def merge(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """The sheets of all ranks, which are made before, in one workbook."""
    made = out.with_name("made-sheets")
    steps = [str(dump / "step0"), str(dump.with_name("healthy") / "step0")]
    made.mkdir()
    command = [sys.executable, "-m", "msprobe", "compare", "-tp", steps[0], "-gp", steps[1], "-o", str(made)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    settings = out.with_name("merge.yaml")
    settings.write_text("api: [Functional.linear]\n")

    def answer() -> tuple[object, object]:
        (file,) = out.glob("*.xlsx")
        ranks = len(list(made.glob("compare_result_*.csv"))) if file.stat().st_size else 0
        shutil.rmtree(made)
        return None, _of_ranks(ranks)

    return ["merge_result", "-i", str(made), "-o", str(out), "-config", str(settings)], answer


def graph(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """The graphs of all ranks, compared, in one file."""
    command = ["graph_visualize", "-tp", str(dump), "-gp", str(dump.with_name("healthy")), "-o", str(out)]

    def answer() -> tuple[object, object]:
        (file,) = out.glob("*.vis.db")
        (row,) = sqlite3.connect(file).execute("SELECT rank_list FROM tb_config")
        return None, _of_ranks(len(json.loads(row[0])))

    return command, answer


def view(dump: Path, out: Path) -> tuple[list[str], Callable[[], tuple[object, object]]]:
    """The page of both dumps, opened as for a browser, with its first place and the grid of all ranks."""
    program = (
        "import json, sys\n"
        "from msprobe.view.opening import open_source\n"
        "source = open_source(sys.argv[1:3])\n"
        "source.prepare()\n"
        "source.overview()\n"
        "open(sys.argv[3], 'w').write(json.dumps(len(source.ranks(0)['ranks'])))\n"
        "source.close()\n"
    )
    answer = out / "ranks.json"
    command = ["-c", program, str(dump), str(dump.with_name("healthy")), str(answer)]
    return command, lambda: (None, _of_ranks(json.loads(answer.read_text())))


def _of_ranks(count: int) -> str:
    return f"{count} ranks"


def _write_checkpoints(folder: Path, ranks: int) -> Planted:
    """Eight ranks share each layer; one number of one layer is another one in the second checkpoint."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    from support import megatron_made

    stages = max(ranks // 8, 1)
    model = megatron_made.dense(layers=stages)
    megatron_made.save(folder / "one", model, tp=8, pp=stages)
    name = f"decoder.layers.{stages * 5 // 8}.self_attention.linear_qkv.weight"
    model[name] = model[name].clone()
    model[name][13, 3] += 1
    megatron_made.save(folder / "two", model, tp=8, pp=stages)
    return Planted(-1, name)


def _first_finding(file: Path) -> tuple[object, object]:
    found = json.loads(file.read_text())["findings"]
    return (found[0]["rank"], found[0]["entry"]) if found else (None, None)


COMMANDS = {
    "nan_analyze": nan_analyze,
    "check": check,
    "compare": compare,
    "checkpoint": checkpoint,
    "sheets": sheets,
    "merge": merge,
    "graph": graph,
    "view": view,
}
_ON_DUMPS = ("nan_analyze", "check", "compare")
_OF_ALL_RANKS = ("sheets", "merge", "graph", "view")
_ON_PAIRS = ("compare", *_OF_ALL_RANKS)
_WITHOUT_JOBS = ("merge", "view")


def _measure(name: str, folder: Path, planted: Planted, options: argparse.Namespace) -> Cost:
    out = folder / f"out-{name}"
    words, answer = COMMANDS[name](folder / "bad", out)
    if name not in _WITHOUT_JOBS:
        words += ["--jobs", str(options.jobs)] if options.jobs else []
        words += ["--engine", options.engine] if options.engine != "local" else []
    out.mkdir()
    program = [] if words[0] == "-c" else ["-m", "msprobe"]
    cost = measured([sys.executable, *program, *words], folder)
    written = sum(file.stat().st_size for file in out.rglob("*") if file.is_file()) / 1e6
    cost = replace(cost, written=written)
    try:
        right = answer() == (planted.rank if planted.rank >= 0 else None, planted.call)
    except (OSError, ValueError, LookupError) as problem:
        right = False
        print(f"no answer of {name}: {problem}", file=sys.stderr)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    said = "right" if right else "wrong"
    costs = f"{cost.wall:8.1f} s {cost.cpu:8.1f} s CPU {cost.megabytes:7.0f} MB {written:8.1f} MB of files"
    print(f"{name:12} {costs}  {said}", flush=True)
    return cost


def _exponent(name: str, costs: dict[int, Cost], base: Cost) -> str:
    """How each cost grows between the smallest and the largest number of ranks, without that of one rank."""
    small, large = min(costs), max(costs)

    def grown(of: Callable[[Cost], float]) -> str:
        first, last, least = of(costs[small]), of(costs[large]), of(base)
        # A command of half a second is mostly its start.
        if first - least <= 0.05 * first or last - least <= 0:
            return "none"
        return f"{math.log((last - least) / (first - least)) / math.log(large / small):.2f}"

    of_cpu, of_memory, of_files = grown(lambda one: one.cpu), grown(lambda one: one.megabytes), "none"
    if costs[small].written > 0:
        of_files = f"{math.log(costs[large].written / costs[small].written) / math.log(large / small):.2f}"
    return f"{name:12} exponent of CPU {of_cpu}, memory {of_memory}, files {of_files}"


def main() -> None:
    """Write the dumps of each size, run the commands on them, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="8,64,256,1024")
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--engine", default="local")
    options = parser.parse_args()
    names = set(options.commands.split(","))
    sizes = sorted(map(int, options.ranks.split(",")))
    costs: dict[str, dict[int, Cost]] = {name: {} for name in COMMANDS if name in names}
    for ranks in [*([1] if len(sizes) > 1 else []), *sizes]:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="scale-") as name:
            folder = Path(name)
            is_pair = not names.isdisjoint(_ON_PAIRS)
            needed = ranks * options.records * _BYTES_A_RECORD * (2 if is_pair else 1)
            if shutil.disk_usage(folder).free < 1.2 * needed:
                raise SystemExit(f"{ranks} ranks need {needed / 1e9:.1f} GB in {folder.parent}; name another --folder.")
            begun = time.perf_counter()
            planted: dict[str, Planted] = {}
            if not names.isdisjoint((*_ON_DUMPS, *_ON_PAIRS)):
                written = write(folder / "bad", ranks, options.records, ranks * 5 // 8)
                assert written is not None
                planted = dict.fromkeys(_ON_DUMPS, written)
                planted |= dict.fromkeys(_OF_ALL_RANKS, Planted(-1, _of_ranks(ranks)))
            if is_pair:
                write(folder / "healthy", ranks, options.records)
            if "checkpoint" in names:
                planted["checkpoint"] = _write_checkpoints(folder, ranks)
            size = sum(file.stat().st_size for file in (folder / "bad").rglob("dump.json")) / 1e6
            took = time.perf_counter() - begun
            print(f"{ranks} ranks x {options.records} records, {size:.0f} MB, written in {took:.1f} s", flush=True)
            for command, of_command in costs.items():
                of_command[ranks] = _measure(command, folder, planted[command], options)
    for command, of_command in costs.items() if len(sizes) > 1 else ():
        base = of_command.pop(1) if 1 not in sizes else of_command[1]
        print(_exponent(command, of_command, base), flush=True)


if __name__ == "__main__":
    main()
