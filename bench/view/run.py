"""What the page costs: opening a large pair, and each question that it asks.

    python bench/view/run.py [--nodes 100000] [--keep FOLDER]

Two dumps of one step of a deep transformer are written (modules, calls in them, backward passes; the form of
mindstudio-probe 8.1.1, statistics, files indented by 1 as it writes them; from one block on the candidate's results are
larger by a thousandth). They are opened as `msprobe view` opens them, in a process of its own, every question of the
page is asked, and the single file of `--html` is made. Times are CPU of that process, but for "ms", which is wall
clock; memory is its largest resident set. An answer counts from the question to its compressed bytes. `--pair` takes
two dumps that are there, those of `bench/compare/transformer.py` for one.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PROGRAM = """
import gc, gzip, json, resource, sys, time
import orjson
begun = time.process_time()
from msprobe.diagnose.steps.collector import no_collection
from msprobe.view.opening import open_source
from msprobe.view.single_file import single_file

def measure(ask, repeat=1):
    times = []
    for _ in range(repeat):
        at = time.perf_counter()
        size = len(gzip.compress(orjson.dumps(ask(), option=orjson.OPT_NON_STR_KEYS), 1))
        times.append(time.perf_counter() - at)
    return {"ms": 1e3 * sorted(times)[len(times) // 2], "worst_ms": 1e3 * max(times), "gzip_kb": size / 1e3}

imported = time.process_time()
with no_collection():
    source = open_source(sys.argv[1:])
    opened = time.process_time()
    source.prepare()
    gc.freeze()
prepared = time.process_time()
found = {"import_s": imported - begun, "compare_s": opened - imported, "prepare_s": prepared - opened}
found["cpu_until_prepared_s"] = prepared
found["compare_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
found["overview"] = measure(source.overview, 5)
found["place"] = measure(lambda: source.place(0), 5)
place = source.place(0)
count = len(place["names"])
rows = [place["first"], *range(0, count, max(1, count // 200))]
found["node (first)"] = measure(lambda: source.node(0, rows[0]))
asked = iter(rows * 2)
found["node"] = measure(lambda: source.node(0, next(asked)), len(rows))
found["ranks"] = measure(lambda: source.ranks(place and source.places[0].step))
found["rows"] = count
found["place_raw_mb"] = len(orjson.dumps(place)) / 1e6
at = time.process_time()
found["html_mb"] = len(single_file(source)) / 1e6
found["html_s"] = time.process_time() - at
found["status"] = source.overview()["verdict"]["headline"]
used = resource.getrusage(resource.RUSAGE_SELF)
found["mb"], found["cpu_s"] = used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
source.close()
print(json.dumps(found))
"""
#: Calls of a block, and of which of its modules.
_BLOCK = (
    ("norm1.LayerNorm", ("Functional.layer_norm",)),
    ("attn.q.Linear", ("Functional.linear",)),
    ("attn.k.Linear", ("Functional.linear",)),
    ("attn.v.Linear", ("Functional.linear",)),
    ("attn.Attention", ("Tensor.view", "Tensor.transpose", "Torch.matmul", "Tensor.__mul__", "Functional.softmax")),
    ("attn.out.Linear", ("Functional.linear",)),
    ("norm2.LayerNorm", ("Functional.layer_norm",)),
    ("mlp.up.Linear", ("Functional.linear",)),
    ("mlp.MLP", ("Functional.gelu",)),
    ("mlp.down.Linear", ("Functional.linear",)),
    ("Block", ("Tensor.__add__", "Tensor.__add__")),
)
_NODES = 2 * (len(_BLOCK) + sum(len(calls) for _, calls in _BLOCK))
_STACK = ["File /home/user/model.py, line 31, in forward, \\n y = self.f(x)"]


class Writer:
    """One side: its records, what ran inside what, and where its calls came from."""

    def __init__(self, wrong_from: int) -> None:
        self.data: dict[str, Any] = {}
        self.parents: dict[str, str | None] = {}
        self.draw = random.Random(0)
        self.wrong_from = wrong_from
        self.numbers: dict[str, int] = {}

    def tensor(self, block: int) -> dict[str, Any]:
        factor = 1.001 if block >= self.wrong_from else 1.0
        size = (1 + self.draw.random()) * factor
        return {
            "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 64, 128], "requires_grad": True,
            "Max": size, "Min": -size, "Mean": size * self.draw.random() / 100, "Norm": size * 64,
        }  # fmt: skip

    def block(self, block: int) -> None:
        """Forward pass of a block; what ran inside a module stands before it, as in a recording."""
        self.given = getattr(self, "given", None) or self.tensor(block)
        around = f"Module.layers.{block}.Block.forward.0"
        self.backward: list[tuple[str, str | None]] = getattr(self, "backward", [])
        for path, calls in _BLOCK:
            module = f"Module.layers.{block}.{path}.forward.0"
            attention = path.startswith("attn.") and path != "attn.Attention"
            inside = f"Module.layers.{block}.attn.Attention.forward.0" if attention else around
            if path.startswith("mlp.") and path != "mlp.MLP":
                inside = f"Module.layers.{block}.mlp.MLP.forward.0"
            for stem in calls:
                number = self.numbers.get(stem, 0)
                self.numbers[stem] = number + 1
                self.add(f"{stem}.{number}.forward", module, block)
            self.add(module, None if module == around else inside, block)

    def add(self, name: str, parent: str | None, block: int) -> None:
        made = self.tensor(block)
        self.data[name] = {"input_args": [self.given], "input_kwargs": {}, "output": [made]}
        self.parents[name] = parent
        self.backward.append((name, parent))
        self.given = made

    def finish(self, folder: Path) -> None:
        """The backward passes, and the files."""
        for name, parent in reversed(self.backward):
            back = name.replace(".forward", ".backward")
            self.data[back] = {"input": [self.given], "output": [self.tensor(0)]}
            self.parents[back] = parent.replace(".forward", ".backward") if parent else None
        folder.mkdir(parents=True, exist_ok=True)
        header = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
        contents = {"dump": {**header, "data": self.data}, "construct": self.parents}
        contents["stack"] = {"0": [list(self.data), _STACK]}
        for name, content in contents.items():
            (folder / f"{name}.json").write_text(json.dumps(content, indent=1))


def write(folder: Path, nodes: int, wrong_from: int) -> Path:
    """One side of a pair with about so many nodes."""
    writer = Writer(wrong_from)
    for block in range(max(1, nodes // _NODES)):
        writer.block(block)
    writer.finish(folder / "step0" / "rank0")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="write the dumps there, and leave them")
    parser.add_argument("--pair", type=Path, nargs=2, help="take these two dumps, and write none")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        blocks = max(1, args.nodes // _NODES)
        one, other = args.pair or (
            write(folder / "candidate", args.nodes, blocks // 2),
            write(folder / "reference", args.nodes, blocks),
        )
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(one), str(other)], capture_output=True, text=True, check=True
        )
        print(json.dumps(json.loads(done.stdout), indent=2))


if __name__ == "__main__":
    main()
