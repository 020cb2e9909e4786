"""The recordings of the bench as those of other levels: of L0 what modules take and give, of L1 the calls alone."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.steps.collector import no_collection
from msprobe.diagnose.steps.timeline import Event, Timeline

from .judges import Answer, today
from .record import Recording, recorded
from .recordings import KernelPair
from .truth import Truth
from .whole import Tensors, part_of

_KEPT = {"L0": frozenset(("module", "parameters", "optimizer")), "L1": frozenset(("api",))}


@dataclass(frozen=True)
class Coarse:
    """The verdict of ``msprobe compare`` on dumps of a level."""

    level: str = "L0"

    def __call__(self, pair: KernelPair) -> Answer:
        sides = (at_level(side, self.level) for side in (pair.candidate, pair.reference))
        return today(replace(pair, **dict(zip(("candidate", "reference"), sides, strict=True))))


def at_level(place: Path, level: str) -> Path:
    """The recording in ``place`` with what a level records; made once, beside it."""
    made = place / level
    if not made.is_dir():
        with tempfile.TemporaryDirectory(dir=place) as name:
            shutil.copytree(place / "dump", Path(name) / "made" / "dump", copy_function=os.link)
            for path in Path(name).rglob("dump.json"):
                content = json.loads(path.read_text())
                content["level"] = level
                content["data"] = {key: record for key, record in content["data"].items() if _is_kept(key, level)}
                _replace(path, content)
            for path in Path(name).rglob("construct.json"):
                parents = {key: above for key, above in json.loads(path.read_text()).items() if _is_kept(key, level)}
                _replace(path, parents if level == "L0" else dict.fromkeys(parents))
            (Path(name) / "made").rename(made)
    return made


def coarse_pairs(pairs: Iterable[KernelPair], cache: Path, level: str = "L0") -> Iterator[KernelPair]:
    """The pairs that a level shows something of, with its truths."""
    for pair in pairs:
        healthy = recorded(Recording(pair.network, pair.precision, pair.variant), cache) if pair.truth else None
        coarse = coarse_pair(pair, healthy, level)
        if coarse is not None:
            yield coarse


def coarse_pair(pair: KernelPair, healthy: Path | None, level: str) -> KernelPair | None:
    """A pair with the truth that a level can show; None where it shows nothing. ``healthy``: the device of the
    candidate without its fault.
    """
    if pair.truth is None or healthy is None:
        return pair
    ours, theirs = Tensors.read(healthy).digests, Tensors.read(pair.candidate).digests
    shown = {name for name, slot in theirs if _is_kept(name, level) and ours.get((name, slot)) != theirs[name, slot]}
    if not shown:
        return None
    if level == "L1":
        return pair
    part = part_of(pair.candidate)
    with no_collection():
        timeline = Timeline(part, one_by_one=True)
        named = _of_module(timeline, timeline.by_name[pair.truth.entry])
        timeline.close()
    part.close()
    return replace(pair, truth=Truth(pair.truth.entry, frozenset(named)))


def _of_module(timeline: Timeline, wrong: Event) -> set[str]:
    """The records of the module that a call runs in, in its direction; outside of all modules, those of the model's
    own.
    """
    around = wrong if not wrong.is_call else wrong.parent
    directions = ("forward", "recompute") if wrong.direction in ("forward", "recompute") else ("backward", "gradient")
    if wrong.direction == "optimizer" or (around is None and wrong.parts.kind == "optimizer"):
        return {event.name for event in timeline if event.parts.kind == "optimizer"}
    return {
        event.name
        for event in timeline
        if event.parts.kind in _KEPT["L0"]
        # A loss shows in the gradients alone.
        and (event.direction in directions or around is None)
        and (event.parent is None if around is None else event.parts.path == around.parts.path)
    }


def _is_kept(name: str, level: str) -> bool:
    return read_name(name).kind in _KEPT[level]


def _replace(path: Path, content: object) -> None:
    path.unlink()  # it is one with that of the whole recording
    path.write_text(json.dumps(content))
