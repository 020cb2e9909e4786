"""What does a verdict on whole tensors cost, beside reading them, subtracting and taking a norm?

    python bench/scale/tensors.py [--megabytes 1000] [--files 2000] [--apart 0,0.1,1] [--rounds 3] [--jobs 1]

Two dumps of so many megabytes and files each; ``--apart``: the share of tensors whose values are apart by rounding of
their type. The limit is the least that any comparison does: each file is read once by ``read`` into a buffer that is
there, both are subtracted and the norms of the difference and of both are taken (numpy, float32, no checks). Limit and
verdict (``msprobe compare``, its start included) take turns; the smallest processor seconds of each count, and
the ratio is of one run. ``--folder``: where the dumps go; in the page cache they cost no disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
one, other = (sorted(Path(folder).rglob("*.pt")) for folder in sys.argv[1:3])
begun = time.process_time()
size = max(path.stat().st_size for path in one) + 4
mine, theirs = bytearray(size), bytearray(size)
total = 0.0
for left, right in zip(one, other, strict=True):
    arrays = []
    for path, room in ((left, mine), (right, theirs)):
        with open(path, "rb", buffering=0) as file:
            count = file.readinto(room)
        arrays.append(np.frombuffer(room, np.float32, count // 4))
    apart = arrays[0] - arrays[1]
    total += float(np.linalg.norm(apart)) / max(float(np.linalg.norm(one)) for one in arrays)
print(time.process_time() - begun)
"""


def write(folder: Path, files: int, elements: int, apart: float) -> None:
    """A dump of one step with ``files`` tensors of float32, of which the share ``apart`` is multiplied by 1 + 1e-7."""
    import torch

    step = folder / "step0" / "rank"
    values = step / "dump_tensor_data"
    values.mkdir(parents=True)
    random = np.random.default_rng(0)
    base = random.standard_normal(elements).astype(np.float32)
    data: dict[str, object] = {}
    for index in range(files // 2):
        name = f"Functional.linear.{index}.forward"
        leaves = []
        for place in ("input.0", "output.0"):
            number = 2 * index + (place == "output.0")
            array = np.roll(base, 7 * number)
            if number % 1000 < 1000 * apart:
                array = array * np.float32(1 + 2e-7)
            file = f"{name}.{place}.pt"
            torch.save(torch.from_numpy(np.ascontiguousarray(array)), values / file)
            numbers = float(array.max()), float(array.min()), float(array.mean()), float(np.linalg.norm(array))
            leaves.append(
                {
                    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [elements], "requires_grad": False,
                    **dict(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True)), "data_name": file,
                }
            )  # fmt: skip
        data[name] = {"input_args": leaves[:1], "input_kwargs": {}, "output": leaves[1:]}
    text = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(values), "data": data}
    (step / "dump.json").write_text(json.dumps(text))
    (step / "stack.json").write_text("{}")
    (step / "construct.json").write_text(json.dumps(dict.fromkeys(data)))


def _environment(bytecode: Path) -> dict[str, str]:
    """One thread, and the bytecode of what is imported is kept, as that of an installed package is."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": str(bytecode)}


def limit(one: Path, other: Path, environment: dict[str, str]) -> float:
    """Processor seconds of reading both, subtracting and three norms; its start is not counted."""
    command = [sys.executable, "-c", PROGRAM, str(one), str(other)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def verdict(one: Path, other: Path, jobs: int, environment: dict[str, str]) -> tuple[float, float, int]:
    """Processor seconds of ``msprobe compare`` with its start, those of the wall, and its status."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "msprobe", "compare", str(one), str(other), "-o", out, "--jobs", str(jobs)]
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        exit_status = os.waitstatus_to_exitcode(status)
        if exit_status != 0:
            sys.exit(f"the comparison ended with status {exit_status}, not with a verdict: " + " ".join(command))
        return used.ru_utime + used.ru_stime, time.perf_counter() - begun, exit_status


def main() -> None:
    """Write the dumps for each share, let limit and verdict take turns, print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--apart", default="0,0.1,1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None and not options.folder.is_dir():
        parser.error(f"--folder: there is no folder {options.folder}; make it, or leave this out")
    elements = options.megabytes * 250_000 // options.files
    for share in map(float, options.apart.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="tensors-") as name:
            one, other = Path(name) / "candidate", Path(name) / "reference"
            write(one, options.files, elements, share)
            write(other, options.files, elements, 0.0)
            environment = _environment(Path(name) / "bytecode")
            verdict(one, other, options.jobs, environment)  # which writes the bytecode
            limits, verdicts = [], []
            for _ in range(options.rounds):
                limits.append(limit(one, other, environment))
                verdicts.append(verdict(one, other, options.jobs, environment))
            least, best = min(limits), min(verdicts)
            print(
                f"{share:4.0%} apart: limit {least:.2f} s, verdict {best[0]:.2f} s CPU {best[1]:.2f} s wall "
                f"(status {best[2]}), ratio {best[0] / least:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
