"""Tables of results: columns that any table package takes, and that need none to be looked at."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import said, translated
from msprobe.results.notebook import shown, table_html

if TYPE_CHECKING:
    import pandas
    import polars

_SHOWN = 10
#: Of a column of text, print shows so many letters.
_WIDEST = 44


class Table:
    """Columns of one length, by name; nothing of it changes.

    ``table["name"]`` is a column, ``len(table)`` the number of rows, iterating gives one dict for each row.
    ``meanings`` says what each column holds, in which unit, and when it is None. ``leading``: the numbers of the rows
    to look at first, which are those that ``print`` and notebooks show; those at the top if there are none.
    """

    __slots__ = ("_columns", "leading", "meanings", "title")

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]],
        title: str = "",
        meanings: Mapping[str, str] | None = None,
        leading: Sequence[int] = (),
    ) -> None:
        self._columns = {name: tuple(column) for name, column in columns.items()}
        self.title = title
        self.meanings = dict(meanings or {})
        self.leading = tuple(leading)
        if len(set(map(len, self._columns.values()))) > 1:
            raise ValueError(said("columns-of-lengths"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each row."""
        return list(self)

    def where(self, **wanted: Any) -> Table:
        """The rows in which columns have these values: ``where(status="unexplained")``. A function is asked with the
        value of each row: ``where(units=lambda units: units is not None and units > 4)``. Raises
        InvalidInputError for a column that there is not.
        """
        unknown = [name for name in wanted if name not in self._columns]
        if unknown:
            raise InvalidInputError(said("columns-missing", ", ".join(map(repr, unknown)), ", ".join(self._columns)))
        kept = list(range(len(self)))
        for name, value in wanted.items():
            column = self._columns[name]
            kept = [
                number for number in kept if (value(column[number]) if callable(value) else column[number] == value)
            ]
        places = {number: place for place, number in enumerate(kept)}
        columns = {name: [column[number] for number in kept] for name, column in self._columns.items()}
        return Table(
            columns, self.title, self.meanings, [places[number] for number in self.leading if number in places]
        )

    def in_module(self, path: str) -> Table:
        """The rows of a module and of all that runs in it: ``in_module("layers.3")`` has ``layers.3.mlp``, and not
        ``layers.30``. Raises InvalidInputError for a table that has no column ``module``.
        """
        below = f"{path}."
        return self.where(module=lambda module: module is not None and (module == path or module.startswith(below)))

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        if name not in self._columns:
            raise KeyError(said("column-missing", name, ", ".join(self._columns)))
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in zip(*self._columns.values(), strict=True):
            yield dict(zip(self._columns, values, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table) or self.names != other.names or len(self) != len(other):
            return False
        return all(map(same_values, self._columns.values(), other._columns.values()))

    def __hash__(self) -> int:
        return hash((self.names, len(self)))

    def __repr__(self) -> str:
        return f"<Table{f' of {self.title}' if self.title else ''}: {len(self)} rows, {', '.join(self._columns)}>"

    def __str__(self) -> str:
        numbers = self._first_numbers()
        cells = [["", *(str(number) for number in numbers)]]
        for name, column in self._columns.items():
            texts = [shown(column[number]) for number in numbers]
            cells.append([name, *(text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..." for text in texts)])
        padded = [[text.ljust(max(map(len, column))) for text in column] for column in cells]
        lines = ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        return "\n".join([*lines, *self._line_of_the_others(len(numbers))])

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

    def _first_numbers(self) -> list[int]:
        """The numbers of the rows that are shown."""
        numbers = dict.fromkeys(self.leading[:_SHOWN])
        for number in range(len(self)):
            if len(numbers) >= _SHOWN:
                break
            numbers.setdefault(number)
        return list(numbers)

    def _line_of_the_others(self, count: int) -> list[str]:
        if count >= len(self):
            return []
        return [translated(said("rows-shown-leading" if self.leading else "rows-shown-first", count, len(self)))]

    def _repr_html_(self) -> str:
        numbers = self._first_numbers()
        rows = [[number, *(column[number] for column in self._columns.values())] for number in numbers]
        below = " ".join(self._line_of_the_others(len(numbers)))
        return table_html(("", *self.names), rows, below, self.title, self.meanings)


class Tabular:
    """What is a table, too."""

    __slots__ = ()

    @property
    def table(self) -> Table:
        """What there is to list, one row for each."""
        raise NotImplementedError

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table, one dict for each."""
        return self.table.rows

    def to_polars(self) -> polars.DataFrame:
        """The table for polars. Raises NotAvailableError if it is not installed."""
        return self.table.to_polars()

    def to_pandas(self) -> pandas.DataFrame:
        """The table for pandas. Raises NotAvailableError if it is not installed."""
        return self.table.to_pandas()


def rank_column(ranks: Sequence[int | str | None]) -> list[int | str | None]:
    """Ranks for a column, which has one type: numbers, or texts where one of them is the name of a folder."""
    if any(isinstance(rank, str) for rank in ranks):
        return [None if rank is None else str(rank) for rank in ranks]
    return list(ranks)


def same_values(first: Any, other: Any) -> bool:
    """True if two results hold the same; a NaN is the same as another."""
    if isinstance(first, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(first) == len(other) and all(map(same_values, first, other))
    if isinstance(first, dict) and isinstance(other, dict):
        return first.keys() == other.keys() and all(same_values(first[key], other[key]) for key in first)
    return bool(first is other or first == other or (first != first and other != other))


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise NotAvailableError(said("table-needs-package", name)) from problem
