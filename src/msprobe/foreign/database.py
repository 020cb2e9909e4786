"""Databases (sqlite) that a stranger may have made: tables alone are read, within what the file's size explains.

Views, virtual tables and computed columns run what their maker wrote, so they are refused. A page that stands for many,
and a text that is made of few bytes, end at a limit of rows, bytes and steps that follows from the size of the file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.budget import BudgetError, Limits, factor
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.paths import StrPath

_HEADER = b"SQLite format 3\0"
#: Of the two bytes of the header that say who may read and write: a journal is written ahead.
_WRITE_AHEAD = 2
# Steps of sqlite's machine; one row of twenty columns takes some fifty. So many per look, at least, and per byte.
_STEPS_PER_LOOK, _LEAST_STEPS, _STEPS_PER_BYTE = 100_000, 10_000_000, 50
_LEAST_BYTES, _BYTES_PER_BYTE = 16 << 20, 4
_ROWS_AT_ONCE = 256
# How long a reader waits for whoever writes.
_LOCK_SECONDS = 10.0


_Answer = TypeVar("_Answer")


class DatabaseError(InvalidInputError):
    """A file is no database that can be read: another version, broken, or made of more than tables."""


class Database:
    """A database that is open for reading, with what may still be read of it."""

    def __init__(self, path: StrPath, base: sqlite3.Connection, size: int) -> None:
        self.path, self._base = path, base
        limit = Limits()
        scale = factor()
        self._steps = int((_LEAST_STEPS + _STEPS_PER_BYTE * size) * scale) // _STEPS_PER_LOOK
        self._bytes = int(min(limit.bytes, _LEAST_BYTES + _BYTES_PER_BYTE * size) * scale)
        self._is_over = False
        base.set_progress_handler(self._look, _STEPS_PER_LOOK)
        if sys.version_info >= (3, 11):
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(1_000_000_000, size + (1 << 20)))
            base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        else:
            # For the whole process: there is no limit of one text before Python 3.11.
            base.execute(f"PRAGMA hard_heap_limit = {(256 << 20) + 4 * size}")
        for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
            base.execute(f"PRAGMA {setting}")

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; empty where there is no such table.

        Raises DatabaseError for a view, a virtual table, and a table with computed columns.
        """
        tables = self._all("SELECT type, rootpage FROM sqlite_master WHERE lower(name) = lower(?)", (table,))
        if not tables:
            return []
        if any(kind != "table" or not isinstance(page, int) or page <= 0 for kind, page in tables):
            raise DatabaseError(said("table-not-plain", self.path, table))
        columns = self._all("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,))
        if any(hidden for _, hidden in columns):
            raise DatabaseError(said("table-with-computed-columns", self.path, table))
        return [str(name) for name, _ in columns]

    def rows(
        self, columns: Sequence[str], table: str, rest: str = "", values: Sequence[Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of a plain table, a tuple for each. ``columns`` and ``rest`` (``ORDER BY ...``) are parts of the query.

        Raises DatabaseError, BudgetError, and sqlite3.Error as the file is broken.
        """
        if not self.columns(table):
            raise DatabaseError(said("table-missing", self.path, table))
        cursor = self._run(f"SELECT {', '.join(columns)} FROM {table} {rest}", values)
        while batch := self._guarded(lambda: cursor.fetchmany(_ROWS_AT_ONCE)):
            for row in batch:
                for cell in row:
                    if cell.__class__ is str or cell.__class__ is bytes:
                        self._bytes -= len(cell)
                self._bytes -= 1
            if self._bytes < 0:
                self._refuse()
            yield from batch

    def _all(self, query: str, values: Sequence[Any]) -> list[Any]:
        return self._guarded(lambda: self._run(query, values).fetchall())

    def _run(self, query: str, values: Sequence[Any]) -> sqlite3.Cursor:
        return self._guarded(lambda: self._base.execute(query, values))

    def _guarded(self, run: Callable[[], _Answer]) -> _Answer:
        try:
            return run()
        except (sqlite3.Error, MemoryError) as problem:
            if self._is_over or isinstance(problem, MemoryError):
                self._refuse()
            raise

    def _look(self) -> int:
        self._steps -= 1
        self._is_over = self._steps < 0
        return self._is_over

    def _refuse(self) -> NoReturn:
        raise BudgetError(said("database-over-budget", self.path))


@contextmanager
def open_database(path: StrPath, *, is_live: bool = False) -> Iterator[Database]:
    """A database that is there, opened for reading alone; nothing is written beside it.

    ``is_live``: it may be written while it is read, so its locks count. Raises PathError where it is no regular file,
    DatabaseError where it is no database, sqlite3.Error as it is broken.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(100)
    except FileNotFoundError:
        raise PathError(said("database-missing", path)) from None
    except OSError as problem:
        raise PathError(said("database-unreadable", path, problem.strerror)) from problem
    if size and not header.startswith(_HEADER):
        raise DatabaseError(said("no-database", path))
    mode = "mode=ro" if is_live and _WRITE_AHEAD not in header[18:20] else "mode=ro&immutable=1"
    with ExitStack() as kept:
        base = sqlite3.connect(f"{Path(path).absolute().as_uri()}?{mode}", uri=True, timeout=_LOCK_SECONDS)
        kept.callback(base.close)
        if is_live and _has_hot_journal(base):
            base = sqlite3.connect(_rolled_back(Path(path), size, kept), timeout=_LOCK_SECONDS)
            kept.callback(base.close)
        yield Database(path, base, size)


def _has_hot_journal(base: sqlite3.Connection) -> bool:
    """True if the writer has died in the middle of a transaction, which has to be taken back before anything is read:
    that writes, so a reader may not do it to the file itself.
    """
    try:
        base.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as problem:
        return "readonly" in str(problem)
    except sqlite3.Error:  # whoever reads it finds out
        return False
    return False


def _rolled_back(path: Path, size: int, kept: ExitStack) -> Path:
    """A copy of the database with its journal, in a folder that is removed with ``kept``."""
    folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="msprobe-")))
    most = (_LEAST_BYTES + _BYTES_PER_BYTE * size) * factor()
    for ending in ("", "-journal"):
        with open_regular(f"{path}{ending}") as file, open(folder / f"copy{ending}", "wb") as copy:
            if os.fstat(file.fileno()).st_size > most:
                raise DatabaseError(said("database-journal-too-large", path))
            shutil.copyfileobj(file, copy)
    return folder / "copy"
