"""Paths, permissions and atomic writes: the one place where msprobe creates files and folders.

Folders are created with mode 0750 and files with mode 0640, whatever the umask of the process. A file appears
under its name only when it is whole. Any path that the operating system allows is allowed here: blanks,
``+``, any script. All errors are :class:`msprobe.errors.PathError`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from msprobe.errors import PathError, reason_of
from msprobe.messages import joined, said

FOLDER_MODE = 0o750
FILE_MODE = 0o640
MAX_PATH_LENGTH = 4096
MAX_NAME_LENGTH = 255

StrPath = str | os.PathLike[str]

_BUFFER_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NEW_FILE |= getattr(os, "O_NOFOLLOW", 0)

# How often a folder is made again whose parent vanished a moment ago.
_MOST_VANISHED = 10
# Ranks on several machines may share a folder and a process number, so the numbers begin anywhere.
_temporary_numbers = itertools.count(int.from_bytes(os.urandom(6), "big"))


def make_folder(path: StrPath) -> Path:
    """Create the folder and its missing parents, each with mode 0750; existing folders stay as they are."""
    create_folder(path)
    return Path(path)


def make_folder_in(folder: StrPath, *names: str) -> Path:
    """Create a folder below ``folder``, as :func:`make_folder` does. An output folder may hold what a stranger has put
    there: raises PathError where a link leads out of it.
    """
    target = Path(folder, *names)
    try:
        real, base = os.path.realpath(target), os.path.realpath(folder)
        is_inside = os.path.commonpath([real, base]) == base
    except (OSError, ValueError):
        is_inside = False
    if not is_inside:
        raise PathError(said("target-leads-out-of-folder", quoted(target), quoted(folder)))
    return make_folder(target)


def create_folder(path: StrPath) -> bool:
    """The same; True if it was this call that created the folder itself: of two processes that come at once, the
    first.
    """
    folder = os.fspath(path)
    missing = [folder.rstrip(os.sep) or folder]
    vanished = 0
    try:
        while True:
            try:
                created = _create(missing[-1])
                if len(missing) == 1:
                    break
                missing.pop()
            except FileNotFoundError:
                parent = os.path.dirname(missing[-1])
                # A parent may vanish again: another process removes folders that it has emptied.
                vanished += os.path.isdir(parent)
                if parent in ("", missing[-1]) or vanished > _MOST_VANISHED:
                    raise
                missing.append(parent)
    except (FileExistsError, NotADirectoryError) as problem:
        existing = missing[0]
        while existing and not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        raise PathError(said("parent-is-no-folder", quoted(folder), quoted(existing or folder))) from problem
    except OSError as problem:
        raise PathError(said("folder-not-created", quoted(folder), reason_of(problem))) from problem
    return created


def _create(folder: str) -> bool:
    """Create one folder; False if it is there already, which another rank may have done a moment ago."""
    try:
        os.mkdir(folder, FOLDER_MODE)
    except OSError:
        if not os.path.isdir(folder):
            raise
        return False
    with contextlib.suppress(OSError):
        if os.stat(folder).st_mode & 0o777 != FOLDER_MODE:
            os.chmod(folder, FOLDER_MODE)
    return True


def create_file(path: StrPath, *, append: bool = False, buffering: int = _BUFFER_BYTES) -> BinaryIO:
    """Open ``path`` for writing bytes, with mode 0640; emptied first, unless ``append``.

    A link of that name is not followed: PathError. For files that grow while they are used (journals); whole files are
    written by :func:`write_atomically`. ``buffering`` is in bytes, 0 writes every piece at once.
    """
    try:
        descriptor = os.open(path, _NEW_FILE | (os.O_APPEND if append else os.O_TRUNC), FILE_MODE)
        _set_file_mode(descriptor)
        return os.fdopen(descriptor, "ab" if append else "wb", buffering)
    except OSError as problem:
        raise PathError(said("file-not-written", quoted(path), reason_of(problem))) from problem


def write_atomically(path: StrPath, data: bytes | Iterable[bytes], fsync: bool = True) -> int:
    """Write ``data`` so that ``path`` holds its old content or all of the new, even if the machine stops.

    The bytes go to a temporary file in the same folder, which takes the name only when it is complete.
    ``fsync=False`` skips the wait for the disk: still whole if the process is killed, not if the machine
    loses power. If anything fails, an error raised by the iterable included, the temporary file is removed
    and the old file stays.

    Returns the number of bytes written. Raises PathError with the system's error as its cause.
    """
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    # Not derived from the target's name, which may already have the greatest length.
    temporary = os.path.join(folder, f".msprobe-{os.getpid()}-{next(_temporary_numbers)}.tmp")
    written = 0
    try:
        descriptor = os.open(temporary, _NEW_FILE | os.O_EXCL, FILE_MODE)
        try:
            # Plain calls, not a buffered file: three times as fast for a file of some kilobytes.
            try:
                _set_file_mode(descriptor)
                if isinstance(data, (bytes, bytearray, memoryview)):
                    written = _write_all(descriptor, data)
                else:
                    written = _write_pieces(descriptor, data)
                if fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if fsync:
            _sync_folder(folder)
    except OSError as problem:
        raise PathError(said("file-not-written", quoted(path), reason_of(problem))) from problem
    return written


def check_readable_file(
    path: StrPath,
    suffix: str | tuple[str, ...] = "",
    max_size: int = 1 << 30,
    *,
    follow_symlink: bool = False,
) -> Path:
    """Return ``path`` if it is a readable file, ends in ``suffix`` and has less than ``max_size`` bytes.

    ``suffix`` is one ending or several, as in ``".json"``; the empty one allows all. A symbolic link as the
    last component is refused unless ``follow_symlink``.
    """
    file = check_path_form(path, "file")
    shown = quoted(file)
    try:
        status = os.stat(file)
    except FileNotFoundError as problem:
        near = like(file)
        hint = said("give-existing-file") if near is None else said("mean-shown", quoted(near))
        raise PathError(said("file-missing", shown, hint)) from problem
    except OSError as problem:
        raise PathError(said("file-not-usable", shown, reason_of(problem))) from problem
    if stat.S_ISDIR(status.st_mode):
        raise PathError(said("folder-where-file-is-read", shown))
    if not stat.S_ISREG(status.st_mode):
        raise PathError(said("not-a-regular-file", shown))
    if not follow_symlink and file.is_symlink():
        raise PathError(said("link-where-file-is-read", shown, quoted(file.resolve())))
    endings = (suffix,) if isinstance(suffix, str) else suffix
    if not file.name.endswith(endings):
        raise PathError(said("wrong-file-ending", shown, joined(" or ", endings)))
    if status.st_size >= max_size:
        raise PathError(said("file-too-large", shown, status.st_size, max_size))
    if not os.access(file, os.R_OK):
        raise PathError(said("file-not-permitted", shown))
    return file


_MOST_LIKE = 2000


def named_in(file: Path, given: str) -> Path:
    """The path that a file names: from here, else from the folder of the file, else from the nearest folder around it:
    ``-o out`` of a command writes below the folder from which its other paths were given.
    """
    if not Path(given).exists():
        for folder in file.absolute().parents:
            if (folder / given).exists():
                return folder / given
    return Path(given)


def like(file: Path) -> Path | None:
    """For a file that does not exist: one that does, and whose path is like it but for one name."""
    missing = file
    while not os.path.lexists(missing.parent) and missing.parent != missing:
        missing = missing.parent
    rest = file.relative_to(missing)
    try:
        names = sorted(os.listdir(missing.parent))
    except OSError:
        return None
    if len(names) > _MOST_LIKE:
        return None  # comparing so many names takes long
    import difflib

    def likeness(name: str) -> float:
        """That both end in ".json" says nothing."""
        own = Path(name)
        if not missing.suffix or own.suffix != missing.suffix:
            return difflib.SequenceMatcher(None, name, missing.name).ratio()
        return difflib.SequenceMatcher(None, own.stem, missing.stem).ratio()

    close = difflib.get_close_matches(missing.name, names, n=20, cutoff=0.6)
    likely = sorted((name for name in close if likeness(name) >= 0.6), key=likeness, reverse=True)
    return next((near for name in likely[:5] if os.path.isfile(near := missing.parent / name / rest)), None)


_OF_THE_SYSTEM = (("/", "proc"), ("/", "sys"))


def check_output_folder(path: StrPath) -> Path:
    """Return the absolute form of ``path`` if it can be used as a folder to write to; creates nothing."""
    given = check_path_form(path, "folder")
    shown = quoted(given)
    try:
        folder = Path(os.path.abspath(given))  # which fails where the working directory is gone
    except OSError as problem:
        raise PathError(said("folder-not-usable", shown, reason_of(problem))) from problem
    if len(os.fsencode(folder)) > MAX_PATH_LENGTH:
        raise PathError(said("folder-path-too-long", shown, MAX_PATH_LENGTH))
    current = folder
    try:
        # lexists: a link that points nowhere is in the way of mkdir.
        while not os.path.lexists(current) and current.parent != current:
            current = current.parent
        if not current.is_dir():
            kind = said("link-that-leads-nowhere") if current.is_symlink() and not current.exists() else "a file"
            raise PathError(said("folder-is-something-else", shown, quoted(current), kind))
        if Path(os.path.realpath(current)).parts[:2] in _OF_THE_SYSTEM:
            # Root may write there as far as permissions say, and the kernel takes no file.
            raise PathError(said("place-holds-no-files", shown, quoted(current)))
        if not os.access(current, os.W_OK | os.X_OK):
            raise PathError(said("folder-not-permitted", shown, quoted(current)))
    except OSError as problem:
        raise PathError(said("folder-not-usable", shown, reason_of(problem))) from problem
    return folder


def check_output_file(path: StrPath) -> Path:
    """Return ``path`` if a file can be written there; creates nothing. The folder must exist. A link to a file stands
    for itself: it is replaced.
    """
    file = check_path_form(path, "file")
    shown = quoted(file)
    if file.is_dir():
        raise PathError(said("folder-where-file-is-written", shown))
    if file.is_symlink() and not file.exists():
        raise PathError(said("link-to-nothing", shown))
    if file.exists() and not file.is_file():
        raise PathError(said("not-a-regular-file-to-write", shown))
    folder = file.parent
    if not folder.is_dir():
        kind = "is no folder" if os.path.lexists(folder) else "does not exist"
        raise PathError(said("folder-of-file-not-usable", shown, quoted(folder), kind))
    check_output_folder(folder)
    return file


def check_path_form(path: object, kind: str) -> Path:
    """The rules that need no look at the disk: a non-empty path whose names a disk can hold. ``kind``: what the path is
    of, for the message of the PathError.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise PathError(said("path-is-no-string", kind, path, type(path).__name__))
    text = os.fspath(path)
    if not isinstance(text, str):
        raise PathError(said("path-is-no-string", kind, path, type(text).__name__))
    if not text:
        raise PathError(said("path-is-empty", kind))
    if "\0" in text:
        raise PathError(said("path-with-nul", quoted(text)))
    try:
        length = len(os.fsencode(text))
        longest = max(len(os.fsencode(name)) for name in text.split(os.sep))
    except UnicodeEncodeError as problem:
        raise PathError(said("path-with-forbidden-characters", quoted(text))) from problem
    if length > MAX_PATH_LENGTH:
        raise PathError(said("path-too-long", quoted(text), length, MAX_PATH_LENGTH))
    if longest > MAX_NAME_LENGTH:
        raise PathError(said("name-too-long", quoted(text), longest, MAX_NAME_LENGTH))
    return Path(text)


def _write_pieces(descriptor: int, pieces: Iterable[bytes]) -> int:
    written = 0
    held: list[bytes] = []
    held_bytes = 0
    for piece in pieces:
        held.append(piece)
        held_bytes += len(piece)
        if held_bytes >= _BUFFER_BYTES:
            written += _write_all(descriptor, b"".join(held))
            held, held_bytes = [], 0
    return written + _write_all(descriptor, b"".join(held)) if held else written


def _write_all(descriptor: int, data: bytes | bytearray | memoryview) -> int:
    written = os.write(descriptor, data)
    with memoryview(data) as given, given.cast("B") as view:
        while written < len(view):
            written += os.write(descriptor, view[written:])
    return written


def _set_file_mode(descriptor: int) -> None:
    """Mode 0640 whatever the umask; some network file systems know no modes, and the content matters more."""
    if hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):
            # A look costs nothing, a change is one more for the file system to keep.
            if os.fstat(descriptor).st_mode & 0o777 != FILE_MODE:
                os.fchmod(descriptor, FILE_MODE)


def _sync_folder(folder: str) -> None:
    """Make the rename itself durable; some file systems refuse to sync a folder, which then has to do."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def quoted(path: StrPath) -> str:
    """The path as a message quotes it: one line, not endless."""
    text = ascii(os.fspath(path)) if not os.fspath(path).isprintable() else f'"{os.fspath(path)}"'
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"
