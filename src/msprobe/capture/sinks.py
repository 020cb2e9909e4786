"""Where the records of a run go: a dump folder, memory, or what comes later (a socket).

A :class:`Sink` is asked for a :class:`StepSink` when a step has its first record. Nothing here says that there are
files: a sink may be anything that takes finished records one by one, in the order in which they end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from msprobe.capture import native
from msprobe.config.settings import Settings
from msprobe.store import layout
from msprobe.store.damage import readable_records
from msprobe.store.tensor_files import TensorFileWriter
from msprobe.store.writer import DumpWriter


@dataclass(frozen=True)
class StepFacts:
    """What a sink gets of a step before its first record.

    ``header``: what a dump says of itself (task, level, framework). ``extra``: keys of our own beside it. ``kind``:
    "debug" for variables that are saved by hand.
    """

    step: int
    rank: int | None
    header: dict[str, object]
    extra: dict[str, object]
    kind: layout.FileKind
    with_stacks: bool
    with_construct: bool
    with_tensors: bool


class StepSink(Protocol):
    """Takes the records of one step of one rank. No method raises because of where they go: it is ``failed`` then."""

    @property
    def failed(self) -> bool:
        """True if something is missing; no more records are taken."""

    @property
    def count(self) -> int:
        """How many records there are."""

    def put_call(
        self,
        name: str,
        tree: object,
        stack_id: int | None,
        parent: str | list[object] | bool | None,
        rows: tuple[int, bytes] | None = None,
    ) -> None:
        """A finished record; a later one of the same name replaces it and keeps its place. ``tree``: see
        :mod:`msprobe.capture.records`; it is as it is now only until this returns. ``parent`` False: it has no place
        in the hierarchy. ``rows``: those of its tensors, as :meth:`put_rows` takes them; None if there are none.
        """

    def put_rows(self, first: int, data: bytes) -> None:
        """Rows of tensors, which come before the records that name them; asked for by ``takes_rows`` of the sink."""

    def define_stack(self, stack_id: int, frames: Sequence[str]) -> None:
        """What a call stack is: its frames, innermost first. Comes before the first record that has it."""

    def put_parent(self, child: str, parent: str | list[object] | None) -> None:
        """A place in the hierarchy without a record."""

    def reserve(self, name: str) -> None:
        """Keep a place in the order for a record that comes before the next ``publish``."""

    def error(self, text: str) -> None:
        """Something could not be recorded."""

    def publish(self, final: bool, interrupted: bool = False) -> None:
        """Let what there is be seen. ``final``: the step is over (``interrupted``: too soon)."""

    def give_up(self) -> None:
        """What was recorded in this step is not wanted."""


class TensorSink(Protocol):
    """Takes the values of whole tensors; see :class:`msprobe.store.tensor_files.TensorFileWriter`."""

    @property
    def failed(self) -> bool:
        """True if some are missing."""

    def room(self, nbytes: int) -> Any:
        """Memory (``.data``) for the values of a tensor that is saved next; None if nothing is taken any more."""

    def give_back(self, room: Any) -> None:
        """A room that is not used after all."""

    def save(self, name: str, payload: Any, crc32: int | None = None, room: Any = None) -> None:
        """Take the values of a tensor."""

    def link(self, name: str, existing_name: str) -> None:
        """A second name for values that are there."""

    def flush(self) -> None:
        """Wait until all that was saved is where it belongs."""

    def close(self) -> None:
        """``flush``, and let go of what it takes."""


class Sink(Protocol):
    """Where the records of a run go.

    ``takes_rows``: whether tensors get rows (:mod:`msprobe.store.rows`); none if a sink does not say.
    """

    @property
    def place(self) -> str | None:
        """Where to look for them, which the end of the recording says; None: nobody needs to know."""

    def begin(self, facts: StepFacts) -> StepSink:
        """A step has its first record, or goes on without one."""

    def tensors(self, step: StepSink) -> TensorSink:
        """Where the whole tensors of this step go."""

    def readable(self, step: StepSink) -> int:
        """How many records of a step that failed can be read."""


class DumpFolder:
    """The folder that ``dump_path`` names, in the format of :mod:`msprobe.store`."""

    takes_rows = True

    def __init__(self, settings: Callable[[], Settings]) -> None:
        # As they are now: a part of a recording may have a folder of its own.
        self.settings = settings
        # What writes the whole tensors of a step into a folder.
        self.file_writer: Callable[[Path], TensorFileWriter] = _pt_files

    @property
    def place(self) -> str | None:
        """The folder."""
        return self.settings().dump_path

    def begin(self, facts: StepFacts) -> DumpWriter:
        settings = self.settings()
        step_folder = layout.step_folder(Path(settings.dump_path), facts.step)
        folder = layout.rank_folder(step_folder, facts.rank)
        header = {
            **facts.header,
            "dump_data_dir": str(folder / layout.TENSOR_FOLDER) if facts.with_tensors else None,
        }
        if facts.extra:
            header["msprobe"] = facts.extra
        writer = DumpWriter(
            folder,
            header,
            encode=native.encode,
            kind=facts.kind,
            with_stacks=facts.with_stacks,
            with_construct=facts.with_construct,
            strict_json=settings.strict_json,
            compress=settings.compress == "zstd",
            existing=settings.existing,
        )
        writer.open()
        return writer

    def tensors(self, step: StepSink) -> TensorFileWriter:
        assert isinstance(step, DumpWriter)
        return self.file_writer(step.folder / layout.TENSOR_FOLDER)

    def readable(self, step: StepSink) -> int:
        assert isinstance(step, DumpWriter)
        return readable_records(step.folder)


def _pt_files(folder: Path) -> TensorFileWriter:
    return TensorFileWriter(folder, write_files=native.write_files)
