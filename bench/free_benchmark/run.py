"""What the free benchmark costs, which planted unstable calls it finds, and how often it is wrong on healthy ones.

    python bench/free_benchmark/run.py [--cost] [--planted] [--healthy] [--steps N] [--json FILE] [--reference PYTHON]

Without a choice all three. ``cost``: a bf16 network of 6 layers of width 512, batch 64, one thread: steps with
and without the benchmark alternate in one process: median processor times, as ratios of both, the last ten steps
over the first ten, and the memory at the end over that after the warm-up. ``planted``: calls that compute badly, among
healthy ones, each with what finds it. ``healthy``: the trainings of tests/zoo; a false alarm is a call whose deviation
its own rounding does not explain.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "integration")]

import torch  # noqa: E402
from torch import nn  # noqa: E402

from msprobe.pytorch import PrecisionDebugger  # noqa: E402

MODES = ("improve_precision", "add_noise", "bit_noise", "change_value", "no_change", "to_cpu")
BACKWARD = ("improve_precision", "add_noise", "bit_noise", "no_change")
WARM_UP = 4


def section(mode: str, stage: str = "forward", handler: str = "check") -> dict[str, Any]:
    device = {"fuzz_device": "cpu"} if mode == "to_cpu" else {}
    return {"pert_mode": mode, "fuzz_stage": stage, "handler_type": handler, **device}


@contextlib.contextmanager
def debugged(folder: str, **settings: Any) -> Iterator[Any]:
    # A file, and no reset where there is none: mindstudio-probe is called alike.
    reset = getattr(PrecisionDebugger, "reset", lambda: None)
    config = Path(folder) / "config.json"
    config.write_text(
        json.dumps({"task": "free_benchmark", "dump_path": folder, "level": "L1", "rank": [], "step": []}
                   | {"free_benchmark": {"scope": [], "list": [], "fuzz_level": "L1", "if_preheat": False} | settings})
    )  # fmt: skip
    reset()
    yield PrecisionDebugger(config_path=str(config))
    reset()


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    found = []
    for path in sorted(folder.rglob(name)):
        with open(path, newline="", encoding="utf-8") as file:
            found += csv.DictReader(file)
    return found


# ---------------------------------------------------------------- cost


def cost(settings: dict[str, Any], steps: int) -> dict[str, float]:
    """Median processor time of a step with the benchmark over that without, and by how much the time of the last ten
    steps with it, and the memory of the process after the warm-up, have grown.
    """
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Linear(512, 512), nn.GELU())]
    model = nn.Sequential(*layers).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(64, 512, dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()

    times: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder, debugged(folder, **settings) as debugger:
        for number in range(steps + WARM_UP):
            if number == WARM_UP:
                memory = resident()
            for is_on in (False, True):
                begin = time.process_time()
                if is_on:
                    debugger.start(model)
                step()
                if is_on:
                    debugger.stop()
                    debugger.step()
                times[is_on].append(time.process_time() - begin)
        growth = resident() / memory
    off, on = times[False][WARM_UP:], times[True][WARM_UP:]
    return {
        "ratio": statistics.median(on) / statistics.median(off),
        "growth": statistics.median(on[-10:]) / statistics.median(on[:10]),
        "memory": growth,
    }


def resident() -> int:
    """The bytes of memory that this process holds; what nobody refers to is given back first."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def costs(steps: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    return {name: cost(settings, steps) for name, settings in costly().items()}


def costly() -> dict[str, dict[str, Any]]:
    """What is asked of the steps whose cost is measured, by name."""
    found = {f"{mode} forward": section(mode) for mode in MODES}
    found |= {f"{mode} backward": section(mode, "backward") for mode in BACKWARD}
    found["improve_precision fix"] = section("improve_precision", handler="fix")
    return found


def costs_elsewhere(python: str, steps: int) -> dict[str, Any]:
    """The same with the package that another Python has as ``msprobe``; a process for each."""
    found = {}
    for name in costly():
        command = [python, __file__, "--one", name, "--steps", str(steps)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = ended.stdout.splitlines()
        found[name] = json.loads(lines[-1]) if ended.returncode == 0 and lines else ended.stderr[-300:]
    return found


# ---------------------------------------------------------------- planted


class Unstable:
    """Calls that compute badly, as kernels were seen to."""

    @staticmethod
    def half_sum(x: torch.Tensor) -> torch.Tensor:
        """Accumulates in the type of the input."""
        total = torch.zeros_like(x[:, 0])
        for part in x.unbind(1):
            total = total + part
        return total

    @staticmethod
    def half_variance(x: torch.Tensor) -> torch.Tensor:
        """Mean of squares less square of the mean."""
        return (x * x).mean(-1) - x.mean(-1).square()

    @staticmethod
    def half_norm(x: torch.Tensor) -> torch.Tensor:
        """A layer norm whose statistics are in half."""
        return (x - x.mean(-1, keepdim=True)) / Unstable.half_variance(x).clamp(min=1e-3).sqrt()[:, None]

    @staticmethod
    def unshifted_softmax(x: torch.Tensor) -> torch.Tensor:
        """Overflows, as the maximum is not subtracted."""
        e = (x * 8).exp()
        return e / e.sum(-1, keepdim=True)

    @staticmethod
    def log_of_one_plus(x: torch.Tensor) -> torch.Tensor:
        """Loses small arguments."""
        return (1 + x.abs() * 1e-2).log()

    @staticmethod
    def blocked_matmul(x: torch.Tensor) -> torch.Tensor:
        """Partial sums in half."""
        total = x[:, :0] @ x[:, :0].t()
        for begin in range(0, x.shape[1], 8):
            total = total + x[:, begin : begin + 8] @ x[:, begin : begin + 8].t()
        return total

    calls = 0

    @classmethod
    def racing(cls, x: torch.Tensor) -> torch.Tensor:
        """Another result in each run."""
        cls.calls += 1
        return x.sum(-1) * (1 + 0.01 * (cls.calls % 2))

    @staticmethod
    def sum(x: torch.Tensor) -> torch.Tensor:
        """Forgets the last element."""
        return x[..., :-1].sum()


PLANTED: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "half_sum": ("improve_precision", lambda x: x.abs()),
    "half_variance": ("improve_precision", lambda x: x + 6),
    "half_norm": ("improve_precision", lambda x: x + 6),
    "unshifted_softmax": ("improve_precision", lambda x: x),
    "log_of_one_plus": ("improve_precision", lambda x: x),
    "blocked_matmul": ("improve_precision", lambda x: x),
    "racing": ("no_change", lambda x: x),
    "sum": ("change_value", lambda x: x),
}


def planted(draws: int) -> dict[str, float]:
    """Of each planted call the share of draws in which it is a risk, and of healthy calls beside it."""
    found: dict[str, float] = {}
    healthy = alarms = 0
    for name, (mode, prepare) in PLANTED.items():
        hits = 0
        for draw in range(draws):
            dtype = torch.float32 if name == "sum" else (torch.float16, torch.bfloat16)[draw % 2]
            generator = torch.Generator().manual_seed(draw)
            x = prepare(torch.randn(16, 2048, generator=generator)).to(dtype)
            with tempfile.TemporaryDirectory() as folder:
                with debugged(folder, **section(mode)) as debugger:
                    debugger.register_custom_api(Unstable, name, "Planted")
                    debugger.start()
                    getattr(Unstable, name)(x)
                    for call in (torch.softmax, torch.sum, torch.var):
                        call(x, -1)
                    torch.matmul(x, x.t())
                    debugger.stop()
                    debugger.step()
                risks = [row for row in rows(Path(folder), "free_benchmark_details.csv") if row["verdict"] == "risk"]
                hits += any(row["api_name"].startswith("Planted") for row in risks)
                alarms += sum(not row["api_name"].startswith("Planted") for row in risks)
                healthy += 4
        found[name] = hits / draws
    found["healthy beside them"] = alarms / healthy
    return found


# ---------------------------------------------------------------- healthy


def healthy_zoo() -> dict[str, dict[str, int]]:
    """False alarms and checks on the trainings of tests/zoo."""
    import zoo
    from innocence_run import Recorder, Setting, run

    torch.set_num_threads(1)
    kinds = {
        "forward": {"pert_mode": ["no_change", "add_noise", "bit_noise", "improve_precision", "change_value"]},
        "backward": {"pert_mode": ["no_change", "bit_noise", "improve_precision"], "fuzz_stage": "backward"},
    }
    found = {}
    for kind, settings in kinds.items():
        trainings = checks = alarms = 0
        for name, architecture in sorted(zoo.load_all().items()):
            if architecture.ranks > 1 or architecture.slow:
                continue
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
                run(name, Recorder(Path(folder), Setting("L1", "free_benchmark", settings)))
                risks = [row for row in rows(Path(folder), "free_benchmark_details.csv") if row["verdict"] == "risk"]
                summary = rows(Path(folder), "free_benchmark_summary.csv")
            trainings, alarms = trainings + 1, alarms + len(risks)
            checks += sum(int(row["checked"]) for row in summary)
            for row in risks[:3]:
                print(f"  {kind} {name}: {row['pert_mode']} {row['api_name']} {row['max_rel']}", file=sys.stderr)
        found[kind] = {"trainings": trainings, "checks": checks, "alarms": alarms}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("cost", "planted", "healthy"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--reference", metavar="PYTHON", help="measure the cost with its mindstudio-probe, too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        torch.set_num_threads(1)
        print(json.dumps(cost(costly()[options.one], options.steps)))
        return
    every = not (options.cost or options.planted or options.healthy)
    found: dict[str, Any] = {}
    if options.planted or every:
        found["planted"] = planted(options.draws)
    if options.cost or every:
        found["cost"] = costs(options.steps)
        if options.reference:
            found["cost of the reference"] = costs_elsewhere(options.reference, options.steps)
    if options.healthy or every:
        found["healthy"] = healthy_zoo()
    text = json.dumps(found, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text)


if __name__ == "__main__":
    main()
