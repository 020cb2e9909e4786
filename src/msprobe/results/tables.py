"""Tables of results: columns that any table package takes, and that need none to be looked at."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msprobe.errors import NotAvailableError
from msprobe.results.notebook import table_html

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN = 10


class Table:
    """Columns of one length, by name; nothing of it changes.

    ``table["name"]`` is a column, ``len(table)`` the number of rows, iterating gives one dict for each row.
    """

    __slots__ = ("_columns", "title")

    def __init__(self, columns: Mapping[str, Sequence[Any]], title: str = "") -> None:
        self._columns = {name: tuple(column) for name, column in columns.items()}
        self.title = title
        if len(set(map(len, self._columns.values()))) > 1:
            raise ValueError("the columns of a table have one length")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each row."""
        return list(self)

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self._columns.values(), strict=True):
            yield dict(zip(self._columns, values, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash((self.names, len(self)))

    def __repr__(self) -> str:
        return f"<Table{f' of {self.title}' if self.title else ''}: {len(self)} rows, {', '.join(self._columns)}>"

    def to_polars(self) -> polars.DataFrame:
        """The table for polars. Raises NotAvailableError if polars is not installed."""
        package = _package("polars")
        # strict=False: a column may hold whole numbers and numbers with a fraction.
        frame: polars.DataFrame = package.DataFrame(self._lists(), strict=False)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """The table for pandas. Raises NotAvailableError if pandas is not installed."""
        frame: pandas.DataFrame = _package("pandas").DataFrame(self._lists())
        return frame

    def _lists(self) -> dict[str, list[Any]]:
        return {name: list(column) for name, column in self._columns.items()}

    def _repr_html_(self) -> str:
        rows = [[column[number] for column in self._columns.values()] for number in range(min(len(self), _SHOWN))]
        return table_html(self.names, rows, len(self), self.title)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise NotAvailableError(
            f"this table needs {name}, which is not installed: pip install {name}. Without it, .rows gives plain dicts."
        ) from problem
