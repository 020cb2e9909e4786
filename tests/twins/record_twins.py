"""Record the dumps of ``tests/data/mindspore_and_pytorch.tar.xz``, with both frameworks.

    python tests/twins/record_twins.py [ARCHIVE]

MINDSPORE_PYTHON and PYTORCH_PYTHON name the interpreters; else those are taken that ``make`` made. One folder for each
way of recording, in it a dump for each training: ``mix/mindspore_healthy``, ``mix/pytorch_scale``,
``twins_L0/pytorch_conv``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from twins import NETWORKS

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "tests" / "data" / "mindspore_and_pytorch.tar.xz"
EXAMPLE, TWINS = ROOT / "examples" / "02_mindspore_and_pytorch", ROOT / "tests" / "twins"
#: The mistakes that show in the weights of later steps.
OPTIMIZER = ("learning_rate", "betas", "weight_decay")
MISTAKES = (
    *("scale", "mask", "epsilon", "gelu", "residual", "not_loaded", "weight", "stopped", "gradient"),
    *OPTIMIZER,
)
#: Way of recording -> its options, and the mistakes that are recorded so.
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "mix": ((), MISTAKES),
    "L0": (("--level", "L0"), ("scale", "gelu", "residual", "weight", "stopped", "gradient", "learning_rate")),
    "L1": (("--level", "L1"), ("scale", "mask", "gelu", "residual", "epsilon", "gradient", "learning_rate")),
    "md5": (("--summary", "md5"), ("gelu", "weight")),
    "tensor": (("--task", "tensor"), ("epsilon",)),
    "structure": (("--task", "structure"), ("mask",)),
}
LEVELS = ("mix", "L0", "L1")


@dataclass(frozen=True)
class Training:
    """One training in both frameworks. ``folder``: of its way of recording; ``name``: what its dumps are called."""

    folder: str
    name: str
    scripts: Path
    options: tuple[str, ...]

    def command(self, framework: str, python: str, output: Path) -> list[str]:
        """The command that records it under ``output``."""
        dump = output / self.folder / f"{framework}_{self.name}"
        if self.scripts == EXAMPLE:
            return [python, str(EXAMPLE / f"train_{framework}.py"), str(dump), *self.options]
        return [python, str(TWINS / f"{framework}_twins.py"), self.name, str(dump), *self.options]


def example(ways: Iterable[str] = WAYS) -> Iterator[Training]:
    """The trainings of the example, healthy and with mistakes."""
    for way in ways:
        options, mistakes = WAYS[way]
        for name in ("healthy", *mistakes):
            steps = "3" if name in ("healthy", *OPTIMIZER) and way != "tensor" else "1"
            planted = () if name == "healthy" else ("--mistake", name)
            yield Training(way, name, EXAMPLE, (*options, "--steps", steps, *planted))


def twins(levels: Iterable[str] = LEVELS) -> Iterator[Training]:
    """The other networks, healthy."""
    for level in levels:
        for network in NETWORKS:
            yield Training(f"twins_{level}", network, TWINS, ("--level", level))


def interpreters() -> dict[str, str] | None:
    """The Python of each framework; None if one of them is not to be found."""
    found = {}
    for framework, module, environment in (
        ("pytorch", "torch", ".venv"),
        ("mindspore", "mindspore", ".venv-mindspore"),
    ):
        own = ROOT / environment / "bin" / "python"
        named = os.environ.get(f"{framework.upper()}_PYTHON") or (str(own) if own.exists() else sys.executable)
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
        if subprocess.run([named, "-c", code], check=False).returncode:
            return None
        found[framework] = named
    return found


def record(trainings: Iterable[Training], output: Path, jobs: int = 2) -> None:
    """Run trainings in both frameworks. Raises CalledProcessError with what the first that failed wrote."""
    found = interpreters()
    if found is None:
        raise SystemExit("one of the frameworks is missing: set MINDSPORE_PYTHON and PYTORCH_PYTHON")
    commands = [one.command(name, python, output) for one in trainings for name, python in found.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}

    def run(command: list[str]) -> None:
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{ended.stderr[-3000:]}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, commands))


def without_places(text: str, *folders: str) -> str:
    """A file of a dump without where and by which process it was recorded, which is nobody's business."""
    for folder in folders:
        text = text.replace(folder, "/home/user/msprobe")
    return re.sub(r'"process": *\{[^{}]*\}', '"process": {"pid": 1, "host": "host", "started": 1}', text)


def pack(output: Path, archive: Path) -> None:
    """Write the dumps under ``output`` into an archive."""
    environments = {str(Path(python).parents[2]) for python in (interpreters() or {}).values()}
    for file in output.rglob("*.json"):
        file.write_text(without_places(file.read_text(), str(ROOT), str(output), *environments))
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for path in sorted(output.rglob("*")):
            if path.suffix in (".json", ".npy", ".pt"):
                info = packed.gettarinfo(path, str(path.relative_to(output)))
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                with path.open("rb") as content:
                    packed.addfile(info, content)


def main() -> None:
    archive = Path(sys.argv[1]) if len(sys.argv) > 1 else ARCHIVE
    with tempfile.TemporaryDirectory() as name:
        record([*example(), *twins()], Path(name))
        pack(Path(name), archive)


if __name__ == "__main__":
    main()
