"""What the pre-check costs, and what it finds: ``python bench/precheck/run.py`` prints a table (minutes).

- speed: a dump of 1,000 small calls through ``msprobe multi_run_ut -n 2``, its start included
- overhead: the same calls in one worker: processor time of each, and whether memory stays where it is
- healthy: PyTorch's own samples of each operator in three types, on the CPU in ways that compute differently: errors
  that are there are false ones, but for those that are known to be faults of a kernel
- scales: the same samples, all results 1 %, 3 % and 10 % too large in bfloat16, as many units in float16 and eight
  times as many in float32: how many are seen (a warning) and are errors, of those with 32 elements and more
- faults: the same samples with a fault put in; counted are samples that the fault changes by more than rounding, in a
  result that is compared element by element
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msprobe.compare.number_types import EPSILON
from msprobe.precheck.job import Task
from msprobe.precheck.worker import runner_of

#: Errors that are none of the check: torch 2.13 on a CPU gives NaN for finite matrices in half types (matrix_exp), and
#: zeros for gradients of large numbers in half types (logcumsumexp), and so it says.
KERNEL_FAULTS = ("matrix_exp", "logcumsumexp")
CALLS = 1000
ROUNDS = 5
CANDIDATES = ("cpu", "cpu+mkldnn=off")
FAULTS = ("tf32", "scale=1e-3", "drop-tail", "nan@0", "swap")
#: Factors of all results, by which a half type is off by 1.3, 4 and 13 of its units.
SCALES = (0.01, 0.03, 0.1)
#: Of fewer elements a result says little of a factor.
LEAST_ELEMENTS = 32


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


def overhead() -> None:
    """Print the processor time for each call in one worker, what runs the call included, and what memory does."""
    with tempfile.TemporaryDirectory() as folder:
        dump = small_dump(Path(folder))
        for standard in ("8.1.1", "strict"):
            runner = runner_of(Task(str(dump), candidate="cpu", standard=standard))
            keys = runner._requests.keys  # type: ignore[attr-defined]
            for key in keys[:100]:
                runner.run(key)
            before, start = _resident_bytes(), time.process_time()
            for _ in range(ROUNDS):
                for key in keys:
                    runner.run(key)
            spent = (time.process_time() - start) / (ROUNDS * len(keys))
            grown = (_resident_bytes() - before) / 2**20
            print(
                f"overhead: {standard}: {1000 * spent:.2f} ms of processor time a call with backward, on all sides; "
                f"memory after {ROUNDS * len(keys)} calls: {grown:+.1f} MiB",
                flush=True,
            )


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@dataclass
class Found:
    """What became of one sample: the answer of the check, and where the candidate's results are NaN."""

    answer: Any
    bad: list[Any]


def sweep(dtype: str, candidate: str, most: int) -> dict[str, Found]:
    """What is found of all samples, by their names."""
    runner = runner_of(Task(f":{dtype}:{most}", candidate=candidate, kind="samples"))
    machine = runner._runner._candidate  # type: ignore[attr-defined]
    run, bad = machine.run, []

    def watched(*args: Any) -> Any:
        outcome = run(*args)
        values = [*outcome.outputs, *outcome.gradients.values()]
        bad[:] = [one.isnan() for one in values if isinstance(one, torch.Tensor) and one.layout is torch.strided]
        return outcome

    machine.run = watched
    found = {}
    for key in runner.run("?").notes:
        bad.clear()
        found[key] = Found(runner.run(key), list(bad))
    return found


def healthy(most: int) -> None:
    """Print what is found where nothing is wrong."""
    for dtype in ("fp32", "bf16", "fp16"):
        for candidate in CANDIDATES:
            answers = {key: found.answer for key, found in sweep(dtype, candidate, most).items()}
            counts = Counter(row[21] for answer in answers.values() for row in answer.details)
            wrong = sorted(key for key, answer in answers.items() if answer.failed)
            true = [key for key in wrong if any(name in key for name in KERNEL_FAULTS)]
            print(
                f"healthy: {dtype} {candidate}: {len(answers)} samples, outputs {dict(counts)}; "
                f"faults of a kernel {true}, false errors {[key for key in wrong if key not in true]}",
                flush=True,
            )


def faults(most: int, wanted: Sequence[str]) -> None:
    """Print how many samples with a fault are found, in single precision, and which were left as they were."""
    plain = sweep("fp32", "cpu", most)
    for fault in wanted:
        answers = sweep("fp32", f"cpu+inject:{fault}", most)
        planted = [key for key, answer in answers.items() if _changed(plain[key], answer, fault)]
        missed = [key for key in planted if not answers[key].answer.failed]
        print(
            f"faults: {fault}: found {len(planted) - len(missed)} of {len(planted)} samples that it changes; missed "
            f"{missed}; {len(answers) - len(planted)} have no element compared that it changes by more than rounding",
            flush=True,
        )


def scales(most: int) -> None:
    """Print how many results that are too large by a factor are seen."""
    for dtype, unit in (("bf16", 1.0), ("fp16", 2.0**-3), ("fp32", 2.0**-13)):
        for scale in SCALES:
            found = sweep(dtype, f"cpu+inject:scale={scale * unit!r}", most)
            statuses: Counter[str] = Counter()
            for one in found.values():
                for row in one.answer.details:
                    is_float = row[2].startswith(("torch.float", "torch.bfloat", "torch.complex"))
                    if (
                        is_float
                        and row[21] != "SKIP"
                        and "random" not in row[22]
                        and _elements(row[3]) >= LEAST_ELEMENTS
                    ):
                        statuses[row[21]] += 1
            count = statuses.total()
            print(
                f"scales: {dtype}: x{1 + scale * unit:.9g}: of {count} results {statuses['error']} are errors, "
                f"{statuses['Warning']} more are seen, {statuses['pass']} pass",
                flush=True,
            )


def _elements(shape: str) -> int:
    return math.prod(int(part) for part in shape.strip("() ").split(",") if part.strip())


def _changed(plain: Found, found: Found, fault: str) -> bool:
    """True where a fault makes a result, compared element by element, wrong by more than rounding.

    That is another one than the healthy run: for a NaN, that there is one more (an element that is NaN already is left
    as it is); else a largest relative error 64 times as large, above 1e-4 and above four units of rounding of the
    coarsest type among the results.
    """
    rows = [
        (before, after)
        for before, after in zip(plain.answer.details, found.answer.details, strict=False)
        if after[21] != "SKIP" and "random" not in after[22]
    ]
    if fault.startswith("nan"):
        return bool(rows) and any(bool((new & ~old).any()) for old, new in zip(plain.bad, found.bad, strict=False))
    least = max([1e-4, *(4 * EPSILON.get(after[2].removeprefix("torch."), 0.0) for _, after in rows)])
    for before, after in rows:
        if after[2] not in ("torch.float32", "torch.complex64"):
            continue
        old, new = (float(row[14].strip() or 0) for row in (before, after))
        if new > least and new > 64 * old:
            return True
    return False


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", default=["speed", "overhead", "healthy", "scales", "faults"])
    parser.add_argument("--samples", type=int, default=1, help="of each operator (1)")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS, help="of the part faults (all)")
    options = parser.parse_args()
    for part in options.parts:
        if part in ("speed", "overhead"):
            {"speed": speed, "overhead": overhead}[part]()
        elif part in ("healthy", "scales"):
            {"healthy": healthy, "scales": scales}[part](options.samples)
        else:
            faults(options.samples, options.faults)
    return 0


if __name__ == "__main__":
    sys.exit(main())
