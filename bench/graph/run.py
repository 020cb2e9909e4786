"""What a comparison of two graphs costs, beside the published builders on the same dumps.

    python bench/graph/run.py                       # 100,000 nodes a side, ours alone
    python bench/graph/run.py --nodes 10000 --reference 8.1.1 --reference 26.2.0

Two synthetic transformers, 65 nodes a layer; the candidate's values are off from its middle layer on. Each builder runs
as a process of its own, each file form in turn; CPU seconds and the size of the result are of that process.
Makes the environments of the references that are asked for (bench/reference_env.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reference_env import clean_environment, command_of, make

_REPOSITORY = Path(__file__).resolve().parent.parent.parent
_NODES_OF_LAYER = 65


def tensor(draw: random.Random, scale: float) -> dict[str, Any]:
    norm = draw.uniform(1, 30)
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [4, 128, 256],
        "Max": draw.uniform(1, 4) * scale,
        "Min": -draw.uniform(1, 4) * scale,
        "Mean": draw.uniform(-0.1, 0.1) * scale,
        "Norm": norm * scale,
        "requires_grad": True,
    }


def write_dump(folder: Path, nodes: int, scale: float) -> None:
    """A dump of about ``nodes`` nodes; results are ``scale`` times as large from the middle layer on."""
    folder.mkdir(parents=True)
    draw = random.Random(0)
    layers = max(nodes // _NODES_OF_LAYER, 1)
    data: dict[str, Any] = {}
    construct: dict[str, str | None] = {}
    calls: dict[str, int] = {}
    stacks: dict[str, list[list[str]]] = {}

    def call(api: str, parent: str, direction: str, number: int, factor: float) -> None:
        name = f"{api}.{number}.{direction}"
        arguments = [tensor(draw, factor), tensor(draw, 1.0)]
        out = [tensor(draw, factor)]
        if direction == "forward":
            data[name] = {"input_args": arguments, "input_kwargs": {}, "output": out}
        else:
            data[name] = {"input": out, "output": arguments}
        construct[name] = parent

    def module(path: str, cls: str, parent: str | None, direction: str, factor: float) -> str:
        name = f"Module.{path}.{cls}.{direction}.0"
        one = [tensor(draw, factor)]
        out = [tensor(draw, factor)]
        if direction == "forward":
            weights = {"weight": tensor(draw, 1.0), "bias": tensor(draw, 1.0)}
            data[name] = {"input_args": one, "input_kwargs": {}, "output": out, "parameters": weights}
        else:
            data[name] = {"input": out, "output": one}
        construct[name] = parent
        return name

    def one_layer(layer: int, direction: str) -> None:
        factor = scale if layer >= layers // 2 else 1.0
        block = f"Module.layers.{layer}.Block.{direction}.0"
        order = range(8) if direction == "forward" else range(7, -1, -1)
        for part in order:
            path, cls = f"layers.{layer}.part{part}", "Part"
            inner = f"Module.{path}.{cls}.{direction}.0"
            for api in ("Functional.linear", "Functional.gelu", "Tensor.__add__"):
                key = f"{api}.{layer}.{part}"
                number = calls.setdefault(key, calls.get(api, 0))
                if direction == "forward":
                    calls[api] = number + 1
                call(api, inner, direction, number, factor)
            module(path, cls, block, direction, factor)
        module(f"layers.{layer}", "Block", None, direction, factor)

    for layer in range(layers):
        one_layer(layer, "forward")
    for layer in reversed(range(layers)):
        one_layer(layer, "backward")
    for number, name in enumerate(data):
        line = number % 200
        stacks.setdefault(str(line), [[], [f"File /model.py, line {line}, in forward, \n y = f(x)"] * 8])
        stacks[str(line)][0].append(name)
    header = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**header, "data": data}, indent=1))
    (folder / "construct.json").write_text(json.dumps(construct, indent=1))
    (folder / "stack.json").write_text(json.dumps(stacks, indent=1))


def measured(command: list[str], environment: dict[str, str], out: Path) -> tuple[float, float, float]:
    """CPU seconds, peak memory in MB and size of the result in MB of one run."""
    shutil.rmtree(out, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, error = child.communicate()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}\n{error.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return cpu, after.ru_maxrss / 1024, size / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000, help="nodes of each side")
    parser.add_argument("--reference", action="append", default=[], help="a published version to run beside ours")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        for side, scale in (("a", 1.3), ("b", 1.0)):
            write_dump(base / side / "rank0", asked.nodes, scale)
        (base / "compare.json").write_text(json.dumps({"npu_path": str(base / "a"), "bench_path": str(base / "b")}))
        old = ["-f", "pytorch", "graph", "-i", str(base / "compare.json"), "-o", str(base / "out")]
        new = ["graph_visualize", "-tp", str(base / "a"), "-gp", str(base / "b"), "-o", str(base / "out")]
        ours = [sys.executable, "-m", "msprobe"]
        here = {**os.environ, "PYTHONPATH": str(_REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
        runs: dict[str, tuple[list[str], dict[str, str]]] = {
            "ours .vis": ([*ours, *old], here),
            "ours .vis.db": ([*ours, *new], here),
        }
        for version in asked.reference:
            make(version)
            words = old if version.startswith("8.") else new
            runs[version] = ([str(command_of(version)), *words], clean_environment())
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in runs}
        for _ in range(asked.rounds):
            for name, (command, environment) in runs.items():
                found[name].append(measured(command, environment, base / "out"))
        print(f"{asked.nodes} nodes a side: CPU s, peak MB (largest process so far), result MB")
        for name, rows in found.items():
            print(f"{name:14}", *(f"{statistics.median(column):10.1f}" for column in zip(*rows, strict=True)))


if __name__ == "__main__":
    main()
