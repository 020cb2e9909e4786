"""From a recording with whole tensors to one with statistics, and beside it a digest of each tensor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.capture.memory import Memory, TensorValues
from msprobe.capture.sinks import DumpFolder, StepSink
from msprobe.config.settings import Settings
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump

#: Of a tensor: the name of its record and its place in it.
Key = tuple[str, str]


def slots_of(event: Event) -> Iterator[tuple[str, Slot]]:
    """All tensors of an event, with a name of their own among them."""
    for side, slots in (("in", event.inputs()), ("out", event.outputs()), ("parameters", event.parameters())):
        for slot, leaf in slots:
            if is_tensor(leaf):
                yield f"{side}:{slot}", (slot, leaf)


class Summarised(DumpFolder):
    """A dump folder that keeps the whole tensors of the last step in memory."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        super().__init__(settings)
        self.memory = Memory()
        self.values: dict[str, TensorValues] = {}

    def tensors(self, step: StepSink) -> Any:
        """See :class:`msprobe.capture.sinks.Sink`."""
        return self.memory.tensors(_Values(self.values))


@dataclass(frozen=True)
class _Values:
    tensors: dict[str, TensorValues]


def summarise(place: Path, values: Mapping[str, TensorValues]) -> None:
    """Make the dump in ``place`` one with statistics, and write ``tensors.json`` beside it. ``values``: its tensors by
    the names of their files.
    """
    (part,) = [open_dump(place / "dump").part()]
    keys: list[Key] = []
    digests: list[str] = []
    known: dict[int, int] = {}
    numbers: list[int] = []
    timeline = Timeline(part, one_by_one=True)
    for event in timeline:
        for name, (_, leaf) in slots_of(event):
            whole = values.get(leaf.get("data_name", ""))
            if whole is None:
                continue
            if id(whole) not in known:
                known[id(whole)] = len(digests)
                digests.append(f"{leaf['dtype']}{hashlib.blake2b(whole.data, digest_size=12).hexdigest()}")
            keys.append((event.name, name))
            numbers.append(known[id(whole)])
    folder = part.folder
    timeline.close()
    part.close()
    (place / "tensors.json").write_text(json.dumps({"keys": keys, "numbers": numbers, "digests": digests}))
    path = folder / "dump.json"
    content = json.loads(path.read_text())
    content["task"] = "statistics"
    # Both sides ran on one processor, and are to be taken for two devices: nothing is said of either.
    content["msprobe"].pop("precision", None)
    _forget_files(content["data"])
    path.write_text(json.dumps(content))


def _forget_files(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("data_name", None)
        for one in value.values():
            _forget_files(one)
    elif isinstance(value, list):
        for one in value:
            _forget_files(one)


@dataclass(frozen=True)
class Tensors:
    """The digest of each tensor of a recording."""

    digests: dict[Key, str]

    @classmethod
    def read(cls, place: Path) -> Tensors:
        """Those beside the dump in ``place``."""
        found = json.loads((place / "tensors.json").read_text())
        keys = [(name, slot) for name, slot in found["keys"]]
        return cls({key: found["digests"][number] for key, number in zip(keys, found["numbers"], strict=True)})


def part_of(place: Path) -> DumpPart:
    """The one step of the recording in ``place``."""
    return open_dump(place / "dump").part()
