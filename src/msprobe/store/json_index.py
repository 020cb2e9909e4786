"""Where each record of a ``dump.json`` stands, without taking the file apart.

Files in which each record begins a line, ours and those of mindstudio-probe, show their structure by the blanks at
the beginning of each line, for a JSON string holds no line break. One pass over the mapped file finds all
records; each is parsed when it is asked for. Memory is that of the names, whatever the size of the file.
Of other forms of JSON each value is parsed to find where it ends.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import orjson

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign import zstd
from msprobe.foreign.budget import Budget, BudgetError
from msprobe.foreign.json_places import JsonMember, JsonPlaces
from msprobe.foreign.json_text import kind_of, long_numbers
from msprobe.foreign.opening import check_written, open_regular
from msprobe.messages import said, text_of
from msprobe.store import layout

_DATA = b'\n "data": {'
_DATA_END = re.compile(rb"\n \}")
_KEY = re.compile(rb'\n  ("(?:[^"\\]|\\.)*"): ')


class MemberPlaces:
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
    def of(cls, names: list[str], starts: list[int], ends: list[int]) -> MemberPlaces:
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

    def copy(self) -> MemberPlaces:
        """Places to which more can be added."""
        places = MemberPlaces()
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
    places: MemberPlaces
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
    index = _open.get(key)
    if index is None:
        index = _open[key] = _read_index(path)
    return index


def _read_index(path: Path) -> JsonIndex:
    text = _map(path)
    start = text.find(_DATA)
    if start >= 0:
        index = _index(text, start)
        if index is not None:
            forget_pages(text)
            return index
    return _scanned(path, text)


def _read_partial(path: Path) -> JsonIndex:
    try:
        return _read_index(path)
    except BudgetError:
        raise
    except InvalidInputError as broken:
        text = _map(path)
        data = text.find(_DATA)
        start = data + len(_DATA)
        # The last record may lack its end.
        last = max((match.start() for match in _KEY.finditer(text, start)), default=start) if data >= 0 else start
        places = _places(text, start, last - 1) if last > start else None
        try:
            header = json.loads(text[:data].rstrip().removesuffix(b",") + b"}") if data >= 0 else None
        except (ValueError, RecursionError):
            header = None
        if places is None or not isinstance(header, dict):
            raise broken
        return JsonIndex(header, {"complete": False}, places, text)


def load_json(path: Path) -> Any:
    """The content of a JSON file, with bare NaN and infinities; errors as in :func:`read_index`."""
    text = bytes(_map(path))
    budget = Budget(path)
    budget.spend_bytes(len(text))
    budget.spend_items(text.count(b",") + text.count(b"[") + text.count(b"{"))
    return parse(text, path)


def parse(text: bytes, path: Path, what: str = "", offset: int = 0) -> Any:
    """Parse JSON that stands at ``offset`` in the file at ``path``; ``what`` names it in the error."""
    try:
        return orjson.loads(text)
    except ValueError:
        return parse_loose(text, path, what, offset)


def parse_loose(text: bytes, path: Path, what: str = "", offset: int = 0) -> Any:
    """The same for what Python writes and strict JSON does not know: bare NaN and infinities, lone surrogates."""
    try:
        decoded = text.decode("utf-8", "surrogatepass")
        number = long_numbers(decoded)
        if number is None:
            return _decoder.decode(decoded)
        return json.loads(decoded, parse_int=number)
    except json.JSONDecodeError as problem:
        line = said("json-line-and-column", problem.lineno, problem.colno)
        where = said("json-byte", offset + problem.pos) if offset else line
        reason: str = said("json-problem-at", problem.msg.lower().removesuffix(" at"), where)
    except UnicodeDecodeError as problem:
        reason = said("json-byte-no-utf8", offset + problem.start)
    except RecursionError:
        reason = said("nested-too-deeply")
    except ValueError as problem:
        reason = text_of(problem)
    raise InvalidInputError(said("dump-json-unreadable", path, what, reason))


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are in memory once, as Python's parser makes them anew for each text."""
    return {sys.intern(key): value for key, value in pairs}


_decoder = json.JSONDecoder(object_pairs_hook=_with_keys_once)


def _map(path: Path) -> mmap.mmap | bytes:
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            if os.fspath(path).endswith(layout.COMPRESSED):
                return zstd.unpacked(file, path)
            check_written(file, path)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as problem:
        raise PathError(said("database-missing", path)) from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise PathError(said("file-unreadable", path, reason.lower())) from problem


def forget_pages(text: mmap.mmap | bytes) -> None:
    """Give the memory of a mapped file back; whoever reads it again gets it from the cache of the system."""
    if isinstance(text, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        text.madvise(mmap.MADV_DONTNEED)


def _index(text: mmap.mmap | bytes, data: int) -> JsonIndex | None:
    """The index of a file in the usual form; None if it has another, or is broken."""
    start = data + len(_DATA)
    if text[start : start + 1] == b"}":
        end = start
        places: MemberPlaces | None = MemberPlaces()
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


def _places(text: mmap.mmap | bytes, start: int, end: int) -> MemberPlaces | None:
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
        # Once in memory, whichever file has them: the sides of a comparison have the same names.
        names = [sys.intern(key[1:-1].decode() if b"\\" not in key else str(json.loads(key))) for key in keys]
    except ValueError:
        return None
    return MemberPlaces.of(names, starts, [*ends[1:], end])


def _scanned(path: Path, text: mmap.mmap | bytes) -> JsonIndex:
    """The index of a file in any form of JSON."""
    budget = Budget(path)
    if json.detect_encoding(text[:4]) != "utf-8":  # a byte order mark, or two or four bytes a letter
        budget.spend_bytes(len(text))
        try:
            text = bytes(text).decode(json.detect_encoding(text[:4])).encode()
        except UnicodeError as problem:
            raise InvalidInputError(said("dump-json-broken", path, problem)) from problem
    json_places = JsonPlaces(text, path, budget)
    members = {member.name: member for member in json_places.whole()}
    data = members.pop("data", None)
    places = MemberPlaces()
    if data is None:
        header, places = _extracted(path, members, text)
    else:
        if text[data.start : data.start + 1] != b"{":
            value = parse(text[data.start : data.end], path, ', "data",', data.start)
            raise InvalidInputError(said("dump-data-is-no-object", path, _kind(value)))
        for name, start, end in json_places.members(data.start):
            places.add(name, 0, start, end)
        header = _values(path, members, text)
    ours = header.pop("msprobe", {})
    return JsonIndex(header, ours if isinstance(ours, dict) else {}, places, text)


def _values(path: Path, members: dict[str, JsonMember], text: mmap.mmap | bytes) -> dict[str, Any]:
    return {name: parse(text[start:end], path, f", {name!r},", start) for name, start, end in members.values()}


def _extracted(
    path: Path, members: dict[str, JsonMember], text: mmap.mmap | bytes
) -> tuple[dict[str, Any], MemberPlaces]:
    """Header and records of a file of single calls, as op_generate of mindstudio-probe writes it: without ``data``."""
    records = {name: member for name, member in members.items() if name.endswith((".forward", ".backward"))}
    if not records or any(text[record.start : record.start + 1] != b"{" for record in records.values()):
        raise InvalidInputError(said("dump-json-without-data", path))
    header = _values(path, {name: member for name, member in members.items() if name not in records}, text)
    if any(text.find(b'"data_name"', record.start, record.end) >= 0 for record in records.values()):
        header.setdefault("dump_data_dir", layout.TENSOR_FOLDER)
    places = MemberPlaces()
    for name, start, end in records.values():
        places.add(name, 0, start, end)
    return header, places


def _kind(value: object) -> str:
    return said("value-of-type", kind_of(value))
