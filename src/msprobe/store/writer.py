"""One dump being written: the records of one step and one rank.

Every finished record goes to the journal at once. ``publish`` puts the JSON files together from the pieces in
the journal: nothing is encoded twice, and nothing but names and positions is kept in memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from msprobe import log
from msprobe.errors import PathError, in_one_line, reason_of
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.paths import create_file
from msprobe.store import (
    durable,
    entries,
    file_systems,
    heartbeat,
    journal,
    layout,
    ownership,
    processes,
    recycling,
)
from msprobe.store.encode import encode as _plain_encode
from msprobe.store.encode import quote, strict
from msprobe.store.pieces import LENGTH, LENGTH_BITS
from msprobe.store.record_files import RecordContent, RecordFiles

_RECORD_DEPTH = 2
_FRAMES_DEPTH = 2
_PARENT_DEPTH = 1
_MOST_ERROR_BYTES = 1 << 20

_pack_key = entries.KEY.pack
_RECORD = entries.RECORD
_STACK = entries.STACK
_PARENT = entries.PARENT
_CALL = entries.CALL
_ROWS_HEAD = entries.body(entries.ROWS, b"", b"")
_TAIL_BYTES = entries.CALL_TAIL.size
_pack_tail = entries.CALL_TAIL.pack
_CALL_WITH_ROWS = entries.CALL_WITH_ROWS
_pack_rows_tail = entries.ROWS_TAIL.pack
_ROWS_TAIL_BYTES = entries.ROWS_TAIL.size

_live: weakref.WeakSet[DumpWriter]
# Frames repeat from step to step, and names of modules from record to record; their text is made once.
_frames_text: dict[tuple[str, ...], bytes] = {}
_quoted: dict[str, bytes] = {}
_MOST_KEPT = 20_000


class DumpWriter:
    """Writes ``dump.json`` (or ``debug.json``), ``stack.json`` and ``construct.json`` of one folder.

    ``header`` holds what stands before ``data``: task, level, framework, dump_data_dir, in this order. Behind
    ``data`` stands our own key ``msprobe``: version and format, the process, the number of records, and
    ``complete``, which is true only in the file of a finished step; items of ``header["msprobe"]`` are put
    there too. The text is that of :mod:`msprobe.store.encode`, a line for each argument and result; a finished
    file ends in a newline. ``compress``: the first file is a frame of zstandard, with ``.zst`` behind its name.

    Nothing is created before the first record or ``publish``. If another living process writes in ``folder``,
    ``proc{pid}`` beside it is used; ``dump_data_dir`` of the header follows. No method raises because of the
    disk: the first failure is logged and the writer is quiet from then on (``failed``). In a forked child it
    is quiet too. All methods may be called from any thread.
    """

    def __init__(
        self,
        folder: Path,
        header: dict[str, object],
        *,
        encode: Callable[[object, int], bytes] = _plain_encode,
        kind: layout.FileKind = "dump",
        with_stacks: bool = True,
        with_construct: bool = True,
        strict_json: bool = False,
        compress: bool = False,
        existing: layout.Existing = "clean",
    ) -> None:
        self._folder = Path(folder)
        self._encode = encode
        self._kind: layout.FileKind = kind
        self._with_stacks = with_stacks and kind == "dump"
        self._with_construct = with_construct and kind == "dump"
        self._content = content = RecordContent()
        self._files = RecordFiles(
            content, header, encode, kind, self._with_stacks, self._with_construct, strict_json, compress
        )
        self._strict = strict_json
        self._existing: layout.Existing = existing

        self._lock = threading.RLock()
        self._journal: journal.Journal | None = None
        self._process = 0
        self._beats = False
        self._closed = False
        self._count_at_end = 0
        self._problem: str | None = None
        self._records, self._parents, self._stack_of = content.records, content.parents, content.stack_of
        self._frames, self._rows = content.frames, content.rows
        self._error_bytes = -1
        _live.add(self)

    @property
    def folder(self) -> Path:
        """Where the files are: as given, or ``proc{pid}`` once it turned out that another process has that
        folder.
        """
        return self._folder

    @property
    def count(self) -> int:
        """The number of records so far, without those whose place is only reserved."""
        return self._count_at_end if self._closed else sum(1 for place in self._records.values() if place)

    @property
    def failed(self) -> bool:
        """True if a write failed: the dump is incomplete and takes no more records."""
        return self._problem is not None

    def open(self) -> bool:
        """Claim the folder and start the journal, which the first record does otherwise; False if that cannot
        be.
        """
        with self._lock:
            if self._journal is not None:
                return True
            if self._closed or self._problem is not None:
                return False
            try:
                self._folder, self._journal = ownership.claim(self._folder, self._existing, self._announce)
                self._process = os.getpid()
            except (OSError, PathError) as problem:
                pass_on(problem)
                self._fail(problem)
                return False
            return True

    def _announce(self, folder: Path) -> journal.Journal:
        """Start the journal in ``folder``, which is ours or is to become so."""
        given, ours = self._files.header, self._files.ours()
        if folder != self._folder and given.get("dump_data_dir") == str(self._folder / layout.TENSOR_FOLDER):
            given["dump_data_dir"] = str(folder / layout.TENSOR_FOLDER)
        # Other machines may look at the journal, and see whether we live by its being touched.
        self._beats = not file_systems.is_local_folder(folder)
        if self._beats:
            ours["process"] = {**processes.this_process().as_dict(), "beats": True}
        # Ours in front: other processes look there for the owner.
        header = self._files.text({"msprobe": ours, **given}, 0)
        announced = recycling.start(str(folder), self._kind, entries.body(entries.HEADER, b"", header))
        if self._beats:
            heartbeat.keep(announced.path)
        return announced

    def put(self, name: str, tree: object) -> None:
        """Add one finished record; a later one of the same name replaces it and keeps its place in the order.

        Raises TypeError if ``tree`` holds what JSON cannot (see :func:`msprobe.store.encode.encode`).
        """
        self.put_encoded(name, self._encode(tree, _RECORD_DEPTH))

    def reserve(self, name: str) -> None:
        """Keep the place in the order for a record of this name, which is put before the next ``publish``; until
        then nothing is written.
        """
        with self._lock:
            self._records.setdefault(quote(name), 0)

    def put_encoded(self, name: str, text: bytes) -> None:
        """The same for a record that is JSON text already, written for depth 2."""
        if self._strict:
            text = strict(text)
        key = quote(name)
        body = _pack_key(_RECORD, len(key)) + key + b": " + text
        with self._lock:
            place = self._append(body)
            if place:
                self._records[key] = place

    def put_call(
        self,
        name: str,
        tree: object,
        stack_id: int | None,
        parent: str | list[object] | bool | None,
        rows: tuple[int, bytes] | None = None,
    ) -> None:
        """``put``, ``put_stack`` and ``put_parent`` in one; ``parent`` False: no place in construct.json. ``rows``:
        those of its tensors, as :meth:`put_rows` takes them.
        """
        text = self._encode(tree, _RECORD_DEPTH)
        if self._strict:
            text = strict(text)
        key = quote(name)
        stack = -1 if stack_id is None or not self._with_stacks else stack_id
        if parent is False or not self._with_construct:
            origin, length = b"", entries.NO_PARENT
        else:
            origin = self._parent_text(parent)
            length = len(origin)
        tail = _pack_tail(stack, length)
        behind = len(origin) + _TAIL_BYTES
        if rows is None:
            body = b"".join((_pack_key(_CALL, len(key)), key, b": ", text, origin, tail))
        else:
            first, data = rows
            behind += len(data) + _ROWS_TAIL_BYTES
            end = _pack_rows_tail(first, len(data))
            body = b"".join((_pack_key(_CALL_WITH_ROWS, len(key)), key, b": ", text, origin, tail, data, end))
        with self._lock:
            place = self._append(body)
            if not place:
                return
            self._records[key] = place - behind
            if rows is not None:
                self._rows.append((rows[0], _row_place(place, len(rows[1]) + _ROWS_TAIL_BYTES, len(rows[1]))))
            if stack >= 0:
                self._stack_of[key] = stack
            if length != entries.NO_PARENT:
                self._content.has_other_parents |= key in self._parents
                self._parents[key] = origin

    def put_rows(self, first: int, data: bytes) -> None:
        """Rows of tensors (see :mod:`msprobe.store.row_format`) from the number ``first`` on, before the records that
        name them; later ones of a number count.
        """
        with self._lock:
            place = self._append(_ROWS_HEAD + entries.ROW_NUMBER.pack(first) + data)
            if place:
                self._rows.append((first, _row_place(place, len(data), len(data))))

    def define_stack(self, stack_id: int, frames: Sequence[str]) -> None:
        """Say what the stack ``stack_id`` is: its frames, innermost first. The first definition counts."""
        if not self._with_stacks or stack_id in self._frames:
            return
        known = tuple(frames)
        text = _frames_text.get(known)
        if text is None:
            if len(_frames_text) >= _MOST_KEPT:
                _frames_text.clear()
            text = _frames_text[known] = _plain_encode(known, _FRAMES_DEPTH)
        key = b"%d" % stack_id
        with self._lock:
            if self._append(_pack_key(entries.FRAMES, len(key)) + key + text):
                self._frames[stack_id] = text

    def put_stack(self, name: str, stack_id: int) -> None:
        """Say from which call stack the record ``name`` came; one without frames is left out of the file."""
        if not self._with_stacks:
            return
        key = quote(name)
        with self._lock:
            if self._append(_pack_key(_STACK, len(key)) + key + b"%d" % stack_id):
                self._stack_of[key] = stack_id

    def put_parent(self, child: str, parent: str | list[object] | None) -> None:
        """Say what ``child`` ran in: a module's record, ``[parent, micro_step]``, or None for a root."""
        if not self._with_construct:
            return
        key = quote(child)
        text = self._parent_text(parent)
        with self._lock:
            if self._append(_pack_key(_PARENT, len(key)) + key + b": " + text):
                self._content.has_other_parents |= key in self._parents
                self._parents[key] = text

    def error(self, text: str) -> None:
        """Add ``text`` to ``dump_error_info.log``, which grows to one megabyte and then ends with a line that
        says so.
        """
        with self._lock:
            if not self.open():
                return
            first = self._error_bytes < 0
            if self._error_bytes >= _MOST_ERROR_BYTES:
                return
            data = text.encode("utf-8", "backslashreplace").rstrip(b"\n") + b"\n"
            self._error_bytes = max(0, self._error_bytes) + len(data)
            if self._error_bytes >= _MOST_ERROR_BYTES:
                data = f"{said('further-errors-left-out')}\n".encode()
            try:
                with create_file(self._folder / layout.ERROR_FILE, append=not first) as file:
                    file.write(data)
            except (OSError, PathError) as problem:
                pass_on(problem)
                self._fail(problem)

    def publish(self, final: bool, interrupted: bool = False) -> None:
        """Let the JSON files appear, each whole. ``final`` ends the step: the journal goes and the folder is
        free. ``interrupted``: it ends before the program had finished it, and the file says ``complete: false``.

        Before the end the files are written again only when the journal has grown by a quarter: whoever reads
        in between finds the rest in the journal, and a step with a thousand stops stays as cheap as one with
        ten.
        """
        with self._lock:
            if self._closed:
                return
            opened = self.open()
            if opened and self._journal is not None and self._problem is None:
                try:
                    if self._beats and not os.path.lexists(self._journal.path):
                        # We stood still so long that another machine took us for dead: what is there now is its own.
                        raise PathError(said("journal-removed", self._folder))
                    self._files.write(self._folder, self._journal, final, interrupted)
                except (OSError, PathError) as problem:
                    pass_on(problem)
                    self._fail(problem)
            if final:
                self._close()

    def give_up(self) -> None:
        """End without files: what was recorded is not wanted. Folders that are empty then go as well."""
        with self._lock:
            source = self._journal
            if source is not None and self._problem is None:
                layout.prepare(self._folder, "clean", os.path.basename(source.path))
                self._journal = None
                recycling.remove(source)
                ownership.release(self._folder)
                layout.remove_empty(self._folder)
            self._files.paths.clear()
            self._close()

    def _append(self, body: bytes) -> int:
        """Write one frame, with the lock held; give its place, or 0 if it was not written."""
        if self._journal is None and not self.open():
            return 0
        target = self._journal
        if target is None or self._problem is not None:
            return 0
        try:
            start = target.append(body)
        except (OSError, ValueError) as problem:
            pass_on(problem)
            self._fail(problem)
            return 0
        return start << LENGTH_BITS | len(body)

    def _parent_text(self, parent: object) -> bytes:
        if not isinstance(parent, str):
            return self._encode(parent, _PARENT_DEPTH)
        text = _quoted.get(parent)
        if text is None:
            if len(_quoted) >= _MOST_KEPT:
                _quoted.clear()
            text = _quoted[parent] = quote(parent)
        return text

    def _close(self) -> None:
        """End the step: what was published goes to the disk, then the journal goes; a failed dump keeps its
        journal.
        """
        self._closed, self._count_at_end = True, len(self._records)
        source, self._journal = self._journal, None
        if source is None:
            return
        if self._problem is None:
            done = source
            durable.after_sync(self._files.paths, lambda: recycling.retire(done))
        else:
            with contextlib.suppress(OSError):
                source.close()
        ownership.release(self._folder)
        for part in (self._records, self._parents, self._stack_of, self._frames, self._rows):
            part.clear()

    def _fail(self, problem: Exception) -> None:
        """Say once what failed, and take no more records. The journal stays and shows what there was."""
        if self._problem is not None:
            return
        if isinstance(problem, PathError):
            self._problem = problem.message
        else:
            reason = reason_of(problem) if isinstance(problem, OSError) else in_one_line(problem)
            self._problem = said("journal-not-written", self._folder, reason)
        if isinstance(problem, layout.DumpExistsError):
            log.once(
                "dump refused",
                "error",
                said("dump-refused", self._problem),
            )
            return
        cause = problem.__cause__ if isinstance(problem, PathError) else problem
        log.once(
            ("dump failed", getattr(cause, "errno", None), self._folder.name),
            "error",
            said("dump-failed", self._problem, self._folder),
        )

    def __del__(self) -> None:
        # Nobody closed it: the journal stays, as after a kill, but the folder is free. A child gives nothing back.
        try:
            if self._journal is not None and os.getpid() == self._process:
                self._journal.flush()
                ownership.release(self._folder)
        except Exception:
            return

    def _forked(self) -> None:
        """In a child: the journal, the lock and the files are the parent's."""
        self._lock = threading.RLock()
        source, self._journal = self._journal, None
        self._closed = True
        if source is not None:
            with contextlib.suppress(OSError):
                source.abandon()


def _row_place(frame: int, before_end: int, length: int) -> int:
    """Where so many bytes stand that begin so far before the end of a frame."""
    end = (frame >> LENGTH_BITS) + (frame & LENGTH)
    return (end - before_end) << LENGTH_BITS | length


def _forked() -> None:
    ownership.forget_after_fork()
    durable.forget_after_fork()
    recycling.forget_after_fork()
    for writer in list(_live):
        writer._forked()


_live = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
