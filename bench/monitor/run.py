"""How much longer an iteration of a training takes that is monitored: alternating, medians of ratios, for each setting.

    python bench/monitor/run.py [--settings NAME,...] [--width 256] [--steps 25] [--reference 8.1.1] [--ranks 2]

Each process trains two equal models in turns, one monitored and one not; what is given is the median over steps of the
ratio of both, and the median over processes. ``nothing`` monitors neither: how far from 1 chance goes.
``--reference``: the published package of this version, in an environment of its own, the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIX = ["min", "max", "mean", "norm", "nans", "zeros"]
EVERYTHING = {
    "targets": {},
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
}
GRADIENTS = {"targets": {}, "wg_distribution": True, "ops": ["norm"]}
# As many rules as there are of those that look at gradients; the loss is not noted here.
RULES = [
    {"rule_name": "AnomalyNan"},
    {"rule_name": "AnomalyTurbulence", "args": {"threshold": 1e9}},
    {"rule_name": "GradNormSpike", "args": {"z": 1e9}},
    {"rule_name": "DeadGradient"},
]
#: Name -> (configuration, the goal as a ratio, or None).
SETTINGS: dict[str, tuple[dict[str, Any] | None, float | None]] = {
    "nothing": (None, None),
    "gradients, norm": ({"targets": {}, "wg_distribution": True, "ops": ["norm"]}, 1.03),
    "gradients, six": ({"targets": {}, "wg_distribution": True, "ops": SIX}, 1.10),
    "moments, six": ({"targets": {}, "mv_distribution": True, "ops": SIX}, None),
    "parameters, six": ({"targets": {}, "param_distribution": True, "ops": SIX}, None),
    "activations, norm": ({"targets": {}, "xy_distribution": True, "ops": ["norm"]}, 1.25),
    "activations, six": ({"targets": {}, "xy_distribution": True, "ops": SIX}, 1.6),
    "everything, six": ({**EVERYTHING, "ops": SIX}, 2.0),
    "gradients, norm, rules": ({**GRADIENTS, "alert": {"rules": RULES}}, None),
    "the same, recorded (L0)": ({**GRADIENTS, "alert": {"rules": RULES, "record": {"level": "L0"}}}, None),
    "the same, recorded (mix)": ({**GRADIENTS, "alert": {"rules": RULES, "record": True}}, None),
    "the same, recorded behind": ({**GRADIENTS, "alert": {"rules": RULES, "record": {"keep": 0}}}, None),
    "gradients, six, every 10th": ({"targets": {}, "wg_distribution": True, "ops": SIX, "step_interval": 10}, None),
    "activations, six, every 10th": ({"targets": {}, "xy_distribution": True, "ops": SIX, "step_interval": 10}, None),
}


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--settings", help="names of settings, comma separated with ';' between them")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1, help="2: data parallel over gloo")
    parser.add_argument("--reference", help="version of the published package to measure beside")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    names = [name.strip() for name in args.settings.split(";")] if args.settings else list(SETTINGS)
    pythons = {"ours": sys.executable}
    if args.reference:
        sys.path.insert(0, str(HERE.parent))
        from reference_env import python_of

        pythons[args.reference] = str(python_of(args.reference))
    found: dict[str, dict[str, list[float]]] = {name: {tool: [] for tool in pythons} for name in names}
    for _ in range(args.processes):
        for name in names:
            for tool, python in pythons.items():
                found[name][tool].append(measure(python, name, args.width, args.steps, args.ranks))
    print(f"{'setting':32}{'goal':>8}" + "".join(f"{tool:>10}" for tool in pythons))
    for name in names:
        goal = SETTINGS[name][1]
        shown = "".join(f"{statistics.median(found[name][tool]):10.3f}" for tool in pythons)
        print(f"{name:32}{goal if goal else '':>8}{shown}")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    return 0


def measure(python: str, name: str, width: int, steps: int, ranks: int) -> float:
    """The median ratio of one process, or of the slowest rank of several."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DUMPS")) as folder:
        config = SETTINGS[name][0]
        path = os.path.join(folder, "config.json")
        if config is not None:
            Path(path).write_text(json.dumps(config))
        processes = []
        for rank in range(ranks):
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "MONITOR_OUTPUT_DIR": folder,
                "BENCH_RANK": str(rank),
                "BENCH_RANKS": str(ranks),
                "BENCH_STORE": os.path.join(folder, "store"),
            }
            words = [python, str(HERE / "worker.py"), path if config is not None else "-", str(width), str(steps)]
            processes.append(
                subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
        ratios = []
        for process in processes:
            out, errors = process.communicate()
            if process.returncode:
                raise SystemExit(f"{name}: {errors[-3000:]}")
            ratios.append(float(out.strip().splitlines()[-1]))
        return max(ratios)


if __name__ == "__main__":
    raise SystemExit(main())
