"""The JSON files of a step, and its rows: put together from the pieces in the journal, each whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msprobe import __version__
from msprobe.foreign import zstd
from msprobe.paths import write_atomically
from msprobe.store import entries, journal, layout, processes, unchanged
from msprobe.store.encode import strict
from msprobe.store.pieces import object_pieces, parent_pieces, row_pieces, stack_pieces

# A file is written again before the end of its step only when there is so much more to say.
_GROWTH = 1.25
_READ_WRITE = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)


@dataclass
class RecordContent:
    """What files say, by names as they stand there, in quotation marks."""

    #: Where records stand in the journal; 0 for a place that is reserved.
    records: dict[bytes, int] = field(default_factory=dict)
    parents: dict[bytes, bytes] = field(default_factory=dict)
    stack_of: dict[bytes, int] = field(default_factory=dict)
    frames: dict[int, bytes] = field(default_factory=dict)
    #: Where rows stand in the journal: the number of the first, and the place.
    rows: list[tuple[int, int]] = field(default_factory=list)
    #: A parent that was said already was said again.
    has_other_parents: bool = False


class RecordFiles:
    """Writes ``dump.json`` (or ``debug.json``), ``stack.json`` and ``construct.json``; see
    :class:`msprobe.store.writer.DumpWriter`, which has the arguments.
    """

    def __init__(
        self,
        content: RecordContent,
        header: dict[str, object],
        encode: Callable[[object, int], bytes],
        kind: layout.FileKind,
        with_stacks: bool,
        with_construct: bool,
        strict_json: bool,
        compress: bool,
    ) -> None:
        self._content = content
        theirs = dict(header)
        ours = theirs.pop("msprobe", None)
        #: What stands before ``data``.
        self.header = theirs
        self._our_header = ours if isinstance(ours, dict) else {}
        self._encode = encode
        self._with_stacks = with_stacks
        self._with_construct = with_construct
        self._strict = strict_json
        self._compress = compress
        self._json_name = layout.DUMP_FILE if kind == "dump" else layout.DEBUG_FILE
        if compress:
            self._json_name += layout.COMPRESSED
        self._rows_name = layout.ROWS_FILE if kind == "dump" else layout.DEBUG_ROWS_FILE
        self._folder = Path()
        #: Those that were written and are to be waited for.
        self.paths: set[str] = set()
        # Journal size when they were last written; the stacks and parents known then.
        self._published_size = 0
        self._published_stacks = (-1, -1)
        self._published_parents = -1
        self._published_rows = 0

    def ours(self) -> dict[str, object]:
        """What stands under our own key."""
        return {
            "version": __version__,
            "format": entries.FORMAT,
            "process": processes.this_process().as_dict(),
            **self._our_header,
        }

    def text(self, tree: object, depth: int) -> bytes:
        """A tree as it stands in the files."""
        text = self._encode(tree, depth)
        return strict(text) if self._strict else text

    def write(self, folder: Path, source: journal.Journal, final: bool, interrupted: bool) -> None:
        """Bring the files up to date with the journal, those that have changed; see :meth:`DumpWriter.publish`."""
        self._folder, written = folder, self._published_size
        finished, content = final and not interrupted, self._content
        if 0 in content.records.values():
            # Reserved, and what was to be put there failed.
            for key in [key for key, place in content.records.items() if not place]:
                del content.records[key]
        if written == source.size:
            if finished and not self._mark_finished():
                self._write_json(source, finished)
            return
        if written and not final and source.size < written * _GROWTH:
            source.flush()
            return
        if self._with_stacks and self._published_stacks != (len(content.stack_of), len(content.frames)):
            unchanged.write(self._path(layout.STACK_FILE), stack_pieces(content.stack_of, content.frames))
            self._published_stacks = (len(content.stack_of), len(content.frames))
        if self._with_construct and (self._published_parents != len(content.parents) or content.has_other_parents):
            unchanged.write(self._path(layout.CONSTRUCT_FILE), parent_pieces(content.parents))
            self._published_parents = len(content.parents)
            content.has_other_parents = False
        if self._published_rows != len(content.rows):
            write_atomically(self._path(self._rows_name), row_pieces(source, content.rows), fsync=False)
            self._published_rows = len(content.rows)
        self._write_json(source, finished)
        self._published_size = source.size

    def _write_json(self, source: journal.Journal, final: bool) -> None:
        pieces = self._json_pieces(source, final)
        write_atomically(self._path(self._json_name), zstd.packed(pieces) if self._compress else pieces, fsync=False)

    def _path(self, name: str) -> str:
        """Where a file of this dump is; before the end of the step it is waited for."""
        path = f"{self._folder}{os.sep}{name}"
        self.paths.add(path)
        return path

    def _mark_finished(self) -> bool:
        """Finish the file that is there by one write at its end; False if it is not the one we wrote, or is packed."""
        if self._compress:
            return False
        with contextlib.suppress(OSError):
            descriptor = os.open(f"{self._folder}{os.sep}{self._json_name}", _READ_WRITE)
            try:
                start = os.fstat(descriptor).st_size - len(entries.OPEN_END)
                if start > 0 and os.pread(descriptor, len(entries.OPEN_END), start) == entries.OPEN_END:
                    return os.pwrite(descriptor, entries.FINISHED_END, start) == len(entries.FINISHED_END)
            finally:
                os.close(descriptor)
        return False

    def _json_pieces(self, source: journal.Journal, final: bool) -> Iterator[bytes]:
        header = self.text(self.header, 0)
        yield header[: -len(b"\n}")] + b",\n " if self.header else b"{\n "
        yield b'"data": '
        yield from object_pieces(source, self._content.records, 1)
        ours = self.text({**self.ours(), "records": len(self._content.records)}, 1)
        yield b',\n "msprobe": ' + ours[: -len(b"\n }")] + b",\n  "
        yield entries.FINISHED_END if final else entries.OPEN_END
