"""Networks written as users of MindSpore and of PyTorch write them: healthy pairs, and mistakes of the MindSpore side.

    make test-mindspore        # once: the environment
    .venv/bin/python bench/mindspore/pairs.py [--keep FOLDER] [--verbose] [--level L0|L1]
    .venv/bin/python bench/mindspore/pairs.py --kernels [--dtype float16] ...

A healthy pair counts as right where nothing is called different; a mistake where the first finding names it. Exit
status 1 if a pair or a mistake is not answered so. ``--kernels``: kernels of the PyTorch side that are wrong, below the
recorder, each with the PyTorch side as the candidate; named first is the record that differs first from the same side
without the fault, or one that shows the same.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NETWORKS_OF = ROOT / "tests/framework_pairs"
sys.path.insert(0, str(NETWORKS_OF))

from common import HALF, MISTAKES, NETWORKS, is_named  # noqa: E402
from relatives import HEALTHY, RELATIVES  # noqa: E402
from wrong_kernels import changed_first, kernel_names  # noqa: E402

from msprobe.diagnose.runs import compare_runs  # noqa: E402


def main() -> int:
    """Record what is not there yet, compare, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder of the dumps, of one type and level; what is there is kept")
    parser.add_argument("--mindspore", default=str(ROOT / ".venv-mindspore/bin/python"), metavar="PYTHON")
    parser.add_argument("--level", default="mix", choices=("L0", "L1", "mix"), help="what is recorded (mix)")
    parser.add_argument("--kernels", action="store_true", help="wrong kernels in place of mistakes")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16"), help="with --kernels (float32)")
    parser.add_argument("--verbose", action="store_true", help="the first finding of each")
    chosen = parser.parse_args()
    if chosen.dtype != "float32" and not chosen.kernels:
        parser.error("--dtype float16 is for --kernels: not all networks with mistakes run in it; add --kernels")
    with tempfile.TemporaryDirectory() as own:
        return (_kernels if chosen.kernels else _measured)(chosen.keep or Path(own), chosen)


def _measured(folder: Path, chosen: argparse.Namespace) -> int:
    wrong, missed = [], []
    for scripts, networks, mistakes in (("networks", NETWORKS, MISTAKES), ("relatives", HEALTHY, RELATIVES)):
        place = folder / scripts
        _record(place, scripts, chosen)
        for name in networks:
            verdict = compare_runs(place / "mindspore" / name, place / "pytorch" / name)
            if verdict.status != "agree":
                wrong.append(f"{name}: {verdict.status}: {_first(verdict)}")
            if chosen.verbose:
                print(f"{name:24} {verdict.status:10} {_first(verdict)}", flush=True)
        for name, mistake, words in mistakes:
            verdict = compare_runs(place / "mindspore" / f"{name}+{mistake}", place / "pytorch" / name)
            if not is_named(verdict, words):
                missed.append(f"{name}+{mistake}: {verdict.status}: {_first(verdict)}")
            if chosen.verbose:
                print(f"{name + '+' + mistake:24} {verdict.status:10} {_first(verdict)}", flush=True)
    print(f"healthy pairs called different: {len(wrong)} of {len(NETWORKS) + len(HEALTHY)}")
    print(f"mistakes named first: {len(MISTAKES) + len(RELATIVES) - len(missed)} of {len(MISTAKES) + len(RELATIVES)}")
    for line in (*wrong, *missed):
        print(f"  {line}")
    return int(bool(wrong or missed))


def _kernels(folder: Path, chosen: argparse.Namespace) -> int:
    networks = NETWORKS if chosen.dtype == "float32" else HALF
    _record(folder, "networks", chosen, {"mindspore": networks, "pytorch": networks})
    _record(folder / "wrong", "networks", chosen, {"pytorch": [f"{n}+{k}" for n in networks for k in kernel_names()]})
    wrong = detected = first = 0
    alarms = []
    for name in networks:
        healthy, reference = folder / "pytorch" / name, folder / "mindspore" / name
        verdict = compare_runs(healthy, reference)
        alarms += [name] if verdict.status == "diverged" else []
        for kernel in kernel_names():
            faulty = folder / "wrong" / "pytorch" / f"{name}+{kernel}"
            truth = changed_first(healthy, faulty)
            if not truth:
                continue
            verdict = compare_runs(faulty, reference)
            entry = verdict.findings[0].entry if verdict.findings else ""
            wrong += 1
            detected += verdict.status == "diverged"
            first += verdict.status == "diverged" and entry in truth
            if chosen.verbose and entry not in truth:
                print(f"{name}+{kernel}: {verdict.status}: {entry or 'nothing'} for {sorted(truth)}", flush=True)
    print(f"healthy pairs called different: {len(alarms)} of {len(networks)} {' '.join(alarms)}")
    print(f"wrong kernels reported: {detected} of {wrong}, named first: {first}")
    return int(bool(alarms))


def _record(
    folder: Path, scripts: str, chosen: argparse.Namespace, names: Mapping[str, Sequence[str]] | None = None
) -> None:
    pythons = {"mindspore": chosen.mindspore, "pytorch": sys.executable}
    for side, wanted in ({"mindspore": (), "pytorch": ()} if names is None else names).items():
        if not (folder / side).exists():
            options = ["--level", chosen.level, *(["--dtype", chosen.dtype] if scripts == "networks" else [])]
            subprocess.run(
                [pythons[side], NETWORKS_OF / f"{scripts}_{side}.py", folder / side, *wanted, *options],
                check=True,
                stdout=subprocess.DEVNULL,
            )


def _first(verdict: Any) -> str:
    return f"{verdict.findings[0].kind}: {verdict.findings[0].message}"[:150] if verdict.findings else ""


if __name__ == "__main__":
    sys.exit(main())
