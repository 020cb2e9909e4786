"""Measurements as the text of csv files, in the layout of mindstudio-probe 8.1.1 (lines end in a line feed, no BOM)."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from msprobe.foreign.csv_cells import safe_text
from msprobe.monitor.measurements import BY_MICRO_STEP, Quantity, Row, StepMetrics

LAST_COLUMNS = ("shape", "dtype")
#: The quantity that scalars of a step are written as: one row each, its number in the column ``value``.
SCALARS = "scalars"

# Nine significant digits distinguish any two numbers of float32.
_SIGNIFICANT = "%.9g"
_MOST_CONSTANT_PARTS = 100_000

_Key = tuple[int, str, "int | None", "tuple[int, ...] | None", "str | None"]


def has_micro_steps(quantity: Quantity, rows: Sequence[Row]) -> bool:
    """True if the file of these rows has the column ``micro_step``."""
    return quantity in BY_MICRO_STEP or any(row.micro_step is not None for row in rows)


def header(ops: Sequence[str], micro_steps: bool, shapes: bool = True) -> str:
    """The first line, with its line end. ``shapes``: whether there are the columns shape and dtype."""
    micro = ("micro_step",) if micro_steps else ()
    words = ("vpp_stage", "name", "step", *micro, *ops, *(LAST_COLUMNS if shapes else ()))
    return ",".join(_quoted(word) for word in words) + "\n"


def scalar_rows(metrics: StepMetrics) -> list[Row]:
    """The numbers of the step as a whole, as rows with the column ``value``."""
    return [Row(0, name, None, (float(value),), (), "float64") for name, value in metrics.scalars.items()]


class RowText:
    """Rows as lines of one file. What is the same in each step is put together once for each name.

    ``digits``: decimals that numbers are rounded to, as the user asked; None: nine significant digits, so that what is
    small stays what it is. Either rule holds in every cell. Integers and truth values are written as they are.
    400 rows of six numbers take about 0.7 ms, and twice that with ``digits``.
    """

    def __init__(self, digits: int | None, micro_steps: bool, shapes: bool = True) -> None:
        self._digits = digits
        self._shapes = shapes
        self._micro_steps = micro_steps
        self._constant: dict[_Key, tuple[str, str, str]] = {}
        self._templates: dict[tuple[type, ...], str] = {}

    def lines(self, step: int, rows: Sequence[Row]) -> str:
        """The lines of one step."""
        constant, templates, digits = self._constant, self._templates, self._digits
        if len(constant) > _MOST_CONSTANT_PARTS:
            constant.clear()
        pieces: list[str] = []
        for row in rows:
            key = (row.stage, row.name, row.micro_step, row.shape, row.dtype)
            parts = constant.get(key)
            if parts is None:
                parts = constant[key] = self._parts(row)
            values = row.values
            types = tuple(map(type, values))
            template = templates.get(types)
            if template is None:
                values, types = _plain(values)
                template = templates[types] = ",".join([self._format(kind) for kind in types])
            cells = template % values
            if digits is not None:
                cells = ",".join(
                    [_shortest(cell) if cell[-1:] == "0" or "0.0000" in cell else cell for cell in cells.split(",")]
                )
            pieces.append(f"{parts[0]}{step}{parts[1]}{cells}{parts[2]}")
        return "".join(pieces)

    def _parts(self, row: Row) -> tuple[str, str, str]:
        middle = f",{row.micro_step or 0}," if self._micro_steps else ","
        # The template of the values has no comma behind it: a row without values has two commas less.
        if not self._shapes:
            return f"{row.stage},{_quoted(row.name)},", middle, "\n"
        shape = "nan" if row.shape is None else _quoted(str(list(row.shape)))
        dtype = "nan" if row.dtype is None else _quoted(row.dtype)
        comma = "," if row.values else ""
        return f"{row.stage},{_quoted(row.name)},", middle, f"{comma}{shape},{dtype}\n"

    def _format(self, kind: type) -> str:
        if kind is float:
            return _SIGNIFICANT if self._digits is None else f"%.{self._digits}f"
        if kind is int:
            return "%d"
        # A missing value takes its place in the tuple and leaves nothing of itself.
        return "%.0snan" if kind is type(None) else "%s"


def _plain(values: tuple[object, ...]) -> tuple[tuple[float | int | bool | None, ...], tuple[type, ...]]:
    """Values of unusual types (numpy's numbers) as Python's own."""
    plain: list[float | int | bool | None] = []
    for value in values:
        if value is None or type(value) in (bool, int, float):
            plain.append(value)  # type: ignore[arg-type]
        elif type(value).__name__ in ("bool", "bool_"):
            plain.append(bool(value))
        elif hasattr(value, "__index__"):
            plain.append(operator.index(value))
        else:
            plain.append(float(value))  # type: ignore[arg-type]
    return tuple(plain), tuple(map(type, plain))


def _shortest(cell: str) -> str:
    """A number with decimals as 8.1.1 writes it, the shortest text that means the same."""
    if "." not in cell:
        return cell
    if cell.startswith(("0.0000", "-0.0000")):
        return repr(float(cell))
    bare = cell.rstrip("0")
    return f"{bare}0" if bare[-1] == "." else bare


def _quoted(text: str) -> str:
    """A cell as the csv module of Python writes it, and no formula to a spreadsheet."""
    text = safe_text(text)
    if any(character in text for character in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text
