"""The pack of a configuration check: a zip of small text entries, one pack for each run and machine.

The layout is that of mindstudio-probe 8.1.1, whose readers ignore what it does not know:

    env                                           JSON object: environment variables
    pip                                           text, ``name=version`` a line
    hyperparameters/hyperparameters_static.json   JSON object: read from files
    hyperparameters/hyperparameters_dynamic.json  JSON object: of the running program
    dataset/step{S}/rank{R}/dataset.json          statistics of the arguments of a forward pass
    weights/step{S}/rank{R}/weight.json           {parameter: {"max", "min", "mean", "norm"}}
    random/rank{R}.json                           {function: [{"count", "stack"}]}
    digests/step{S}/rank{R}.json                  ours: {"dataset": {path: digest}, "weights": {parameter: digest}}
    random_state/rank{R}.json                     ours: {"seeds": [[function, seed]],
                                                  "states": {step: {generator: digest}},
                                                  "dropout": {module: {"p", "training"}}}

S counts forward passes (micro-steps) from 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Literal, NamedTuple

from msprobe import log
from msprobe.environment.configuration.pack_lock import locked, process_start_ns
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.archives import Archive
from msprobe.foreign.budget import Budget, Limits, factor
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.paths import FILE_MODE, StrPath, check_readable_file, make_folder, make_folder_in, write_atomically

SUFFIX = ".zip"
ENVIRONMENT = "env"
PACKAGES = "pip"
STATIC = "hyperparameters/hyperparameters_static.json"
DYNAMIC = "hyperparameters/hyperparameters_dynamic.json"

#: What one value of a pack may cost whoever reads it. Weights of 400,000 parameters are 64 MiB of text.
MOST_PACK_BYTES = 10 << 30
MOST_ENTRY_BYTES = 64 << 20
MOST_BYTES_IN_ALL = 4 << 30
MOST_ENTRIES = 200_000
_LIMITS = Limits(bytes=MOST_ENTRY_BYTES, items=10_000_000, digits=400)
# Texts of settings and statistics come to less.
_FREE_BYTES = 8 << 20
_MOST_RATIO = 50

_OURS = re.compile(r"msprobe (\d+) (\d+)")
_LAYOUT = re.compile(
    r"(?:env|pip|hyperparameters/hyperparameters_(?:static|dynamic)\.json|random(?:_state)?/rank\d{1,9}\.json|"
    r"digests/step\d{1,12}/rank\d{1,9}\.json|dataset/step\d{1,12}/rank\d{1,9}/dataset\.json|"
    r"weights/step\d{1,12}/rank\d{1,9}/weight\.json)",
    re.ASCII,
)
_PLACE = re.compile(r"(dataset|weights|digests)/step(\d+)/rank(\d+)[/.]", re.ASCII)
_RANK = re.compile(r"(random|random_state)/rank(\d+)\.json", re.ASCII)

StepPart = Literal["dataset", "weights", "digests"]
RankPart = Literal["random", "random_state"]


class PackPlace(NamedTuple):
    """Where statistics were taken: micro-step and rank."""

    step: int
    rank: int


def dataset_entry(step: int, rank: int) -> str:
    """The entry with the statistics of the inputs of a forward pass."""
    return f"dataset/step{step}/rank{rank}/dataset.json"


def weights_entry(step: int, rank: int) -> str:
    """The entry with the statistics of all parameters before a forward pass."""
    return f"weights/step{step}/rank{rank}/weight.json"


def digests_entry(step: int, rank: int) -> str:
    """The entry with digests of the same tensors."""
    return f"digests/step{step}/rank{rank}.json"


def random_entry(rank: int) -> str:
    """The entry with the calls of random functions."""
    return f"random/rank{rank}.json"


def random_state_entry(rank: int) -> str:
    """The entry with seeds, states of generators and dropout layers."""
    return f"random_state/rank{rank}.json"


def as_json(value: Any) -> bytes:
    """A value as the text of an entry; what JSON cannot hold becomes null."""
    return json.dumps(value, indent=4, default=lambda _: None).encode()


def is_entry(name: str) -> bool:
    """Whether a pack may have an entry of this name."""
    return _LAYOUT.fullmatch(name) is not None


def check_pack_path(path: object) -> str:
    """The path, if a pack can have it. Raises InvalidInputError."""
    if not isinstance(path, (str, os.PathLike)) or not str(path).endswith(SUFFIX):
        raise InvalidInputError(said("pack-path-wrong", SUFFIX, path))
    return os.fspath(path)


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass
class PackWriter:
    """Adds entries to the pack of this run, which several processes of one machine may share.

    The first :meth:`add` of a run begins the file anew: what was written before this process began is of an earlier
    run, and what this process wrote through another writer is so as well. Each call puts a whole new file in place of
    the old one.
    """

    path: StrPath
    _begun_ns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.path = check_pack_path(self.path)

    def add(self, entries: Mapping[str, bytes]) -> None:
        """Put the entries into the pack; an entry that is there already is replaced.

        Raises PathError, or InvalidInputError if the file that is there is no pack.
        """
        for name, data in entries.items():
            if not is_entry(name):
                raise ValueError(said("pack-entry-unknown", name))
            if len(data) > MOST_ENTRY_BYTES:
                raise InvalidInputError(said("pack-entry-too-large", name, len(data), MOST_ENTRY_BYTES))
        path = os.path.abspath(self.path)
        make_folder(os.path.dirname(path))
        try:
            with locked(path):
                self._replace(path, entries)
        except OSError as problem:
            raise PathError(said("pack-not-written", path, reason_of(problem))) from problem

    def _replace(self, path: str, entries: Mapping[str, bytes]) -> None:
        temporary = os.path.join(os.path.dirname(path), f".msprobe-{os.getpid()}-{time.time_ns()}.tmp")
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
            with os.fdopen(descriptor, "r+b") as file:
                with contextlib.suppress(OSError, AttributeError):
                    os.fchmod(descriptor, FILE_MODE)
                self._fill(path, file, entries)
                if os.fstat(descriptor).st_size > MOST_PACK_BYTES:
                    raise PathError(said("pack-too-large", path, MOST_PACK_BYTES))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _fill(self, path: str, file: IO[bytes], entries: Mapping[str, bytes]) -> None:
        begun = self._begun_ns
        kept = self._kept(path, set(entries))
        if kept is None:  # all that is there stays: the compressed bytes as they are
            with open_regular(path) as old:
                shutil.copyfileobj(old, file)
            file.seek(0)
        with zipfile.ZipFile(file, "a" if kept is None else "w", zipfile.ZIP_DEFLATED) as archive:
            if kept:
                with open_regular(path) as old:
                    old_archive = Archive(old, path, names_may_repeat=True)
                    for entry in kept:
                        data = old_archive.read(entry, MOST_ENTRY_BYTES)
                        archive.writestr(_entry(entry.filename, entry.comment), data)
            comment = f"msprobe {time.time_ns()} {os.getpid()}".encode()
            for name, data in entries.items():
                archive.writestr(_entry(name, comment), data)
        self._begun_ns = begun or process_start_ns()

    def _kept(self, path: str, replaced: set[str]) -> list[zipfile.ZipInfo] | None:
        """The old entries that stay; None if all of them do."""
        if not os.path.exists(path) or os.path.getsize(path) == 0:
            return []
        try:
            with open_regular(path) as file:
                entries = _entries(path, file)
        except InvalidInputError as problem:
            raise InvalidInputError(said("pack-left-as-it-is", problem.message)) from problem
        kept = [
            entry for name, entry in entries.items() if name not in replaced and _is_of_this_run(entry, self._begun_ns)
        ]
        return None if len(kept) == len(entries) and kept else kept


def _is_of_this_run(entry: zipfile.ZipInfo, begun: int) -> bool:
    matched = _OURS.fullmatch(entry.comment.decode("ascii", "replace"))
    if matched is None:
        return False
    written, process = int(matched[1]), int(matched[2])
    if begun:
        return written >= begun
    return written >= process_start_ns() and process != os.getpid()


def _entry(name: str, comment: bytes) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | FILE_MODE) << 16
    entry.comment = comment
    return entry


# --- reading ----------------------------------------------------------------------------------------------------------


class Pack:
    """A pack that is open for reading; entries are read when they are asked for."""

    def __init__(self, path: StrPath) -> None:
        """Raises PathError if there is no such file, InvalidInputError if it is no pack."""
        self.path = str(check_readable_file(path, SUFFIX, MOST_PACK_BYTES, follow_symlink=True))
        try:
            self._file: IO[bytes] = open_regular(self.path)
        except OSError as problem:
            raise PathError(said("file-unreadable", self.path, (problem.strerror or "").lower())) from problem
        self._read_bytes = 0
        try:
            self._listed = _entries(self.path, self._file)
            self._archive = Archive(self._file, self.path, names_may_repeat=True)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Pack:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._listed

    @property
    def is_ours(self) -> bool:
        """Whether this package wrote it."""
        return any(_OURS.fullmatch(entry.comment.decode("ascii", "replace")) for entry in self._listed.values())

    def has(self, part: str) -> bool:
        """Whether an entry of this part is there: ``env``, ``pip``, ``hyperparameters``, ``weights``, ..."""
        return part in self._listed or any(name.startswith(f"{part}/") for name in self._listed)

    def environment(self) -> dict[str, str]:
        """The environment variables."""
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in self.json(ENVIRONMENT).items()
        }

    def packages(self) -> dict[str, str]:
        """Versions by the names that are written there."""
        lines = self.text(PACKAGES).splitlines()
        return {
            name.strip(): version.strip()
            for name, _, version in (line.partition("=") for line in lines)
            if name.strip()
        }

    def hyperparameters(self) -> dict[str, dict[str, Any]]:
        """What there is of hyper-parameters: file name -> name -> value."""
        return {name.partition("/")[2]: self.json(name) for name in (STATIC, DYNAMIC) if name in self._listed}

    def places(self, part: StepPart) -> dict[PackPlace, str]:
        """The entries of a part by step and rank, in this order."""
        by_place = {}
        for name in self._listed:
            matched = _PLACE.match(name)
            if matched and matched[1] == part:
                by_place[PackPlace(int(matched[2]), int(matched[3]))] = name
        return dict(sorted(by_place.items()))

    def ranks(self, part: RankPart) -> dict[int, str]:
        """The entries of a part by rank."""
        by_place = {}
        for name in self._listed:
            matched = _RANK.fullmatch(name)
            if matched and matched[1] == part:
                by_place[int(matched[2])] = name
        return dict(sorted(by_place.items()))

    def json(self, name: str) -> dict[str, Any]:
        """An entry that is a JSON object. Raises InvalidInputError."""
        source = f"{self.path}: entry {name}"
        value = parse_json(self.text(name), source, Budget(source, _LIMITS), exact=True)
        if not isinstance(value, dict):
            raise InvalidInputError(said("pack-entry-is-no-object", self.path, name, type(value).__name__))
        return value

    def text(self, name: str) -> str:
        """An entry as text. Raises InvalidInputError."""
        try:
            return self._bytes(name).decode()
        except UnicodeDecodeError as problem:
            raise InvalidInputError(said("pack-entry-no-utf8", self.path, name)) from problem

    def extract(self, folder: StrPath) -> None:
        """Write all entries that a pack has below the folder. Raises PathError, InvalidInputError."""
        self._read_bytes = 0
        for name in self._listed:
            *parents, last = name.split("/")
            write_atomically(make_folder_in(folder, *parents) / last, self._bytes(name), fsync=False)

    def _bytes(self, name: str) -> bytes:
        entry = self._listed.get(name)
        if entry is None:
            raise InvalidInputError(said("pack-entry-missing", self.path, name))
        data = self._archive.read(entry, MOST_ENTRY_BYTES)
        self._read_bytes += len(data)
        if self._read_bytes > MOST_BYTES_IN_ALL:
            raise InvalidInputError(said("pack-entry-unpacks-too-large", self.path, name))
        return data


def _entries(path: str, file: IO[bytes]) -> dict[str, zipfile.ZipInfo]:
    """The entries of a pack, each name once (the last one, as 8.1.1 reads packs that were written to twice)."""
    listed = Archive(file, path, names_may_repeat=True, most=MOST_ENTRIES).listed
    entries: dict[str, zipfile.ZipInfo] = {}
    size = 0
    for entry in listed:
        if entry.filename.endswith("/") and _is_inside(entry.filename):
            continue
        _check_entry(path, entry)
        if is_entry(entry.filename):
            entries[entry.filename] = entry
    size = sum(entry.file_size for entry in entries.values())
    if size > MOST_BYTES_IN_ALL:
        raise InvalidInputError(said("pack-unpacks-too-large", path, size, MOST_BYTES_IN_ALL))
    if not entries:
        raise InvalidInputError(said("no-pack", path))
    unknown = len({entry.filename for entry in listed if not entry.filename.endswith("/")}) - len(entries)
    if unknown:
        log.warning(said("pack-entries-left-out", path, unknown))
    return entries


def _check_entry(path: str, entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    shown = ascii(name[:100])
    if not _is_inside(name):
        raise InvalidInputError(said("pack-entry-leads-out", path, shown))
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise InvalidInputError(said("pack-entry-is-link", path, shown))
    if entry.flag_bits & 1:
        raise InvalidInputError(said("pack-entry-encrypted", path, shown))
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidInputError(said("pack-entry-compression", path, shown))
    if entry.file_size > min(MOST_ENTRY_BYTES, max(_FREE_BYTES, _MOST_RATIO * entry.compress_size) * factor()):
        raise InvalidInputError(said("pack-entry-bomb", path, shown, entry.file_size, entry.compress_size))


def _is_inside(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return not name.startswith(("/", "\\")) and ".." not in parts and ":" not in parts[0] and "\0" not in name
