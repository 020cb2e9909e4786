"""Run one zoo training bare or recorded, and write down everything that could differ."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import zoo
from innocence_observation import Observation, Observer
from innocence_torch_state import flags, functions, replaced
from torch import nn

Models = nn.Module | Sequence[nn.Module]


class Watcher(Protocol):
    """Whatever accompanies a training: nothing, the recorder, or (to test the tests) a culprit."""

    def start(self, models: Models) -> None: ...

    def stop(self) -> None: ...

    def step(self) -> None: ...

    def save(self, value: object, name: str) -> None: ...

    def close(self) -> None: ...


class Nobody:
    """The bare run."""

    def start(self, models: Models) -> None: ...

    def stop(self) -> None: ...

    def step(self) -> None: ...

    def save(self, value: object, name: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Setting:
    """One way to record: level, task, and further entries of the task's section or of the top of
    config.json."""

    level: str
    task: str = "statistics"
    section: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        extras = [f"{key}={value}" for key, value in {**self.section, **self.top}.items()]
        return "-".join([self.level, self.task, *extras]).replace(" ", "").replace("'", "")


class Recorder:
    """The real thing: a PrecisionDebugger built from a config.json in the given folder; dumps there, or in
    `dump_path`."""

    def __init__(self, folder: Path, setting: Setting, dump_path: Path | None = None) -> None:
        from msprobe.pytorch import PrecisionDebugger

        self.dump_path = dump_path or folder / "dump"
        config = folder / "config.json"
        config.write_text(
            json.dumps(
                {
                    "task": setting.task,
                    "level": setting.level,
                    "dump_path": str(self.dump_path),
                    setting.task: setting.section,
                    **setting.top,
                }
            )
        )
        PrecisionDebugger.reset()
        self.debugger = PrecisionDebugger(config_path=str(config))

    def start(self, models: Models) -> None:
        self.debugger.start(models)

    def stop(self) -> None:
        self.debugger.stop()

    def step(self) -> None:
        self.debugger.step()

    def save(self, value: object, name: str) -> None:
        self.debugger.save(value, name)

    def close(self) -> None:
        type(self.debugger).reset()

    def entries(self, rank: str = "*") -> dict[str, list[str]]:
        """Names of what was recorded, by step folder; of all ranks, or of one rank folder."""
        found: dict[str, list[str]] = {}
        for file in sorted(self.dump_path.glob(f"step*/{rank}/d*.json")):
            if file.name in ("dump.json", "debug.json"):
                step = file.parent.parent.name
                found.setdefault(step, []).extend(json.loads(file.read_text())["data"])
        return found

    def faults(self) -> str:
        """What the recorder could not record, in its own words: nothing, if all is well."""
        return "\n".join(file.read_text() for file in self.dump_path.rglob("dump_error_info.log"))


class WatchedRegion:
    """Passes begin and end on to the watcher, and notes what torch looks like before, inside and after."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.notes: dict[str, object] = {}
        self.place = ""
        self._count = 0

    def begin(self, models: Models) -> None:
        self._before = functions(strict=False)
        self._flags = flags()
        self.watcher.start(models)
        self._note("inside at first", replaced(self._before, strict=True))

    def end(self) -> None:
        self._note("inside at last", replaced(self._before, strict=True))
        self.watcher.stop()
        self._note("after stop", replaced(self._before, strict=False))
        after = flags()
        self._note("flags after stop", {name: after[name] for name in after})
        self._count += 1

    def save(self, value: object, name: str) -> None:
        self.watcher.save(value, name)

    def _note(self, what: str, value: object) -> None:
        self.notes[f"{self.place}region {self._count} {what}"] = value


def run(name: str, watcher: Watcher, seed: int = 1234) -> Observation:
    """Train the named architecture beside the watcher and give the full observation."""
    observer = Observer()
    region = WatchedRegion(watcher)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            case = zoo.build(name, seed)
            try:
                for i in range(case.steps):
                    region.place = place = f"step{i}/"
                    results = case.run_step(i, region)
                    watcher.step()
                    observer.note(place + "results", results)
                    for key, value in results.items():
                        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                            observer.graph(f"{place}graph of {key}", value)
                    for key, thing in case.tracked.items():
                        observer.tracked(place + key, thing)
                    observer.generators(place + "generator")
                for key, thing in case.tracked.items():
                    if isinstance(thing, nn.Module):
                        observer.copies(key, thing)
            finally:
                case.close()
        finally:
            torch.set_warn_always(False)
            watcher.close()
    observer.seen.update(region.notes)
    observer.seen["warnings"] = sorted({f"{w.category.__name__}: {str(w.message).splitlines()[0]}" for w in told})
    return observer.seen


def run_bare(name: str) -> Observation:
    """The observation that recorded runs are compared with: of a second run, with the warnings of both."""
    return run_bare_twice(name)[1]


@functools.cache
def run_bare_twice(name: str) -> tuple[Observation, Observation]:
    """The observations of a first and of a second run; the second has the warnings of both.

    The first use of some parts of torch imports others, and patches torch for good; that is not the
    recorder's doing. Elsewhere the two are the same.
    """
    first, second = run(name, Nobody()), run(name, Nobody())
    known = {*first["warnings"], *second["warnings"]}  # type: ignore[misc]
    return first, {**second, "warnings": sorted(known)}


def without_known_once(off: Observation, on: Observation) -> tuple[Observation, Observation]:
    """Many warnings are given once in a process, so the second run lacks them: only new ones count."""
    known = set(off["warnings"])  # type: ignore[call-overload]
    fresh = [text for text in on["warnings"] if text not in known]  # type: ignore[attr-defined]
    return {**off, "warnings": []}, {**on, "warnings": fresh}
