"""Do time and memory grow with the ranks? Dumps of up to 1,024 ranks with one planted fault, a process per command.

    python bench/scale/run.py [--ranks 8,64,256,1024] [--records 5000] [--commands nan_analyze,check,compare,checkpoint]

Each line: wall and CPU seconds, the largest memory of the command with all its processes, and whether the first thing
that it says names the rank and the call. ``--folder`` is where the dumps go (about 1 kB a record; they are removed).
``--jobs``, ``--engine``: handed on to the commands that have them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dumps import Planted, write

_BYTES_A_RECORD = 1300


@dataclass(frozen=True)
class Cost:
    """Seconds of wall and CPU; megabytes of the process and of those that it started, together."""

    wall: float
    cpu: float
    megabytes: float


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


def _write_checkpoints(folder: Path, ranks: int) -> Planted:
    """Eight ranks share each layer; one number of one layer is another one in the second checkpoint."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    import megatron_made

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


COMMANDS = {"nan_analyze": nan_analyze, "check": check, "compare": compare, "checkpoint": checkpoint}
_ON_DUMPS = ("nan_analyze", "check", "compare")


def _measure(name: str, folder: Path, planted: Planted, options: argparse.Namespace) -> None:
    out = folder / f"out-{name}"
    words, answer = COMMANDS[name](folder / "bad", out)
    words += ["--jobs", str(options.jobs)] if options.jobs else []
    words += ["--engine", options.engine] if options.engine != "local" else []
    out.mkdir()
    cost = measured([sys.executable, "-m", "msprobe", *words], folder)
    try:
        right = answer() == (planted.rank if planted.rank >= 0 else None, planted.call)
    except (OSError, ValueError, LookupError) as problem:
        right = False
        print(f"no answer of {name}: {problem}", file=sys.stderr)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    said = "right" if right else "wrong"
    print(f"{name:12} {cost.wall:8.1f} s {cost.cpu:8.1f} s CPU {cost.megabytes:7.0f} MB  {said}", flush=True)


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
    for ranks in map(int, options.ranks.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="scale-") as name:
            folder = Path(name)
            needed = ranks * options.records * _BYTES_A_RECORD * (2 if "compare" in names else 1)
            if shutil.disk_usage(folder).free < 1.2 * needed:
                raise SystemExit(f"{ranks} ranks need {needed / 1e9:.1f} GB in {folder.parent}; name another --folder.")
            begun = time.perf_counter()
            planted: dict[str, Planted] = {}
            if not names.isdisjoint(_ON_DUMPS):
                written = write(folder / "bad", ranks, options.records, ranks * 5 // 8)
                assert written is not None
                planted = dict.fromkeys(_ON_DUMPS, written)
            if "compare" in names:
                write(folder / "healthy", ranks, options.records)
            if "checkpoint" in names:
                planted["checkpoint"] = _write_checkpoints(folder, ranks)
            size = sum(file.stat().st_size for file in (folder / "bad").rglob("dump.json")) / 1e6
            took = time.perf_counter() - begun
            print(f"{ranks} ranks x {options.records} records, {size:.0f} MB, written in {took:.1f} s", flush=True)
            for command in [name for name in COMMANDS if name in names]:
                _measure(command, folder, planted[command], options)


if __name__ == "__main__":
    main()
