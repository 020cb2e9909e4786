"""What the pre-check costs, and what it finds: ``python bench/precheck/run.py`` prints a table (minutes).

- speed: a dump of 1,000 small calls through ``msprobe multi_run_ut -n 2``, its start included
- healthy: PyTorch's own samples of each operator in three types, on the CPU in ways that compute differently: errors
  that are there are false ones, but for those that are known to be faults of a kernel
- faults: the same samples with a fault put in; counted are samples that the fault changes by more than rounding
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from msprobe.precheck.job import Task
from msprobe.precheck.worker import runner_of

#: torch 2.13 on a CPU: without oneDNN the kernel gives NaN for finite matrices in bfloat16.
KNOWN_FAULTS = ("matrix_exp",)
CALLS = 1000
CANDIDATES = ("cpu", "cpu+mkldnn=off")
FAULTS = ("tf32", "scale=1e-3", "drop-tail", "nan@0", "swap")


def small_dump(folder: Path) -> Path:
    """A dump of small calls of six kinds, each with its backward."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 8], "Max": 2.0, "Min": -2.0}
    tensor = {**tensor, "Mean": 0.1, "Norm": 7.0, "requires_grad": True}
    calls: list[tuple[str, list[Any]]] = [
        ("Torch.matmul", [tensor, tensor]),
        ("Tensor.__add__", [tensor, tensor]),
        ("Functional.gelu", [tensor]),
        ("Torch.softmax", [tensor, {"type": "int", "value": -1}]),
        ("Functional.layer_norm", [tensor, [{"type": "int", "value": 8}]]),
        ("Tensor.__mul__", [tensor, tensor]),
    ]
    data: dict[str, Any] = {}
    for number in range(CALLS):
        name, args = calls[number % len(calls)]
        data[f"{name}.{number}.forward"] = {"input_args": args, "input_kwargs": {}, "output": [tensor]}
        data[f"{name}.{number}.backward"] = {"input": [tensor], "output": []}
    path = folder / "dump.json"
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**header, "data": data}, indent=1))
    return path


def speed() -> None:
    """Print the time of all calls."""
    with tempfile.TemporaryDirectory() as folder:
        dump = small_dump(Path(folder))
        for count in (1, 2):
            words = ["multi_run_ut", "-api_info", str(dump), "-o", folder, "-n", str(count), "--candidate", "cpu"]
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "msprobe", *words], check=True, capture_output=True)
            print(f"speed: {CALLS} calls, {count} workers: {time.perf_counter() - start:.1f} s", flush=True)


def sweep(dtype: str, candidate: str, most: int) -> dict[str, Any]:
    """Statuses of all samples by their names."""
    runner = runner_of(Task(f":{dtype}:{most}", candidate=candidate, kind="samples"))
    found = {}
    for key in runner.run("?").notes:
        found[key] = runner.run(key)
    return found


def healthy(most: int) -> None:
    """Print what is found where nothing is wrong."""
    for dtype in ("fp32", "bf16", "fp16"):
        for candidate in CANDIDATES:
            answers = sweep(dtype, candidate, most)
            counts = Counter(row[21] for answer in answers.values() for row in answer.details)
            wrong = sorted(key for key, answer in answers.items() if answer.failed)
            known = [key for key in wrong if any(name in key for name in KNOWN_FAULTS)]
            print(
                f"healthy: {dtype} {candidate}: {len(answers)} samples, outputs {dict(counts)}; "
                f"known faults {len(known)}, false errors {[key for key in wrong if key not in known]}",
                flush=True,
            )


def faults(most: int) -> None:
    """Print how many samples with a fault are found, in single precision."""
    plain = sweep("fp32", "cpu", most)
    for fault in FAULTS:
        answers = sweep("fp32", f"cpu+inject:{fault}", most)
        changed, found, missed = 0, 0, []
        for key, answer in answers.items():
            if not (_has_floats(answer) if fault == "nan@0" else _changed(plain[key], answer)):
                continue
            changed += 1
            found += answer.failed
            if not answer.failed:
                missed.append(key)
        print(f"faults: {fault}: found {found} of {changed} samples that it changes; missed {missed[:12]}", flush=True)


def _has_floats(answer: Any) -> bool:
    """True where there is a result that a NaN can be put into, and that is compared element by element."""
    first = answer.details[0]
    is_empty = "(0," in first[3] or ", 0" in first[3]
    return first[2] == "torch.float32" and first[21] != "SKIP" and "random" not in first[22] and not is_empty


def _changed(plain: Any, answer: Any) -> bool:
    """True where a fault makes the largest relative error of a result 64 times as large, and above 1e-4."""
    for before, after in zip(plain.details, answer.details, strict=False):
        if after[21] == "SKIP" or "random" in after[22] or after[2] not in ("torch.float32", "torch.complex64"):
            continue
        old, new = (float(row[14].strip() or 0) for row in (before, after))
        if new > 1e-4 and new > 64 * old:
            return True
    return False


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", default=["speed", "healthy", "faults"])
    parser.add_argument("--samples", type=int, default=1, help="of each operator (1)")
    options = parser.parse_args()
    for part in options.parts:
        if part == "speed":
            speed()
        else:
            {"healthy": healthy, "faults": faults}[part](options.samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
