"""Record the two sides of a planted pair.

    python -m bugs.record FOLDER MODE PATTERN[:DRAW]...      (in tests/)

Modes: ``statistics``, ``digest`` (statistics and order-sensitive digests) and ``tensor`` (digests and values).
Level mix, every step of the pattern. One process can record many pairs: each side begins with a fresh program,
fresh seeds and a fresh debugger.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from bugs import ranks_run
from bugs.planting import Draw, Pattern, draw, programs

MODES = ("statistics", "digest", "tensor")
SIDES = ("candidate", "reference")


@dataclass(frozen=True)
class Pair:
    """A recorded pair: the folder of each side's dump, its program, and what it came to."""

    pattern: Pattern
    draw: Draw
    mode: str
    folder: Path
    precision: str = "float32"

    def dump(self, side: str) -> Path:
        """The dump of a side."""
        return self.folder / side / "dump"

    def program(self, side: str) -> str:
        """The text of a side's program."""
        return (self.folder / side / "program.py").read_text()

    def outcome(self, side: str) -> dict[str, Any]:
        """Losses, gradients and weights of a side, as digests by step."""
        found: dict[str, Any] = json.loads((self.folder / side / "outcome.json").read_text())
        return found


def debugger_settings(mode: str, place: Path) -> dict[str, Any]:
    """The settings that the debugger gets in a mode for the side in ``place``; ``whole``: values of optimizers, too;
    ``lockstep``: against the reference beside it.
    """
    if mode == "whole":
        return {"task": "tensor", "level": "mix", "optimizer": True, "tensor": {"summary_mode": "xxh3"}}
    if mode == "lockstep":
        reference = str(place.parent / "reference" / "dump")
        return {"task": "lockstep", "lockstep": {"reference": reference, "verdict": "later"}}
    task = "tensor" if mode == "tensor" else "statistics"
    summary = "statistics" if mode == "statistics" else "xxh3"
    return {"task": task, "level": "mix", task: {"summary_mode": summary}}


def record(
    pattern: Pattern,
    drawn: Draw,
    mode: str,
    folder: Path,
    precision: str = "float32",
    references: Path | None = None,
) -> Pair:
    """Record both sides into ``folder``, which is emptied before. ``references``: a folder that keeps each reference;
    a second pair with the same one gets a copy.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pair = Pair(pattern, drawn, mode, folder, precision)
    for side, text in zip(SIDES, programs(pattern, drawn), strict=True):
        world = pattern.world if side == "candidate" else pattern.reference_world or pattern.world
        device = pattern.device if side == "candidate" else ""
        recording = _Recording(text, dict(drawn.settings), mode, pattern.steps, world, precision, device)
        if side == "reference" and references is not None:
            shutil.copytree(recording.kept_in(references), folder / side)
        else:
            recording.record(folder / side)
        if side in pattern.headers:
            tell_precision(folder / side / "dump", pattern.headers[side])
    return pair


@dataclass(frozen=True)
class _Recording:
    """What decides the recording of a program."""

    text: str
    settings: dict[str, Any]
    mode: str
    steps: int
    world: int
    precision: str
    device: str

    def record(self, place: Path) -> None:
        place.mkdir(parents=True)
        (place / "program.py").write_text(self.text)
        if self.world > 1:
            ranks_run.record(place, self.settings, self.mode, self.steps, self.world, self.precision, self.device)
        else:
            record_side(place, self.settings, self.mode, self.steps, precision=self.precision, device=self.device)

    def kept_in(self, folder: Path) -> Path:
        """The recording in ``folder``; made, if it is not there."""
        name = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
        if not (folder / name).is_dir():
            with tempfile.TemporaryDirectory(dir=folder) as temporary:
                self.record(Path(temporary) / name)
                with contextlib.suppress(OSError):  # a different process was faster
                    os.rename(Path(temporary) / name, folder / name)
        return folder / name


def tell_precision(dump: Path, told: Mapping[str, Any] | None) -> None:
    """Let all parts of a dump tell this of their precision beside what was recorded; None: nothing at all."""
    for path in dump.rglob("dump.json"):
        content = json.loads(path.read_text())
        found = content["msprobe"].pop("precision")
        if told is not None:
            content["msprobe"]["precision"] = {**found, **told}
        path.write_text(json.dumps(content))


def record_side(
    place: Path,
    settings: dict[str, Any],
    mode: str,
    steps: int,
    rank: int | None = None,
    precision: str = "float32",
    device: str = "",
) -> None:
    """Run the program in ``place`` and record each of its steps; ``rank``: this process is one of several ranks.
    ``device``: see :class:`bugs.planting.Pattern`.
    """
    from bugs.kernels.device import Device
    from bugs.outcome import Outcome
    from bugs.precision import set_precision
    from msprobe.pytorch import PrecisionDebugger

    kernels = Device(device) if device else contextlib.nullcontext()
    with kernels, loaded(place / "program.py") as program:
        training = program.Training(program.Settings(**settings))
        set_precision(training, precision)
        of_rank = "" if rank is None else f"-{rank}"
        config = place / f"config{of_rank}.json"
        config.write_text(json.dumps({**debugger_settings(mode, place), "dump_path": str(place / "dump")}))
        debugger = PrecisionDebugger(str(config))
        outcome = Outcome(training)
        try:
            for number in range(steps):
                debugger.start(training.model)
                training.step(number)
                debugger.stop()
                debugger.step()
                outcome.note()
        finally:
            PrecisionDebugger.reset()
    (place / f"outcome{of_rank}.json").write_text(json.dumps(outcome.content()))


@contextmanager
def loaded(path: Path) -> Iterator[ModuleType]:
    """The program as a module, under a name of its own as long as it is used."""
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["program"] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["program"]


def main() -> None:
    from bugs.patterns import PATTERNS

    folder, mode, *wanted = sys.argv[1:]
    for name in wanted:
        pattern_id, _, number = name.partition(":")
        pattern = PATTERNS[pattern_id]
        record(pattern, draw(pattern, int(number or 0)), mode, Path(folder) / f"{pattern_id}-{number or 0}-{mode}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.dont_write_bytecode = True
    main()
