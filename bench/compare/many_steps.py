"""What a run of many steps costs: memory that does not grow with them, each step judged once.

    python bench/compare/many_steps.py [--steps 100,1000] [--ranks 2] [--calls 40]

Two dumps of so many steps and ranks are written, each part a small one of ``--calls`` calls; `msprobe compare` and
`msprobe check` run over them in a process of their own. Memory is the largest resident set of that process, and what
Python's allocator had in use at most (tracemalloc, in a run of its own, as it slows the work).

Measured with ``--steps 100,400 --ranks 4 --calls 20``: `compare` 36 MB and 38 MB resident, 0.8 MB and 2.6 MB traced, so
1.5 kB for each part of both dumps, which are names of folders; `check` 36 MB and 36 MB, 0.6 MB and 1.1 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from dumps import write_statistics  # noqa: E402

REPOSITORY = HERE.parent.parent
_PROGRAM = """
import json, resource, sys, tracemalloc
traced = sys.argv[1] == "traced"
from msprobe.diagnose import compare_runs
from msprobe.diagnose.check import check_run
if traced:
    tracemalloc.start()
what, *dumps = sys.argv[2:]
result = compare_runs(*dumps) if what == "compare" else check_run(*dumps)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "status": result.status,
    "steps": result.summary.get("steps_compared", result.summary.get("steps")),
    "cpu": used.ru_utime + used.ru_stime,
    "resident": used.ru_maxrss / 1024,
    "peak": tracemalloc.get_traced_memory()[1] / 1e6 if traced else 0.0,
}))
"""


def write_run(folder: Path, steps: int, ranks: int, calls: int, seed: int) -> Path:
    """A dump of which all steps are links to the files of the first."""
    for rank in range(ranks):
        first = folder / "step0" / f"rank{rank}"
        write_statistics(first, calls, seed)
        for step in range(1, steps):
            part = folder / f"step{step}" / f"rank{rank}"
            part.mkdir(parents=True)
            for file in first.iterdir():
                os.link(file, part / file.name)
    return folder


def measure(what: str, dumps: list[Path], traced: bool) -> dict[str, float]:
    """Run ``what`` over the dumps in a fresh process."""
    words = [sys.executable, "-c", _PROGRAM, "traced" if traced else "free", what, *map(str, dumps)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="100,1000", help="how many, with commas")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--calls", type=int, default=40, help="calls of a part")
    parser.add_argument("--temporary", type=Path, help="where the dumps are written")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("| command | steps x ranks | steps judged | status | CPU s | resident MB | traced peak MB |")
    print("|---|---|---|---|---|---|---|")
    for steps in map(int, args.steps.split(",")):
        with tempfile.TemporaryDirectory(dir=args.temporary) as below:
            one = write_run(Path(below) / "one", steps, args.ranks, args.calls, 1)
            other = write_run(Path(below) / "other", steps, args.ranks, args.calls, 1)
            for what, dumps in (("compare", [one, other]), ("check", [one])):
                free, traced = measure(what, dumps, False), measure(what, dumps, True)
                print(
                    f"| {what} | {steps} x {args.ranks} | {free['steps']} | {free['status']} | {free['cpu']:.1f} "
                    f"| {free['resident']:.0f} | {traced['peak']:.1f} |",
                    flush=True,
                )
            shutil.rmtree(below, ignore_errors=True)
            os.makedirs(below, exist_ok=True)


if __name__ == "__main__":
    main()
