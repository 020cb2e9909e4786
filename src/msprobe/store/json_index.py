"""Where each record of a ``dump.json`` stands, without taking the file apart.

Files written with ``indent=1``, ours and those of mindstudio-probe, show their structure by the blanks at the
beginning of each line, for a JSON string holds no line break. One pass over the mapped file finds all
records; each is parsed when it is asked for. Memory is that of the names, whatever the size of the file.
Other forms of JSON are parsed as a whole.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import orjson

from msprobe.errors import InvalidInputError, PathError
from msprobe.store import layout

_DATA = b'\n "data": {'
_DATA_END = re.compile(rb"\n \}")
_KEY = re.compile(rb'\n  ("(?:[^"\\]|\\.)*"): ')
# What cannot be indexed is parsed as a whole, and takes some five times its size in memory.
_MOST_BYTES_AT_ONCE = 1 << 32


class Places:
    """Where records stand: source, start and end of each name, in the order in which names first came."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._source = array("B")
        self._start = array("Q")
        self._end = array("Q")

    def add(self, name: str, source: int, start: int, end: int) -> None:
        """Set the place of ``name``; a later one counts, at the place in the order of the first."""
        number = self._number.setdefault(name, len(self._start))
        if number == len(self._start):
            self._source.append(source)
            self._start.append(start)
            self._end.append(end)
        else:
            self._source[number], self._start[number], self._end[number] = source, start, end

    @classmethod
    def of(cls, names: list[str], starts: list[int], ends: list[int]) -> Places:
        """Places in the first source; of a name that comes twice, the later one."""
        places = cls()
        places._number = dict(zip(names, range(len(names)), strict=True))
        if len(places._number) == len(names):
            places._source = array("B", bytes(len(names)))
            places._start, places._end = array("Q", starts), array("Q", ends)
        else:
            places._number = {}
            for name, start, end in zip(names, starts, ends, strict=True):
                places.add(name, 0, start, end)
        return places

    def copy(self) -> Places:
        """Places to which more can be added."""
        places = Places()
        places._number = dict(self._number)
        places._source, places._start, places._end = self._source[:], self._start[:], self._end[:]
        return places

    def items(self) -> Iterator[tuple[str, int, int, int]]:
        """Name, source, start and end of all, in order."""
        return zip(self._number, self._source, self._start, self._end, strict=True)

    def __getitem__(self, name: str) -> tuple[int, int, int]:
        number = self._number[name]
        return self._source[number], self._start[number], self._end[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._number)

    def __len__(self) -> int:
        return len(self._number)

    def __contains__(self, name: object) -> bool:
        return name in self._number


@dataclass(frozen=True)
class JsonIndex:
    """A dump file: the keys before and after ``data``, and the place of each record in ``text``. Nobody changes it, as
    all who look at the file get the same one.
    """

    header: dict[str, Any]
    ours: dict[str, Any]
    places: Places
    text: mmap.mmap | bytes


#: Files that somebody looks at now, by path and state: another look costs nothing.
_open: WeakValueDictionary[tuple[str, int, int, int], JsonIndex] = WeakValueDictionary()


def read_index(path: Path, partial: bool = False) -> JsonIndex:
    """Read ``dump.json`` or ``debug.json``; ``partial``: of one that is cut off, the records before the last. Raises
    PathError or InvalidInputError, naming the place.
    """
    if partial:
        return _read_partial(path)
    try:
        state = os.stat(path)
    except OSError:
        return _read_index(path)  # raises it in words
    key = (os.path.abspath(path), state.st_mtime_ns, state.st_size, state.st_ino)
    found = _open.get(key)
    if found is None:
        found = _open[key] = _read_index(path)
    return found


def _read_index(path: Path) -> JsonIndex:
    text = _map(path)
    start = text.find(_DATA)
    if start >= 0:
        index = _index(text, start)
        if index is not None:
            return index
    if len(text) >= _MOST_BYTES_AT_ONCE:
        raise InvalidInputError(
            f'"{path}" has {len(text)} bytes and is cut off, or not written with an indent of 1; '
            f"such a file is read below {_MOST_BYTES_AT_ONCE} bytes."
        )
    return _parse_whole(path, bytes(text))


def _read_partial(path: Path) -> JsonIndex:
    try:
        return _read_index(path)
    except InvalidInputError:
        text = _map(path)
        data = text.find(_DATA)
        start = data + len(_DATA)
        # The last record may lack its end.
        last = max((match.start() for match in _KEY.finditer(text, start)), default=start) if data >= 0 else start
        places = _places(text, start, last - 1) if last > start else None
        try:
            header = json.loads(text[:data].rstrip().removesuffix(b",") + b"}")
        except (ValueError, RecursionError):
            raise
        if places is None:
            raise
        return JsonIndex(header, {"complete": False}, places, text)


def load_json(path: Path) -> Any:
    """The content of a JSON file, with bare NaN and infinities; errors as in :func:`read_index`."""
    text = _map(path)
    if len(text) >= _MOST_BYTES_AT_ONCE:
        raise InvalidInputError(f'"{path}" has {len(text)} bytes; it must have fewer than {_MOST_BYTES_AT_ONCE}.')
    return parse(bytes(text), path)


def parse(text: bytes, path: Path, what: str = "", offset: int = 0) -> Any:
    """Parse JSON that stands at ``offset`` in the file at ``path``; ``what`` names it in the error."""
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    # Bare NaN and infinities, lone surrogates: what Python writes and strict JSON does not know.
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"))
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}" if not offset else f"byte {offset + problem.pos}"
        reason = f"{problem.msg.lower().removesuffix(' at')} at {where}"
    except UnicodeDecodeError as problem:
        reason = f"byte {offset + problem.start} is no UTF-8"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as problem:
        reason = str(problem)
    raise InvalidInputError(f'"{path}"{what} is no readable JSON: {reason}.')


def _map(path: Path) -> mmap.mmap | bytes:
    try:
        # Asked before it is opened: opening a pipe waits for someone to write.
        if os.path.exists(path) and not os.path.isfile(path):
            raise PathError(f'"{path}" is not a regular file.')
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as problem:
        raise PathError(f'file "{path}" does not exist.') from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise PathError(f'file "{path}" cannot be read: {reason.lower()}.') from problem


def _index(text: mmap.mmap | bytes, data: int) -> JsonIndex | None:
    """The index of a file in the usual form; None if it has another, or is broken."""
    start = data + len(_DATA)
    if text[start : start + 1] == b"}":
        end = start
        places: Places | None = Places()
    else:
        match = _DATA_END.search(text, start)
        if match is None:
            return None
        end = match.end() - 1
        places = _places(text, start, match.start())
    if places is None:
        return None
    try:
        before = text[:data].rstrip().removesuffix(b",")
        header = json.loads(before + b"}")
        after = text[end + 1 :].strip()
        rest = json.loads(b"{" + after.removeprefix(b","))
    except (ValueError, RecursionError):
        return None
    ours = rest.pop("msprobe", {})
    return JsonIndex(header | rest, ours if isinstance(ours, dict) else {}, places, text)


def _places(text: mmap.mmap | bytes, start: int, end: int) -> Places | None:
    """Where the value of each key at depth 2 between ``start`` and ``end`` stands; None at a fault."""
    keys: list[bytes] = []
    starts: list[int] = []
    ends: list[int] = []
    for match in _KEY.finditer(text, start, end):
        keys.append(match[1])
        starts.append(match.end())
        ends.append(match.start() - 1)  # the comma
    if not keys or ends[0] != start - 1:
        return None
    try:
        names = [key[1:-1].decode() if b"\\" not in key else str(json.loads(key)) for key in keys]
    except ValueError:
        return None
    return Places.of(names, starts, [*ends[1:], end])


def _parse_whole(path: Path, text: bytes) -> JsonIndex:
    piece_of: Callable[[Any], bytes] = _piece
    try:
        found = orjson.loads(text)
    except ValueError:
        # In the words of Python, which strict JSON does not know.
        found, piece_of = parse(text, path), _piece_of_python
    if not isinstance(found, dict):
        raise InvalidInputError(f'"{path}" must hold a JSON object, found a {type(found).__name__}.')
    data = found.pop("data", None)
    if data is None:
        found, data = _extracted(found)
    if data is None:
        raise InvalidInputError(f'"{path}" is no dump.json: it has no "data"; give the dump.json of a step and rank.')
    if not isinstance(data, dict):
        raise InvalidInputError(f'"{path}": "data" must be an object, found {_kind(data)}.')
    ours = found.pop("msprobe", {})
    pieces, places, position = [], Places(), 0
    for name, record in data.items():
        piece = piece_of(record)
        pieces.append(piece)
        places.add(name, 0, position, position + len(piece))
        position += len(piece)
    return JsonIndex(found, ours if isinstance(ours, dict) else {}, places, b"".join(pieces))


def _extracted(found: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Header and records of a file of single calls, as op_generate of mindstudio-probe writes it: without ``data``."""
    records = {name: value for name, value in found.items() if name.endswith((".forward", ".backward"))}
    if not records or not all(isinstance(value, dict) for value in records.values()):
        return found, None
    header = {name: value for name, value in found.items() if name not in records}
    if '"data_name"' in json.dumps(records):
        header.setdefault("dump_data_dir", layout.TENSOR_FOLDER)
    return header, records


def _piece(record: Any) -> bytes:
    try:
        return orjson.dumps(record)
    except TypeError:  # nested deeper than it writes
        return _piece_of_python(record)


def _piece_of_python(record: Any) -> bytes:
    return json.dumps(record).encode()


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
