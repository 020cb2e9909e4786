"""The checking side: what ranks send becomes dumps on a disk of this machine, a folder for each step and rank.

A stranger's frame can write nowhere else: names become file names that have no folder in them. Frames are held against
those of their own sender alone, so that a stranger who names the step of an honest rank adds nothing to it.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.capture import native
from msprobe.errors import MsprobeError, PathError
from msprobe.messages import said
from msprobe.precheck.online.frames import GONE, WireFrame
from msprobe.store import layout
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter

#: So many steps may be open at once; the one that nothing has come of for the longest time makes room for a new one.
MOST_OPEN_STEPS = 512

_Key = tuple[str, int, int]


@dataclass(frozen=True)
class ReceivedStep:
    """A step that has come. ``folder`` holds its ``dump.json``; remove it when it is checked (:meth:`drop`).

    ``is_whole``: False if it has not come to its end, as the rank died or the program was interrupted. ``problem``: why
    it cannot be checked; "" if it can.
    """

    step: int
    rank: int
    folder: Path
    is_whole: bool = True
    problem: str = ""

    def drop(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Spool:
    """Writes down what comes. ``ranks``: those that are wanted; empty for all. ``refuse``: is called with a sender, the
    reason, and whether that is of the disk, when one of its frames could not be kept, before the next one is taken.
    """

    def __init__(
        self,
        folder: Path,
        ranks: Collection[int] = (),
        refuse: Callable[[str, str, bool], None] = lambda sender, why, is_of_disk: None,
    ) -> None:
        self._folder = folder
        self._ranks = frozenset(ranks)
        self._refuse = refuse
        self._open: OrderedDict[_Key, _Step] = OrderedDict()
        # Steps of which only the rest came.
        self._partial: set[_Key] = set()
        self._count = 0

    def steps(self, frames: Iterable[WireFrame]) -> Iterator[ReceivedStep]:
        """The steps in the order in which they end; in the end those that have not, as far as they came."""
        for frame in frames:
            if self._ranks and frame.rank not in self._ranks and frame.what != GONE:
                continue
            try:
                yield from self._take(frame)
            except Exception as error:  # one frame harms nothing else, whatever it is
                why = error.message if isinstance(error, MsprobeError) else f"{type(error).__name__}: {error}"
                log.error(said("online-frame-wrong", frame.what, frame.step, frame.rank, why))
                is_of_disk = isinstance(error, (PathError, OSError))
                self._refuse(frame.sender, said("online-frame-not-kept", frame.what, frame.step, why), is_of_disk)
        for key in list(self._open):
            yield from self._ended(key, is_whole=False)

    def _take(self, frame: WireFrame) -> Iterator[ReceivedStep]:
        """Take one frame, and give the step that it ends."""
        if frame.what == GONE:
            for key in [key for key in self._open if key[0] == frame.sender]:
                yield from self._ended(key, is_whole=False)
            return
        key = frame.sender, frame.rank, frame.step
        if frame.what == "begin":
            yield from self._ended(key, is_whole=False)
            # What is refused below is reported there.
            self._partial.add(key)
            self._count += 1
            # A step of the same number may be waiting to be checked.
            folder = self._folder / f"{self._count}_step{frame.step}_rank{frame.rank}"
            self._open[key] = _Step(folder, frame.content)
            if len(self._open) > MOST_OPEN_STEPS:
                oldest = next(iter(self._open))
                self._refuse(oldest[0], said("too-many-open-steps", MOST_OPEN_STEPS), False)
                yield from self._ended(oldest, is_whole=False)
        elif key in self._open:
            self._open.move_to_end(key)
            if frame.what != "end":
                self._open[key].take(frame)
            elif frame.content.get("is_wanted") is False:
                self._open.pop(key).give_up()
            else:
                yield from self._ended(key, frame.content.get("is_complete") is True)
        elif key not in self._partial:
            # Of a step whose beginning was refused, or came to a check that was killed.
            self._partial.add(key)
            log.warning(said("online-step-began-before", frame.step, frame.rank))

    def _ended(self, key: _Key, is_whole: bool) -> Iterator[ReceivedStep]:
        """No more comes of a step, if it is open."""
        step_open = self._open.pop(key, None)
        if step_open is None:
            return
        sender, rank, step = key
        which = said("online-step-of", step, rank)
        if not is_whole and not step_open.count and not step_open.problem:
            log.warning(said("online-step-did-not-end", which))
            step_open.give_up()
            return
        if not is_whole and step_open.count:
            log.warning(said("online-step-ended-early", which, step_open.count))
        try:
            folder, problem = step_open.finish(), step_open.problem
        except OSError as error:
            folder, problem = step_open.folder, str(error)
        if problem:
            self._refuse(sender, said("step-is-not-checked", step, rank, problem), True)
        yield ReceivedStep(step, rank, folder, is_whole, problem)


def _text(tree: object, depth: int) -> bytes:
    """Records come as text. Line breaks in it are not those of the file, by which readers find records."""
    return tree.replace(b"\n", b"") if isinstance(tree, bytes) else native.encode(tree, depth)


class _Step:
    """One step of one rank on its way to the disk."""

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        header, extra, kind = facts["header"], facts["extra"], facts["kind"]
        tensors = folder / layout.TENSOR_FOLDER
        header = {**header, "dump_data_dir": str(tensors) if facts.get("with_tensors") else None, "msprobe": extra}
        self._writer = DumpWriter(
            folder,
            header,
            encode=_text,
            kind=kind,
            with_stacks=facts.get("with_stacks") is True,
            with_construct=facts.get("with_construct") is True,
        )
        self._tensors = TensorFileWriter(tensors)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._writer.folder

    @property
    def problem(self) -> str:
        """Why it is incomplete on this disk; "" if it is not."""
        return said("not-written-to-disk") if self._writer.failed or self._tensors.failed else ""

    @property
    def count(self) -> int:
        """How many records there are."""
        return self._writer.count

    def take(self, frame: WireFrame) -> None:
        """One of its frames. Raises PathError if the disk does not take it, ValueError for a kind that is none."""
        # Before the folder has any file; a step that only begins takes no descriptor.
        self._writer.open()
        content = frame.content
        if frame.what == "record":
            self._writer.put_call(content["name"], bytes(frame.data), content["stack"], content["parent"])
        elif frame.what == "stack":
            self._writer.define_stack(content["stack"], content["frames"])
        elif frame.what == "parent":
            self._writer.put_parent(content["name"], content["parent"])
        elif frame.what == "reserve":
            self._writer.reserve(content["name"])
        elif frame.what == "error":
            self._writer.error(content["text"])
        elif frame.what == "tensor":
            shape = tuple(content["shape"])
            self._tensors.save(content["name"], _Payload(content["dtype"], shape, memoryview(frame.data).cast("B")))
        elif frame.what == "link":
            self._tensors.link(content["name"], content["existing"])
        else:
            raise ValueError(said("kind-not-known"))
        if self.problem:
            raise PathError(self.problem)

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
