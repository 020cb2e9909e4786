"""What comparing costs: CPU time, wall time and memory of one `compare` command, for us and the published package.

    python bench/compare/run.py [--quick] [--only NAME,NAME] [--tools ours,8.1.1,26.2.0] [--json FILE]

Each command runs in a fresh process on one computing thread, start-up included. CPU is user and system time of the
process and its children, memory the largest resident set of any of them. MB/s is bytes of both sides by CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from dumps import write_statistics, write_tensors  # noqa: E402
from reference_env import clean_environment, command_of, make  # noqa: E402
from transformer import records_of, write_pair  # noqa: E402

REPOSITORY = HERE.parent.parent
TOOLS = ("ours", "8.1.1", "26.2.0")
# Calls of a dump of statistics; a call has 2.6 rows. The published package is not asked for the last.
SIZES = {"2k": 786, "10k": 3929, "41k": 15_716, "1M": 384_616}
# What `msprobe compare A B` is asked: the verdict. The published package has nothing like it.
VERDICTS = {"20k": 7693}
# The same of training steps of a transformer: layers, steps, and whether a bug is planted in the middle of them.
TRANSFORMERS = {"100k records": (1562, 1, False), "100k records, bug": (1562, 1, True), "20 steps": (73, 20, False)}
TENSORS = {"2000 x 1 KiB": (2000, 1 << 10), "200 x 1 MiB": (200, 1 << 20), "8 x 32 MiB": (8, 32 << 20)}
TIMEOUT = 900


@dataclass(frozen=True)
class Case:
    """Two dumps, and the forms of output that are measured."""

    name: str
    folders: tuple[Path, Path]
    size: str
    nbytes: int = 0
    formats: tuple[str, ...] = ("xlsx", "csv")
    flags: tuple[str, ...] = ()
    slow: bool = False


@dataclass(frozen=True)
class Measure:
    """One command."""

    case: str
    size: str
    tool: str
    form: str
    cpu: float
    wall: float
    memory_mb: float
    megabytes_a_second: float | None


def cases(below: Path, wanted: Callable[[str], bool]) -> Iterator[Case]:
    """The wanted cases; the dumps of each are written when it is reached."""
    for name, calls in SIZES.items():
        if wanted(f"statistics {name}"):
            pair, rows = _statistics(below / f"s{name}", calls)
            yield Case(f"statistics {name}", pair, f"{rows} rows", slow=calls > 20_000)
    if wanted("md5 10k"):
        pair, rows = _statistics(below / "md5", SIZES["10k"], md5=True)
        yield Case("md5 10k", pair, f"{rows} rows")
        yield Case("fuzzy md5 10k", pair, f"{rows} rows", flags=("fuzzy",), formats=("xlsx",))
    for name, calls in VERDICTS.items():
        if wanted(f"verdict {name}"):
            pair, rows = _statistics(below / f"v{name}", calls)
            yield Case(f"verdict {name}", pair, f"{rows} rows", formats=("verdict",))
    for name, (layers, steps, planted) in TRANSFORMERS.items():
        if wanted(f"verdict transformer {name}"):
            pair = write_pair(below / f"transformer-{layers}-{planted}", layers, steps, planted)
            size = f"{steps} x {records_of(pair[0])} records" if steps > 1 else f"{records_of(pair[0])} records"
            yield Case(f"verdict transformer {name}", pair, size, formats=("verdict",))
    for name, (count, nbytes) in TENSORS.items():
        if wanted(f"tensors {name}"):
            pair = below / f"t{count}-1", below / f"t{count}-2"
            for seed, folder in enumerate(pair, 1):
                write_tensors(folder, count, nbytes, seed)
            yield Case(f"tensors {name}", pair, f"{2 * count * nbytes >> 20} MiB", 2 * count * nbytes)


def _statistics(below: Path, calls: int, md5: bool = False) -> tuple[tuple[Path, Path], int]:
    pair = below / "1", below / "2"
    rows = [write_statistics(folder, calls, seed, md5) for seed, folder in enumerate(pair, 1)]
    return pair, max(rows)


def command(tool: str, case: Case, form: str, output: Path) -> list[str] | None:
    """The command line; None if the tool has no such form."""
    dumps = [str(file if (file := folder / "dump.json").exists() else folder) for folder in case.folders]
    if form == "verdict":
        return (
            [sys.executable, "-m", "msprobe", "compare", *dumps, "-o", str(output), "--fail-on", "never"]
            if tool == "ours"
            else None
        )
    if tool == "26.2.0" or (tool == "ours" and form == "csv"):
        program = [str(command_of(tool))] if tool != "ours" else [sys.executable, "-m", "msprobe"]
        flags = ["--xlsx"] if form == "xlsx" else []
        flags += ["-fm"] if "fuzzy" in case.flags else []
        return [*program, "compare", "-tp", dumps[0], "-gp", dumps[1], "-o", str(output), *flags]
    if form == "csv":
        return None
    program = [str(command_of(tool))] if tool != "ours" else [sys.executable, "-m", "msprobe"]
    asked = output / "compare.json"
    asked.write_text(json.dumps({"npu_path": dumps[0], "bench_path": dumps[1], "is_print_compare_log": False}))
    flags = ["-f"] if "fuzzy" in case.flags else []
    return [*program, "-f", "pytorch", "compare", "-i", str(asked), "-o", str(output), *flags]


def measure(tool: str, case: Case, form: str) -> Measure | None:
    """Run one command and measure it; None if the tool cannot, or fails."""
    with tempfile.TemporaryDirectory() as folder:
        words = command(tool, case, form, Path(folder))
        if words is None:
            return None
        environment = clean_environment()
        if tool == "ours":
            environment |= {"PYTHONPATH": str(REPOSITORY / "src"), "MSPROBE_LOG_LEVEL": "2"}
        watcher = [sys.executable, __file__, "--watch", *words]
        started = time.perf_counter()
        try:
            done = subprocess.run(watcher, env=environment, capture_output=True, text=True, cwd=folder, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return None
        wall = time.perf_counter() - started
        if done.returncode != 0 or not [*Path(folder).glob("compare_result_*"), *Path(folder).glob("verdict.json")]:
            print(f"{tool}, {case.name}, {form}: failed", file=sys.stderr)
            return None
    found = json.loads(done.stdout.splitlines()[-1])
    speed = case.nbytes / 1e6 / found["cpu"] if case.nbytes else None
    return Measure(case.name, case.size, tool, form, found["cpu"], wall, found["memory"], speed)


def watch(words: list[str]) -> int:
    """Run a command and say what it used, in a process that has nothing else to account for."""
    status = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss / 1024}))
    return status


def table(found: list[Measure]) -> str:
    """The measures as a table in Markdown."""
    lines = ["| case | size | tool | output | CPU s | wall s | memory MB | MB/s |", "|---|---|---|---|---|---|---|---|"]
    for m in found:
        speed = f"{m.megabytes_a_second:.0f}" if m.megabytes_a_second else ""
        lines.append(
            f"| {m.case} | {m.size} | {m.tool} | {m.form} | {m.cpu:.2f} | {m.wall:.2f} | {m.memory_mb:.0f} | {speed} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the dump of a million rows")
    parser.add_argument("--only", default="", help="parts of the names of cases, with commas")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    parser.add_argument("--temporary", type=Path, help="where the dumps are written (some GB)")
    args = parser.parse_args()
    tools = args.tools.split(",")
    for tool in tools:
        if tool != "ours":
            make(tool)

    def wanted(name: str) -> bool:
        return any(part in name for part in args.only.split(",")) and not (args.quick and name.endswith(" 1M"))

    found: list[Measure] = []
    with tempfile.TemporaryDirectory(dir=args.temporary) as folder:
        for case in cases(Path(folder), wanted):
            for tool in tools:
                for form in case.formats:
                    if case.slow and tool != "ours":
                        continue
                    measured = measure(tool, case, form)
                    if measured is not None:
                        found.append(measured)
                        print(table([measured]).splitlines()[-1], flush=True)
    print("\n" + table(found))
    if args.json:
        args.json.write_text(json.dumps([asdict(m) for m in found], indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        sys.exit(watch(sys.argv[2:]))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
