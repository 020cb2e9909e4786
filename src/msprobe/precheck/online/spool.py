"""The checking side: what ranks send becomes dumps on a disk of this machine, a folder for each step and rank.

A stranger's frame can write nowhere else: names become file names that have no folder in them.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msprobe import log
from msprobe.capture import native
from msprobe.precheck.online.frames import Frame
from msprobe.store import layout
from msprobe.store.dtypes import ELEMENT_TYPES
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter


@dataclass(frozen=True)
class ReceivedStep:
    """A step that has come. ``folder`` holds its ``dump.json``; remove it when it is checked (:meth:`drop`).

    ``is_whole``: False if it has not come to its end, as the rank died or the program was interrupted.
    """

    step: int
    rank: int
    folder: Path
    is_whole: bool = True

    def drop(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Spool:
    """Writes down what comes. ``ranks``: those that are wanted; empty for all."""

    def __init__(self, folder: Path, ranks: Collection[int] = ()) -> None:
        self._folder = folder
        self._ranks = frozenset(ranks)
        self._open: dict[tuple[int, int], _Step] = {}
        # Steps of which only the rest came.
        self._partial: set[tuple[int, int]] = set()
        self._count = 0

    def steps(self, frames: Iterable[Frame]) -> Iterator[ReceivedStep]:
        """The steps in the order in which they end; in the end those that have not, as far as they came."""
        for frame in frames:
            if self._ranks and frame.rank not in self._ranks:
                continue
            try:
                yield from self._take(frame)
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                log.error(f"online check: a {frame.what!r} of step {frame.step}, rank {frame.rank} is wrong: {error}")
        for key in list(self._open):
            yield from self._ended(key, is_whole=False)

    def _take(self, frame: Frame) -> Iterator[ReceivedStep]:
        """Take one frame, and give the step that it ends."""
        key = frame.rank, frame.step
        if frame.what == "begin":
            yield from self._ended(key, is_whole=False)
            # What is refused below is told of there.
            self._partial.add(key)
            self._count += 1
            # A step of the same number may be waiting to be checked.
            folder = self._folder / f"{self._count}_step{frame.step}_rank{frame.rank}"
            self._open[key] = _Step(folder, frame.content)
        elif key in self._open:
            if frame.what != "end":
                self._open[key].take(frame)
            elif frame.content.get("is_wanted") is False:
                self._open.pop(key).give_up()
            else:
                yield from self._ended(key, frame.content.get("is_complete") is True)
        elif key not in self._partial:
            # Of a step whose beginning was refused, or came to a check that was killed.
            self._partial.add(key)
            log.warning(
                f"online check: step {frame.step} of rank {frame.rank} began before this check and is left out."
            )

    def _ended(self, key: tuple[int, int], is_whole: bool) -> Iterator[ReceivedStep]:
        """No more comes of a step, if it is open."""
        one = self._open.pop(key, None)
        if one is None:
            return
        rank, step = key
        if is_whole:
            yield ReceivedStep(step, rank, one.finish())
            return
        told = f"online check: step {step} of rank {rank} has not come to its end"
        if not one.count:
            log.warning(f"{told}: nothing of it can be checked.")
            one.give_up()
            return
        log.warning(f"{told}: the {one.count} records that came are checked.")
        yield ReceivedStep(step, rank, one.finish(), is_whole=False)


class _Step:
    """One step of one rank on its way to the disk."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        header, extra, kind = facts["header"], facts["extra"], facts["kind"]
        if not isinstance(header, dict) or not isinstance(extra, dict) or kind not in ("dump", "debug"):
            raise ValueError("it says of itself what no recorder says")
        tensors = folder / layout.TENSOR_FOLDER
        header = {**header, "dump_data_dir": str(tensors) if facts.get("with_tensors") else None, "msprobe": extra}
        self._writer = DumpWriter(
            folder,
            header,
            # Records come as text.
            encode=lambda tree, depth: tree if isinstance(tree, bytes) else native.encode(tree, depth),
            kind=kind,
            with_stacks=facts.get("with_stacks") is True,
            with_construct=facts.get("with_construct") is True,
        )
        self._writer.open()
        self._tensors = TensorFileWriter(tensors)

    @property
    def count(self) -> int:
        """How many records there are."""
        return self._writer.count

    def take(self, frame: Frame) -> None:
        """One of its frames. Raises KeyError, TypeError, ValueError for what is none."""
        content = frame.content
        if frame.what == "record":
            text = bytes(frame.data)
            if not isinstance(json.loads(text), (dict, list)):
                raise ValueError("a record is no object")
            stack = content["stack"]
            self._writer.put_call(
                _text(content["name"]), text, stack if type(stack) is int else None, content["parent"]
            )
        elif frame.what == "stack":
            self._writer.define_stack(int(content["stack"]), [_text(one) for one in content["frames"]])
        elif frame.what == "parent":
            self._writer.put_parent(_text(content["name"]), content["parent"])
        elif frame.what == "reserve":
            self._writer.reserve(_text(content["name"]))
        elif frame.what == "error":
            self._writer.error(_text(content["text"]))
        elif frame.what == "tensor":
            self._tensors.save(_file_name(content["name"]), _payload(content, frame.data))
        elif frame.what == "link":
            self._tensors.link(_file_name(content["name"]), _file_name(content["existing"]))
        else:
            raise ValueError("nothing is known of its kind")

    def finish(self) -> Path:
        """It is over: the folder with its files."""
        self._tensors.close()
        self._writer.publish(final=True)
        return self._writer.folder

    def give_up(self) -> None:
        """It is not wanted."""
        self._tensors.close()
        self._writer.give_up()
        shutil.rmtree(self._writer.folder, ignore_errors=True)


@dataclass(frozen=True)
class _Payload:
    dtype_name: str
    shape: tuple[int, ...]
    data: memoryview


def _payload(content: Mapping[str, Any], data: Any) -> _Payload:
    known = ELEMENT_TYPES.get(content["dtype"])
    shape = tuple(content["shape"])
    if known is None or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"a tensor of type {content['dtype']!r} and shape {content['shape']!r}")
    if math.prod(shape) * np.dtype(known.stored).itemsize != len(data):
        raise ValueError(f"{len(data)} bytes for a tensor of type {known.name} and shape {list(shape)}")
    return _Payload(known.name, shape, memoryview(data).cast("B"))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _file_name(value: Any) -> str:
    # TensorFileWriter makes it a name without a folder.
    name = _text(value)
    if not name.endswith(".pt"):
        raise ValueError(f"{name!r} is no name of a file of values")
    return name
