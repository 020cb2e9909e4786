"""Write spreadsheets (.xlsx), row by row and without holding them in memory.

A workbook of millions of cells is written in seconds: the parts of the file that tables need, and no more. Texts are
texts whatever they begin with, so nothing in a dump is ever run as a formula.

Source of the format: ECMA-376 part 1, SpreadsheetML.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from xml.sax.saxutils import escape

from msprobe.errors import PathError, reason_of
from msprobe.foreign.csv_cells import safe_text
from msprobe.messages import said
from msprobe.paths import FILE_MODE, StrPath

Cell = float | int | str | None
Column = Sequence[Cell]

MOST_ROWS = 1_048_575  # without the header
_MOST_TEXT = 32_767
_INF = float("inf")
_REMEMBERED = 1 << 18  # texts, some 40 MB
_LEVEL = 1  # of compression: twice as fast as the usual one, for a third more bytes
_MEASURED = 500  # rows that decide the width of columns
_WIDEST, _WIDEST_TITLE = 60, 24  # in characters
_BUTTON = 3  # of the filter, in the header
_numbers = itertools.count(int.from_bytes(os.urandom(6), "big"))

# The styles of rows, and the colours mindstudio-probe paints them with.
PLAIN, YELLOW, RED = range(3)
_FILLS = ("", "00FFFF00", "FFFF0000")
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_CONTENT = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_FROZEN = (
    '<sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" '
    'state="frozen"/></sheetView></sheetViews>'
)
_VIEW = "<bookViews><workbookView/></bookViews>"
# Not allowed in XML 1.0; shown as the sign for "cannot be shown". Also a text such as _x0041_, which spreadsheets
# would take for an escape.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ESCAPE = re.compile("_(?=x[0-9A-Fa-f]{4}_)")
# Most texts are names and numbers, which need none of this.
_PLAIN = re.compile(r"[\w\[(](?:[\w.,:%\[\]() -]*[\w.,:%\[\]()])?", re.ASCII)
_SHOWN = re.compile(r"<(?:t|v|t xml:space=\"preserve\")>([^<]*)<")


@dataclass(frozen=True)
class Sheet:
    """One sheet: ``blocks`` gives the columns of some rows at a time, ``colours`` a style for each row.

    ``widths`` are the widths of the columns in characters; without them they are as wide as the header and the first
    rows ask for. The header stays in view, and each column can be filtered.
    """

    name: str
    header: Sequence[str]
    blocks: Iterable[Sequence[Column]]
    rows: int
    colours: Sequence[int] = ()
    widths: Sequence[float] = ()


def write_workbook(path: StrPath, sheets: Iterable[Sheet]) -> None:
    """Write a workbook; the file appears under its name when it is whole, with mode 0640.

    A sheet of more than 1,048,575 rows becomes several, named ``part_0``, ``part_1``, ... Raises PathError.
    """
    target = os.fspath(path)
    temporary = os.path.join(os.path.dirname(target) or ".", f".msprobe-{os.getpid()}-{next(_numbers)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                with contextlib.suppress(OSError):
                    os.fchmod(file.fileno(), FILE_MODE)
                _write(file, sheets)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as problem:
        raise PathError(said("sheet-not-written", Path(target), reason_of(problem))) from problem


def _write(file: IO[bytes], sheets: Iterable[Sheet]) -> None:
    names: list[str] = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
        for sheet in sheets:
            for name, rows in _split(sheet):
                names.append(name)
                entry = archive.open(f"xl/worksheets/sheet{len(names)}.xml", "w", force_zip64=True)
                with entry:
                    for piece in rows:
                        entry.write(piece)
        for name, text in _frame(names):
            archive.writestr(name, _XML + text)


def _split(sheet: Sheet) -> Iterator[tuple[str, Iterator[bytes]]]:
    rows = _rows(sheet)
    if sheet.rows <= MOST_ROWS:
        yield sheet.name, _sheet(sheet, rows)
        return
    for number in range((sheet.rows + MOST_ROWS - 1) // MOST_ROWS):
        yield f"part_{number}", _sheet(sheet, itertools.islice(rows, MOST_ROWS))


def _sheet(sheet: Sheet, rows: Iterable[tuple[int, tuple[str, ...]]]) -> Iterator[bytes]:
    letters = [_letters(number) for number in range(len(sheet.header))]
    templates = [_template(letters, style) for style in range(len(_FILLS))]
    head = tuple(map(_text_cell, sheet.header))
    rows = iter(rows)
    first = list(itertools.islice(rows, _MEASURED))
    widths = sheet.widths or _widths(sheet.header, [cells for _, cells in first])
    columns = "".join(
        f'<col min="{place}" max="{place}" width="{width}" customWidth="1"/>' for place, width in enumerate(widths, 1)
    )
    start = f'{_XML}<worksheet xmlns="{_MAIN}">{_FROZEN}{f"<cols>{columns}</cols>" if columns else ""}<sheetData>'
    yield start.encode()
    held = [_filled(templates[PLAIN], 1, head)]
    number = 1
    for number, (style, cells) in enumerate(itertools.chain(first, rows), 2):
        held.append(_filled(templates[style], number, cells))
        if len(held) >= 2048:
            yield "".join(held).encode()
            held.clear()
    ends = f'<autoFilter ref="A1:{letters[-1]}{number}"/>' if letters else ""
    held.append(f"</sheetData>{ends}</worksheet>")
    yield "".join(held).encode()


def _widths(header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[int]:
    """How wide each column has to be in characters, within reason."""
    longest = [min(len(title), _WIDEST_TITLE) + _BUTTON for title in header]
    for cells in rows:
        for column, cell in enumerate(cells):
            if len(cell) > longest[column]:  # with its tags it is longer than shown
                text = _SHOWN.search(cell)
                longest[column] = max(longest[column], min(len(text[1]) if text else 0, _WIDEST))
    return [width + 1 for width in longest]


def _template(letters: Sequence[str], style: int) -> str:
    """A row with a place for each cell: its number stands before the cells, once for each."""
    shown = f' s="{style}"' if style else ""
    cells = "".join(f'<c r="{letter}\0"{shown}%s' for letter in letters)
    return f'<row r="\0">{cells}</row>'


def _filled(template: str, number: int, cells: tuple[str, ...]) -> str:
    return template.replace("\0", str(number)) % cells


def _rows(sheet: Sheet) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Style and cells of each row."""
    shown = _Shown()
    start = 0
    for block in sheet.blocks:
        columns = [shown.column(column) for column in block]
        rows = zip(*columns, strict=True)
        colours = sheet.colours[start : start + len(block[0])] if len(sheet.colours) else itertools.repeat(PLAIN)
        yield from zip(colours, rows, strict=False)
        start += len(block[0]) if block else 0


class _Shown:
    """Cells as XML, each without its place: ``><v>1</v></c>``. What was shown before is remembered for a while."""

    def __init__(self) -> None:
        self._known: dict[Cell, str] = {}

    def column(self, column: Column) -> list[str]:
        """All cells of a column."""
        if set(map(type, column)) == {float}:
            numbers = cast("Sequence[float]", column)
            return [f"><v>{value:.16G}</v></c>" if -_INF < value < _INF else _number_cell(value) for value in numbers]
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        known = self._known
        cells = []
        for value in column:
            # 1, 1.0 and True are one key, so only texts are remembered.
            if type(value) is str:
                text_of_cell = known.get(value)
                if text_of_cell is None:
                    text_of_cell = known[value] = _text_cell(value)
            else:
                text_of_cell = _text_cell("") if value is None else _number_cell(value)
            cells.append(text_of_cell)
        return cells


def _number_cell(value: Cell) -> str:
    if isinstance(value, (bool, str)) or value is None:
        return _text_cell(str(value))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        # A spreadsheet has no such numbers; mindstudio-probe writes their name and a tab.
        return _text_cell(f"{value}\t")
    try:
        return f"><v>{value:.16G}</v></c>"
    except OverflowError:
        return _text_cell(str(value))


def _text_cell(text: str) -> str:
    if not text:
        return "/>"
    if _PLAIN.fullmatch(text) and "_x" not in text and len(text) <= _MOST_TEXT:
        return f' t="inlineStr"><is><t>{text}</t></is></c>'
    text = safe_text(text)
    if len(text) > _MOST_TEXT:
        text = text[: _MOST_TEXT - 3] + "..."
    text = _ESCAPE.sub("_x005F_", _UNSHOWABLE.sub("\ufffd", text))
    space = ' xml:space="preserve"' if text != text.strip() or "\n" in text else ""
    return f' t="inlineStr"><is><t{space}>{escape(text)}</t></is></c>'


def _letters(number: int) -> str:
    """The name of a column: A, B, ..., Z, AA."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _frame(names: Sequence[str]) -> list[tuple[str, str]]:
    """The files around the sheets, by name."""
    quotes = {'"': "&quot;"}
    sheets = "".join(
        f'<sheet name="{escape(_sheet_name(name), quotes)}" sheetId="{number}" r:id="rId{number}"/>'
        for number, name in enumerate(names, 1)
    )
    content = f"{_VIEW}<sheets>{sheets}</sheets>"
    parts = [("worksheet", f"worksheets/sheet{number}.xml") for number in range(1, len(names) + 1)]
    return [
        ("[Content_Types].xml", _content_types(len(names))),
        ("_rels/.rels", _relationships([("officeDocument", "xl/workbook.xml")])),
        ("xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}">{content}</workbook>'),
        ("xl/_rels/workbook.xml.rels", _relationships([*parts, ("styles", "styles.xml")])),
        ("xl/styles.xml", _styles()),
    ]


def _content_types(sheets: int) -> str:
    parts = "".join(
        f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{_CONTENT}.worksheet+xml"/>'
        for number in range(1, sheets + 1)
    )
    return (
        f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_CONTENT}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_CONTENT}.styles+xml"/>{parts}</Types>'
    )


def _relationships(targets: Sequence[tuple[str, str]]) -> str:
    links = "".join(
        f'<Relationship Id="rId{number}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'


def _styles() -> str:
    """Two fills that every workbook has, then ours; one style for each of ours, and the plain one."""
    fills = "".join(
        f'<fill><patternFill patternType="solid"><fgColor rgb="{colour}"/></patternFill></fill>'
        for colour in _FILLS[1:]
    )
    formats = "".join(
        f'<xf numFmtId="0" fontId="0" fillId="{style + 1 if style else 0}" borderId="0" xfId="0" applyFill="1"/>'
        for style in range(len(_FILLS))
    )
    return (
        f'<styleSheet xmlns="{_MAIN}"><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
        f'<fills count="{len(_FILLS) + 1}"><fill><patternFill patternType="none"/></fill>'
        f'<fill><patternFill patternType="gray125"/></fill>{fills}</fills>'
        '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
        '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
        f'<cellXfs count="{len(_FILLS)}">{formats}</cellXfs>'
        '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
    )


def _sheet_name(name: str) -> str:
    """At most 31 characters, none of those that sheets do not have in their names."""
    return re.sub(r"[\[\]:*?/\\]", "_", name)[:31] or "Sheet"
