"""One step of one rank, read back: whoever wrote it, and however the writing ended."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.foreign import links
from msprobe.foreign.file_names import is_inside
from msprobe.foreign.json_text import kind_of
from msprobe.messages import said
from msprobe.paths import MAX_NAME_LENGTH
from msprobe.store import entries, json_index, layout
from msprobe.store.journal_reader import JournalGone, JournalReader
from msprobe.store.rows import StoredRows

if TYPE_CHECKING:
    from msprobe.store.columns import Columns
    from msprobe.store.values import Room


_STEP = re.compile(r"step\d+")


class DumpPart:
    """The records of one folder, each parsed when it is asked for.

    A finished dump is read from its JSON files; one that was interrupted also from the journal that its
    writer left, in which case ``complete`` is False and ``lost`` says how many records of it could not be
    read. A dump that mindstudio-probe wrote does not say whether it is complete; it counts as such. ``partial``: a
    JSON file that is cut off is read up to its last whole record, and counts as interrupted.

    Raises PathError or InvalidInputError, with the file and the place in it, when something is broken: at
    once for the outline of the dump, at the record for what is inside it.
    """

    def __init__(
        self, folder: Path, kind: layout.FileKind, step: int | None, rank: int | str, partial: bool = False
    ) -> None:
        self.folder = folder
        self.partial = partial
        self.kind: layout.FileKind = kind
        self.step = step
        self.rank = rank
        self.path = layout.main_file(folder, kind)
        #: Files of values that were asked for (:meth:`array`) and could not be read, by their names.
        self.unread: dict[str, None] = {}
        self._last_tensor: tuple[str | None, str] = (None, "")
        self._begin()
        try:
            self._read()
        except JournalGone:
            # The step was finished a moment ago.
            self._begin()
            self._read()

    def __reduce__(self) -> tuple[Any, ...]:
        # The place, not the content of its files: who unpacks it reads them.
        return DumpPart, (self.folder, self.kind, self.step, self.rank, self.partial)

    def _begin(self) -> None:
        self.header: dict[str, Any] = {}
        self.ours: dict[str, Any] = {}
        self.complete = True
        self.lost = 0
        self._places = json_index.MemberPlaces()
        self._index: json_index.JsonIndex | None = None
        self._sources: list[tuple[Path, Any]] = []
        #: The rows of tensors, see :mod:`msprobe.store.rows`.
        self.rows = StoredRows(self.folder / (layout.ROWS_FILE if self.kind == "dump" else layout.DEBUG_ROWS_FILE))
        self._stack_of: dict[str, Any] | None = None
        self._frames: dict[Any, list[str]] = {}
        self._parents: dict[str, Any] | None = None
        self._journal_stacks: dict[str, str] = {}
        self._journal_frames: dict[str, list[str]] = {}
        self._journal_parents: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"DumpPart({str(self.folder)!r}, {len(self)} records{'' if self.complete else ', incomplete'})"

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def names(self) -> list[str]:
        """The names of all records, in their order."""
        return list(self._places)

    def record(self, name: str) -> Any:
        """The content of one record: an object, as a rule. KeyError if there is none of that name."""
        number, start, end = self._places[name]
        path, text = self._sources[number]
        return json_index.parse(text[start:end], path, f", record {name!r},", start)

    def records(self, names: Collection[str] | None = None) -> Iterator[tuple[str, Any]]:
        """Name and content of all records, or of those named, in their order."""
        texts = [text for _, text in self._sources]
        for name, number, start, end in self._places.items():
            if names is not None and name not in names:
                continue
            try:
                content = orjson.loads(texts[number][start:end])
            except ValueError:
                content = json_index.parse_loose(
                    texts[number][start:end], self._sources[number][0], f", record {name!r},", start
                )
            yield name, content
        for text in texts:
            json_index.forget_pages(text)  # of a gigabyte that was read once, nothing stays in memory

    def texts(self) -> Iterator[tuple[str, bytes]]:
        """Name and JSON text of all records, in their order, for those who know from the text what they look for."""
        texts = [text for _, text in self._sources]
        for name, number, start, end in self._places.items():
            yield name, texts[number][start:end]

    def tensors(self, with_values: bool = False) -> Columns:
        """All tensors as columns; ``with_values`` adds a row for each argument that is no tensor."""
        from msprobe.store.columns import columns  # numpy: half of the start of those who need no columns

        return columns(self.records(), with_values)

    def stack(self, name: str) -> list[str]:
        """The call stack a record came from, innermost frame first; empty if none was written."""
        if self._stack_of is None:
            self._stack_of = self._read_stacks()
        return self._frames.get(self._stack_of.get(name), [])

    def parent(self, name: str) -> Any:
        """What a record ran in: a record's name, ``[name, micro_step]``, or None (a root, or not known)."""
        return self.parents().get(name)

    def parents(self) -> dict[str, Any]:
        """The content of ``construct.json``: child to parent, in order."""
        if self._parents is None:
            content = self._load_if_there(layout.CONSTRUCT_FILE)
            # Names of records, which are in memory already, and many have the same parent.
            self._parents = {
                sys.intern(name): sys.intern(above) if type(above) is str else above
                for name, above in (content | self._journal_parents).items()
            }
        return self._parents

    def tensor_path(self, data_name: str) -> Path:
        """The file of the values named ``data_name`` in a record; it need not be there (see ``has_tensor``).

        The file always lies in the folder beside ``dump.json``, or elsewhere in the folder of the dump where its name
        is a path (of mindstudio-probe 8.1.1): dumps are moved, and a name from a file leads nowhere else. Raises
        InvalidInputError for a name that would.
        """
        return Path(self._tensor_file(data_name))

    def _tensor_file(self, data_name: str) -> str:
        known, path = self._last_tensor
        if known != data_name:
            path = self._find_tensor_file(data_name)
            self._last_tensor = data_name, path  # what is looked for is read next
        return path

    def _find_tensor_file(self, data_name: str) -> str:
        if "/" in data_name and "\0" not in data_name:
            return self._path_inside(data_name)
        if not data_name or "\0" in data_name or data_name in (".", "..") or not _can_be_a_name(data_name):
            raise InvalidInputError(said("tensor-file-name-wrong", self.path, _shown(data_name)))
        path = self._tensor_folder + data_name
        if os.path.islink(path):
            links.check_link(path, self._root)
        return path

    @cached_property
    def _tensor_folder(self) -> str:
        """Where the files of values are, with a separator at its end. Raises InvalidInputError if that is a link that
        leads out of the dump.
        """
        folder = self.folder / layout.TENSOR_FOLDER
        links.check_link(folder, self._root)
        return os.path.join(folder, "")

    @cached_property
    def _root(self) -> Path:
        """The folder of the dump, beyond which no link leads: that of all steps, where this is in one of them."""
        real = self.folder.resolve()
        return real.parent.parent if _STEP.fullmatch(real.parent.name) else real

    def _path_inside(self, given: str) -> str:
        """The file of a name that is a path: by its last part where that is beside, else where it says, if that is in
        the folder of the dump.
        """
        name = given.rpartition("/")[2]
        if name not in ("", ".", "..") and os.path.isfile(beside := self._tensor_file(name)):
            return beside
        if os.path.isabs(given) and is_inside(self.folder, given):
            return os.path.realpath(given)
        raise InvalidInputError(
            said("tensor-file-outside", self.path, _shown(given), self.folder / layout.TENSOR_FOLDER)
        )

    def has_tensor(self, data_name: str) -> bool:
        """True if the values were written; an interrupted dump may name files that were on their way."""
        return os.path.isfile(self._tensor_file(data_name))

    def tensor_place(self, data_name: str) -> tuple[int, int] | None:
        """The file of the values named ``data_name``, by its device and number there: equal tensors of a dump are one
        file of several names. None where there is no such file.
        """
        try:
            status = os.stat(self._tensor_file(data_name))
        except (MsprobeError, OSError, ValueError):
            return None
        return status.st_dev, status.st_ino

    def array(self, data_name: str, room: Room | None = None) -> Any:
        """The values named ``data_name`` as an array of numpy; None where they cannot be read, as ``unread`` says.
        ``room``: see :func:`msprobe.store.values.read_values`.
        """
        # Here: a dump without files of values is read without numpy, which takes a third of the start.
        from msprobe.store.values import read_values

        if data_name == "-1":
            return None  # the word of mindstudio-probe for a tensor that it did not write
        try:
            return read_values(self._tensor_file(data_name), room=room).array
        except (MsprobeError, OSError):
            self.unread.setdefault(data_name)
            return None

    def close(self) -> None:
        """Let go of the files; records can no longer be read."""
        shared = self._index.text if self._index is not None else None
        for _, text in self._sources:
            # A finished file is closed with the last who looks at it.
            if not isinstance(text, bytes) and text is not shared:
                text.close()
        self._index = None
        self._sources.clear()
        self.rows.close()

    def _read(self) -> None:
        journals = [path for path in layout.journals(self.folder) if path.name.startswith(f"{self.kind}-")]
        if os.path.lexists(self.path):
            links.check_link(self.path, self._root)
            index = self._index = json_index.read_index(self.path, self.partial)
            self.header, self.ours = dict(index.header), dict(index.ours)
            self.complete = index.ours.get("complete", True) is True
            self._sources.append((self.path, index.text))
            self._places = index.places
            if self.complete:
                # A journal beside a finished file is about to be removed.
                return
            self._places = index.places.copy()
        elif not journals:
            raise PathError(said("rank-folder-empty", self.folder, self.path.name))
        self.complete = False
        for path in sorted(journals, key=lambda path: path.stat().st_mtime_ns):
            self._read_journal(path)

    def _read_journal(self, path: Path) -> None:
        reader = JournalReader(path)
        number = len(self._sources)
        self._sources.append((path, reader.data))
        for start, end in reader:
            head = reader.read(start, start + entries.KEY_BYTES)
            if len(head) < entries.KEY_BYTES:
                continue
            kind, length = entries.KEY.unpack(head)
            content = start + entries.KEY_BYTES + length
            key = reader.read(start + entries.KEY_BYTES, content)
            if kind == entries.ROWS:
                self._read_rows(reader, content, end)
            elif kind == entries.RECORD:
                self._places.add(str(json_index.parse(key, path)), number, content + 2, end)
            elif kind == entries.CALL:
                self._read_call(reader, number, str(json_index.parse(key, path)), content, end)
            elif kind == entries.CALL_WITH_ROWS:
                rest = self._read_rows_behind(reader, content, end)
                self._read_call(reader, number, str(json_index.parse(key, path)), content, rest)
            elif kind == entries.HEADER and not self.header:
                self.header = json_index.parse(reader.read(content, end), path)
                ours = self.header.pop("msprobe", {})
                self.ours = ours if isinstance(ours, dict) else {}
            elif kind == entries.STACK:
                stack_id = reader.read(content, end).decode("ascii", "replace")
                self._journal_stacks[str(json_index.parse(key, path))] = stack_id
            elif kind == entries.FRAMES:
                frames = json_index.parse(reader.read(content, end), path)
                self._journal_frames[key.decode("ascii", "replace")] = frames
            elif kind == entries.PARENT:
                name = str(json_index.parse(key, path))
                self._journal_parents[name] = json_index.parse(reader.read(content + 2, end), path)
        self.lost += reader.damage.frames

    def _read_rows(self, reader: JournalReader, content: int, end: int) -> None:
        start = content + entries.ROW_NUMBER.size
        if start < end:
            (first,) = entries.ROW_NUMBER.unpack(reader.read(content, start))
            self.rows.add_run(first, reader.data, start, end)

    def _read_rows_behind(self, reader: JournalReader, content: int, end: int) -> int:
        """Take the rows behind a call; where the call ends."""
        tail = end - entries.ROWS_TAIL.size
        if tail < content:
            return content
        first, length = entries.ROWS_TAIL.unpack(reader.read(tail, end))
        begin = tail - int(length)
        if begin < content:
            return content
        self.rows.add_run(first, reader.data, begin, tail)
        return begin

    def _read_call(self, reader: JournalReader, number: int, name: str, content: int, end: int) -> None:
        tail = end - entries.CALL_TAIL.size
        if tail < content:
            return
        stack_id, length = entries.CALL_TAIL.unpack(reader.read(tail, end))
        parent = tail if length == entries.NO_PARENT else tail - length
        if parent < content + 2:
            return
        self._places.add(name, number, content + 2, parent)
        if stack_id >= 0:
            self._journal_stacks[name] = str(stack_id)
        if length != entries.NO_PARENT:
            self._journal_parents[name] = json_index.parse(reader.read(parent, tail), self.path)

    def _read_stacks(self) -> dict[str, Any]:
        """The number of the stack of each name, and the frames of each number in ``_frames``."""
        content = self._load_if_there(layout.STACK_FILE)
        path = self.folder / layout.STACK_FILE
        stack_of: dict[str, Any] = {}
        for key, group in content.items():
            if not isinstance(group, list):
                raise InvalidInputError(said("dump-field-is-no-list", path, key, kind_of(group)))
            if "0" in content:
                if len(group) != 2 or not all(isinstance(half, list) for half in group):
                    raise InvalidInputError(said("stack-field-wrong", path, key))
                self._frames[key] = group[1]
                stack_of.update(dict.fromkeys((name for name in group[0] if isinstance(name, str)), key))
            else:  # the older form: entry to frames
                self._frames[key] = group
                stack_of[key] = key
        for name, stack_id in self._journal_stacks.items():
            if stack_id in self._journal_frames:
                stack_of[name] = ("journal", stack_id)
        for stack_id, frames in self._journal_frames.items():
            self._frames["journal", stack_id] = frames
        return stack_of

    def _load_if_there(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        if self.kind == "debug" or not os.path.lexists(path):
            return {}
        links.check_link(path, self._root)
        content = json_index.load_json(path)
        if not isinstance(content, dict):
            raise InvalidInputError(said("dump-json-is-no-object", path, kind_of(content)))
        return content


def _can_be_a_name(text: str) -> bool:
    """Whether the system takes it as the name of a file."""
    try:
        return len(os.fsencode(text)) <= MAX_NAME_LENGTH
    except UnicodeEncodeError:  # half of a character
        return False


def _shown(text: str) -> str:
    """A text of a file for a message: all of it, unless it is long or cannot be printed."""
    return repr(text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}")
