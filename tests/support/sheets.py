"""Read workbooks, with the colours of their rows, by nothing but the standard library."""

from __future__ import annotations

import csv
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_COLOURS = {"FFFF0000": "red", "00FFFF00": "yellow"}

Cell = float | str


@dataclass
class Table:
    """Header and rows of a sheet; a colour for each row, empty where there is none."""

    header: list[str]
    rows: list[dict[str, Cell]]
    colours: list[str] = field(default_factory=list)

    def row(self, name: str) -> dict[str, Cell]:
        """The row of one tensor."""
        (found,) = [row for row in self.rows if row["NPU Name"] == name]
        return found

    def colour(self, name: str) -> str:
        """The colour of the row of one tensor."""
        return self.colours[[row["NPU Name"] for row in self.rows].index(name)]


def read_workbook(path: Path) -> dict[str, Table]:
    """All sheets by name. Empty cells are empty texts, numbers are floats."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        targets = {link.get("Id"): link.get("Target") for link in links}
        fills = _fills(archive)
        sheets = {}
        for sheet in book.iter(f"{_MAIN}sheet"):
            content = ElementTree.fromstring(archive.read(f"xl/{targets[sheet.get(_ID)]}"))
            sheets[str(sheet.get("name"))] = _table(content, fills)
    return sheets


def read_table(path: Path) -> Table:
    """The first sheet of a workbook, or a CSV file."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        return Table(header, [dict(zip(header, row, strict=True)) for row in rows])
    return next(iter(read_workbook(path).values()))


def _fills(archive: zipfile.ZipFile) -> list[str]:
    """The colour of each style."""
    styles = ElementTree.fromstring(archive.read("xl/styles.xml"))
    colours = [
        _COLOURS.get(str(colour.get("rgb")), "") if (colour := fill.find(f".//{_MAIN}fgColor")) is not None else ""
        for fill in styles.iter(f"{_MAIN}fill")
    ]
    formats = styles.find(f"{_MAIN}cellXfs")
    assert formats is not None
    return [colours[int(format_.get("fillId", "0"))] for format_ in formats]


def _table(content: ElementTree.Element, fills: list[str]) -> Table:
    lines = []
    colours = []
    for number, row in enumerate(content.iter(f"{_MAIN}row"), 1):
        assert row.get("r") == str(number)
        cells = list(row)
        assert [cell.get("r") for cell in cells] == [f"{_letters(i)}{number}" for i in range(len(cells))]
        lines.append([_cell(cell) for cell in cells])
        styles = {cell.get("s", "0") for cell in cells}
        assert len(styles) == 1
        colours.append(fills[int(styles.pop())])
    header = [str(name) for name in lines[0]]
    return Table(header, [dict(zip(header, line, strict=True)) for line in lines[1:]], colours[1:])


def _cell(cell: ElementTree.Element) -> Cell:
    if cell.get("t") == "inlineStr":
        text = "".join(node.text or "" for node in cell.iter(f"{_MAIN}t"))
        return re.sub("_x([0-9A-Fa-f]{4})_", lambda match: chr(int(match[1], 16)), text)
    value = cell.find(f"{_MAIN}v")
    return "" if value is None else float(value.text or "nan")


def _letters(number: int) -> str:
    return chr(65 + number) if number < 26 else chr(64 + number // 26) + chr(65 + number % 26)
