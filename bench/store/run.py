"""What the store costs: N synthetic records through the writer, and back through the reader.

    python bench/store/run.py [--records 10000,100000,1000000] [--compress] [--json FILE]

A record is what L1 gives for one linear call: three tensors and a number going in, one tensor out, 1.3 kB of
JSON; one in four brings a call stack, every one a parent. Each count runs in a fresh process. Times are
process CPU for each record (wall in brackets): "put" until every record is in the journal, "publish" until
the JSON files are whole, "read" until the reader has opened the dump and given every record. "sync" is how
long the background sync to disk went on after that. "memory" is private memory when all records are in the
journal, "mapped" the part of the journal that is mapped and resident then.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SRC = REPOSITORY / "src"
HEADINGS = (
    "records", "put µs", "publish µs", "sync s", "memory MB", "mapped MB", "dump.json MB", "other MB",
    "read µs", "memory reading MB",
)  # fmt: skip
STACKS = 200
FRAMES = 15


def tensor(shape: list[int], value: float) -> dict[str, object]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": value,
        "Min": -value,
        "Mean": value / 1000,
        "Norm": value * 31.25,
        "requires_grad": True,
    }


def record(number: int) -> dict[str, object]:
    """A forward record with numbers of its own, so that nothing repeats exactly."""
    value = 1.0 + number * 1.0000001e-6
    return {
        "input_args": [
            tensor([8, 128, 512], value),
            tensor([512, 512], value / 3),
            tensor([512], value / 7),
            2,
        ],
        "input_kwargs": {"alpha": {"type": "float", "value": value / 11}},
        "is_recompute": False,
        "output": [tensor([8, 128, 512], value * 1.5)],
    }


def memory() -> dict[str, int]:
    """Bytes of this process now, private memory and mapped files apart; the kernel may drop the latter at
    will.
    """
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) * 1024
    return found


def wait_until_synced() -> float:
    """Wait until the background sync of a finished dump is done; the seconds that took."""
    from msprobe.store import durable

    started = time.perf_counter()
    durable.drain()
    return time.perf_counter() - started


def write(count: int, folder: Path, compress: bool) -> dict[str, Any]:
    """Write `count` records; what each phase cost."""
    from msprobe.capture.native import encode
    from msprobe.store.writer import DumpWriter

    header = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    writer = DumpWriter(folder, header, encode=encode, compress=compress)
    frames = [
        [f'File "train.py", line {10 * s + f}, in step, \n loss = model(batch)' for f in range(FRAMES)]
        for s in range(STACKS)
    ]
    before = memory()
    cpu, wall = time.process_time(), time.perf_counter()
    making = 0.0
    for number in range(count):
        name = f"Functional.linear.{number}.forward"
        started = time.process_time()
        tree = record(number)
        making += time.process_time() - started
        stack = number % STACKS if number % 4 == 0 else None
        if stack is not None:
            writer.define_stack(stack, frames[stack])
        writer.put_call(name, tree, stack, f"Module.block.{number % 64}.Linear.forward.0")
    put_cpu, put_wall = time.process_time() - cpu - making, time.perf_counter() - wall - making
    after_put = memory()
    cpu, wall = time.process_time(), time.perf_counter()
    writer.publish(final=True)
    publish_wall = time.perf_counter() - wall
    sync_wall = wait_until_synced()
    publish_cpu = time.process_time() - cpu
    if writer.failed:
        raise SystemExit(f"writing {count} records failed, see the log")
    return {
        "put_cpu": put_cpu,
        "put_wall": put_wall,
        "publish_cpu": publish_cpu,
        "publish_wall": publish_wall,
        "sync_wall": sync_wall,
        "memory": after_put["RssAnon"] - before["RssAnon"],
        "mapped": after_put["RssFile"] - before["RssFile"],
        "bytes": {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()},
    }


def read(count: int, folder: Path) -> dict[str, Any]:
    """Open the dump and visit every record; what it cost."""
    from msprobe.store.reader import open_dump

    before = memory()
    cpu, wall = time.process_time(), time.perf_counter()
    dump = open_dump(folder)
    seen = visit(dump.part())
    if seen != count:
        raise SystemExit(f"the reader found {seen} of {count} records")
    return {
        "read_cpu": time.process_time() - cpu,
        "read_wall": time.perf_counter() - wall,
        "memory_read": memory()["RssAnon"] - before["RssAnon"],
    }


def visit(part: Any) -> int:
    """Count the records of a part, each of them parsed."""
    return sum(1 for _ in part.records())


def in_fresh_process(phase: str, count: int, folder: Path, compress: bool) -> dict[str, Any]:
    more = ["--compress"] if compress else []
    done = subprocess.run(
        [sys.executable, __file__, "--phase", phase, "--records", str(count), "--folder", str(folder), *more],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(count: int, below: Path, compress: bool) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="store-", dir=below))
    try:
        dump = folder / "step0" / "rank"
        result = {"records": count, **in_fresh_process("write", count, dump, compress)}
        result.update(in_fresh_process("read", count, dump, compress))
        return result
    finally:
        shutil.rmtree(folder)


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        f"| {' | '.join(HEADINGS)} |",
        f"|{'|'.join('---' for _ in HEADINGS)}|",
    ]
    for result in results:
        count, sizes = result["records"], result["bytes"]
        main = next(size for name, size in sizes.items() if name.startswith("dump.json"))
        rest = sum(sizes.values()) - main
        cells = [
            f"{count:,}",
            f"{result['put_cpu'] / count * 1e6:.2f} ({result['put_wall'] / count * 1e6:.2f})",
            f"{result['publish_cpu'] / count * 1e6:.2f} ({result['publish_wall'] / count * 1e6:.2f})",
            f"{result['sync_wall']:.1f}",
            f"{result['memory'] / 1e6:.0f}",
            f"{result['mapped'] / 1e6:.0f}",
            f"{main / 1e6:.1f}",
            f"{rest / 1e6:.1f}",
            f"{result['read_cpu'] / count * 1e6:.2f} ({result['read_wall'] / count * 1e6:.2f})",
            f"{result['memory_read'] / 1e6:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--records", default="10000,100000,1000000", help="counts to measure, with commas")
    parser.add_argument("--json", type=Path, help="also write everything measured here")
    parser.add_argument("--compress", action="store_true", help="dump.json.zst in place of dump.json")
    parser.add_argument("--phase", choices=("write", "read"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    counts = [int(text) for text in asked.records.split(",")]
    if asked.phase:
        sys.path.insert(0, str(SRC))
        if asked.phase == "write":
            result = write(counts[0], asked.folder, asked.compress)
        else:
            result = read(counts[0], asked.folder)
        print(json.dumps(result))
        return
    below = REPOSITORY / ".bench"
    below.mkdir(exist_ok=True)
    results = [measure(count, below, asked.compress) for count in counts]
    print(table(results))
    first, last = results[0], results[-1]
    each = [(r["put_cpu"] + r["publish_cpu"]) / r["records"] for r in (first, last)]
    few, many = f"{first['records']:,}", f"{last['records']:,}"
    print(f"\nwriting one record costs at {many} records {each[1] / each[0]:.2f} times what it costs at {few}")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
