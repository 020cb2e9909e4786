"""What comparing checkpoints costs: wall time, CPU time and memory by their size, for us and the published package.

    python bench/checkpoint/run.py [--sizes 64,256,1024] [--jobs 1,2] [--reference 8.1.1] [--json FILE]

A checkpoint of N MiB has parameters of 4 MiB in float32. Of each size: a file of torch.save of a float32 state and
of another,
and the same state on four ranks of Megatron (TP 2, PP 2) against one; that last one is all that the published
package can
do. It asks for an importable `megatron`, of which an empty one is given to it. Each command is a fresh process on
one computing
thread, start-up included, with the files in the memory of the system. Memory is the largest resident set, pages of
mapped
files included.
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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "tests")]

import torch  # noqa: E402
from reference_env import clean_environment, command_of, make  # noqa: E402
from support import megatron_made  # noqa: E402

_PARAMETER = 1 << 20  # elements: 4 MiB in float32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="64,256,1024", help="MiB of each checkpoint")
    parser.add_argument("--jobs", default="1", help="processes of ours")
    parser.add_argument("--reference", help="the published version to run beside ours")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    if options.reference:
        make(options.reference)
    found = []
    print(f"{'case':<34}{'tool':<14}{'wall s':>8}{'CPU s':>8}{'MiB':>8}")
    for size in map(int, options.sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            for name, pair, ranks in _cases(Path(folder), size):
                tools = [f"ours, {jobs}" for jobs in options.jobs.split(",")]
                tools += [options.reference] if options.reference and ranks else []
                for tool in tools:
                    row = {"case": f"{name} {size} MiB", "tool": tool, **_measured(tool, pair, Path(folder))}
                    print(f"{row['case']:<34}{tool:<14}{row['wall']:>8.2f}{row['cpu']:>8.2f}{row['memory']:>8.0f}")
                    found.append(row)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def _cases(folder: Path, size: int) -> Any:
    """(name, the two checkpoints, whether they are Megatron's)."""
    layers = max(4, size // 4 // 4 * 4)
    model, other = {}, {}
    for layer in range(layers):
        name = f"decoder.layers.{layer}.mlp.linear_fc2.weight"
        model[name] = torch.randn(1024, _PARAMETER // 1024)
        other[name] = model[name] + 1e-3 * torch.randn(1024, _PARAMETER // 1024)
    torch.save({"model": model}, folder / "a.pt")
    torch.save({"model": other}, folder / "b.pt")
    yield "torch", (folder / "a.pt", folder / "b.pt"), False
    megatron_made.save(folder / "one", model)
    megatron_made.save(folder / "four", other, tp=2, pp=2)
    del model, other
    yield "Megatron, 1 and 4 ranks", (folder / "one", folder / "four"), True


def _measured(tool: str, pair: tuple[Path, Path], folder: Path) -> dict[str, float]:
    out = folder / "out.json"
    for left in folder.glob("out*"):
        left.unlink()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    words = ["-c", str(pair[0]), str(pair[1]), "-o", str(out)]
    if tool.startswith("ours"):
        command = [sys.executable, "-m", "msprobe", "config_check", *words, "--jobs", tool.split(", ")[1]]
    else:
        stand_in = folder / "stand_in" / "megatron"
        stand_in.mkdir(parents=True, exist_ok=True)
        (stand_in / "__init__.py").write_text("")
        environment = {**clean_environment(), "PYTHONPATH": str(stand_in.parent)}
        command = [str(command_of(tool)), "-f", "pytorch", "config_check", *words]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # A process of its own waits for it, so that its peak is not that of an earlier one.
    code = (
        "import json, resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=sys.stderr);"
        "print(json.dumps([done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], env=environment, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not out.exists():
        raise SystemExit(f"{tool}: {done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu, "memory": json.loads(done.stdout)[1] / 1024}


if __name__ == "__main__":
    main()
