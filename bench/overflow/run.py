"""What the search of the first bad value costs: CPU time and memory of ``msprobe nan_analyze``, a process each.

    python bench/overflow/run.py [--ranks 8] [--calls 20000] [--reference PYTHON]

``--reference`` is the Python of an environment with mindstudio-probe 8.1.1 (bench/reference_env.py makes one).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from dumps import write


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds and megabytes of a process."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Write the dumps, search them, print a line for each program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--reference")
    options = parser.parse_args()
    programs = {"msprobe": [sys.executable, "-m", "msprobe"]}
    if options.reference:
        programs["mindstudio-probe"] = [str(Path(options.reference).parent / "msprobe")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bad_rank, bad_call = options.ranks // 2, options.calls * 4 // 5 + 10
        true = write(folder / "dump", options.ranks, options.calls, bad_rank, bad_call)
        size = sum(file.stat().st_size for file in (folder / "dump").rglob("*.json")) / 1e6
        print(f"{options.ranks} ranks x {options.calls} calls, {size:.0f} MB")
        for word, program in programs.items():
            out = folder / word
            step = str(folder / "dump" / "step0")
            seconds, megabytes = measured(
                [*program, "-f", "pytorch", "nan_analyze", "-i", step, "-o", str(out)], folder
            )
            (file,) = out.glob("anomaly_analyze_*.json")
            found = json.loads(file.read_text())
            right = found.get(f"rank_{bad_rank}", [{}])[0].get("op_name") == true
            print(f"{word}: {seconds:.2f} s CPU, {megabytes:.0f} MB, {'right' if right else 'wrong'}")


if __name__ == "__main__":
    main()
