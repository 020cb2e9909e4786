"""Our sheets have the rows and cells of the published compare's, for the same two dumps.

Left out is what ours tells better, by name: messages; partners of another shape or type; nulls without a partner;
NaN; colours of calls with a negative maximum; colours of masks that are the same on both sides.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Recorded
from dumps import OURS, Rank, Setting, run_command
from reference_env import clean_environment, python_of
from support.edge_cases import write_pair
from support.sheets import read_workbook

from msprobe.cli import main

READ = """
import json, openpyxl, sys
sheet = openpyxl.load_workbook(sys.argv[1]).active
rows = [[cell.value for cell in row] for row in sheet.iter_rows()]
colours = [row[0].fill.fgColor.rgb if row[0].fill.fill_type else "" for row in sheet.iter_rows()]
json.dump([rows, colours], open(sys.argv[2], "w"))
"""
COLOURS = {"": "", "FFFF0000": "red", "00FFFF00": "yellow"}
STATISTICS = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
RELATIVES = {
    "Max diff": 0, "Min diff": 1, "Mean diff": 2, "L2norm diff": 3,
    "MaxRelativeErr": 0, "MinRelativeErr": 1, "MeanRelativeErr": 2, "NormRelativeErr": 3,
}  # fmt: skip
VERDICTS = ("Result", "Accuracy Reached or Not")
# Edge cases that ours measures in another way: exact whole numbers, 0 against 0 in half precision.
OTHER_MEASURES = ("Torch.int_big.", "Torch.fp16_zero.")


@dataclass
class Sheet:
    header: list[str]
    rows: list[dict[str, Any]]
    colours: list[str]


def compare_json(folder: Path, candidate: Path, reference: Path) -> Path:
    folder.mkdir(parents=True)
    asked = {"npu_path": str(candidate), "bench_path": str(reference), "is_print_compare_log": False}
    (folder / "compare.json").write_text(json.dumps(asked))
    return folder / "compare.json"


def published(folder: Path, candidate: Path, reference: Path) -> Sheet:
    """The sheet that 8.1.1 writes; read where it was written, with openpyxl."""
    asked = compare_json(folder, candidate, reference)
    run_command("8.1.1", "-f", "pytorch", "compare", "-i", asked, "-o", folder, cwd=folder)
    (sheet,) = folder.glob("compare_result_*.xlsx")
    table = folder / "sheet.json"
    subprocess.run([str(python_of("8.1.1")), "-c", READ, str(sheet), str(table)], env=clean_environment(), check=True)
    (header, *rows), (_, *colours) = json.loads(table.read_text())
    return Sheet(header, [dict(zip(header, row, strict=True)) for row in rows], [COLOURS[word] for word in colours])


def ours(folder: Path, candidate: Path, reference: Path) -> Sheet:
    asked = compare_json(folder, candidate, reference)
    assert main(["-f", "pytorch", "compare", "-i", str(asked), "-o", str(folder)]) == 0
    (path,) = folder.glob("compare_result_*.xlsx")
    table = next(iter(read_workbook(path).values()))
    return Sheet(table.header, list(table.rows), table.colours)


def entry_of(row: dict[str, Any]) -> str:
    """The call a row belongs to: its name up to the place in it."""
    name = str(row["NPU Name"])
    for word in (".input.", ".output.", ".parameters."):
        name = name.partition(word)[0]
    return name


def number(cell: Any) -> float:
    return float(cell) if isinstance(cell, (int, float)) and not isinstance(cell, bool) else math.nan


def agrees(column: str, found: Any, wanted: Any, row: dict[str, Any]) -> bool:
    found = None if found == "" else found
    if found == wanted:
        return True
    if column in RELATIVES:
        # 8.1.1 reads its statistics back from texts of some 16 digits behind the point; the difference of two that
        # nearly agree keeps few of them.
        try:
            a, b = (float(str(cell).rstrip("%")) for cell in (found, wanted))
        except ValueError:
            return False
        place = RELATIVES[column]
        scale = max(abs(number(row[STATISTICS[place]])), abs(number(row[STATISTICS[place + 4]])))
        bench = abs(number(row[STATISTICS[place + 4]]))
        slack = 1e-14 * scale + 2e-16
        if not column.endswith("diff"):
            slack *= 100 / bench
        return abs(a - b) <= 1e-12 * abs(b) + slack
    return math.isclose(number(found), number(wanted), rel_tol=1e-12, abs_tol=1e-12)


def told_better(column: str, mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """True for a cell that ours fills on purpose with something else."""
    if column == "Err_message":
        return True
    if theirs["Bench Name"] == "N/A" != mine["Bench Name"]:
        return True  # a partner of another shape or type
    if str(mine["NPU Name"]).startswith(OTHER_MEASURES):
        return True
    if mine["NPU Dtype"] in ("None", "<class 'NoneType'>"):
        return theirs[column] in ("N/A", "Nan", "nan\t") or column == "Result"
    nan = any(str(mine.get(name)) == "Nan" for name in STATISTICS)
    return column in VERDICTS and (
        nan or (theirs[column] in (None, "Yes", "None") and any(map(infinite, mine.values())))
    )


def infinite(cell: Any) -> bool:
    return str(cell).strip() in ("inf", "-inf")


def colour_is_ours(sheet: Sheet) -> set[str]:
    """The calls whose colours the rules of 8.1.1 get wrong."""
    found = set()
    for row in sheet.rows:
        odd = number(row.get("Bench max")) < 0 or any(str(row.get(name)) == "Nan" for name in STATISTICS)
        mask = any(infinite(row.get(name)) and row.get(name) == row.get(f"Bench{name[3:]}") for name in STATISTICS[:2])
        null = "None" in str(row["NPU Dtype"])
        if odd or mask or null or row["Bench Name"] == "N/A":
            found.add(entry_of(row))
    return found


def check(mine: Sheet, theirs: Sheet) -> None:
    assert mine.header == theirs.header
    assert [row["NPU Name"] for row in mine.rows] == [row["NPU Name"] for row in theirs.rows]
    own_colours = colour_is_ours(mine)
    colours = zip(mine.colours, theirs.colours, strict=True)
    for row, wanted, (colour, wanted_colour) in zip(mine.rows, theirs.rows, colours, strict=True):
        for column in mine.header:
            if not told_better(column, row, wanted):
                assert agrees(column, row[column], wanted[column], row), (row["NPU Name"], column, row, wanted)
        if entry_of(row) not in own_colours and wanted["Bench Name"] != "N/A":
            assert colour == wanted_colour, (row, wanted)


FACTORS = (1.0, 1.0, 1.0, 1 + 1e-6, 1.004, 1.02, 1.3, 1.7, 3.0, -2.0, 12.0, 1e11)


def perturbed(rank: Rank, folder: Path, seed: int) -> Path:
    """A copy of a dump whose statistics are off here and there."""
    chance = random.Random(seed)

    def walk(value: Any) -> None:
        if isinstance(value, dict) and "dtype" in value and "Max" in value:
            factor = chance.choice(FACTORS)
            for name in ("Max", "Min", "Mean", "Norm"):
                if isinstance(value[name], (int, float)) and not isinstance(value[name], bool):
                    value[name] = float(value[name]) * factor
            if chance.random() < 0.01:
                value["Max"] = math.inf
            if "md5" in value and factor != 1.0:
                value["md5"] = f"{chance.getrandbits(32):08x}"
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    content = json.loads((rank.folder / "dump.json").read_text())
    walk(content["data"])
    folder.mkdir()
    (folder / "dump.json").write_text(json.dumps(content, indent=1))
    (folder / "stack.json").write_text((rank.folder / "stack.json").read_text())
    return folder / "dump.json"


Both = Callable[[Path, Path], None]


@pytest.fixture
def both(tmp_path: Path, version: str) -> Both:
    """Compare with both tools, and the results with each other."""
    if version != "8.1.1":
        pytest.skip("the sheet is that of 8.1.1")

    def compare(candidate: Path, reference: Path) -> None:
        check(ours(tmp_path / "ours", candidate, reference), published(tmp_path / "published", candidate, reference))

    return compare


@pytest.mark.parametrize("task", ["tensor", "statistics", "md5"])
def test_edge_cases(task: str, both: Both, tmp_path: Path) -> None:
    candidate, reference = write_pair(tmp_path / "edge", task)  # type: ignore[arg-type]
    both(candidate, reference)


@pytest.mark.parametrize(("level", "task", "summary_mode"), [
    ("L1", "statistics", "statistics"),
    ("mix", "statistics", "statistics"),
    ("L1", "statistics", "md5"),
    ("mix", "tensor", "statistics"),
])  # fmt: skip
@pytest.mark.parametrize("program", ["toy", "transformer"])
def test_our_dump_beside_the_published_one(
    program: str, level: str, task: str, summary_mode: str, recorded: Recorded, both: Both
) -> None:
    pair = [recorded(Setting(tool, program, level, task, summary_mode))[0] for tool in (OURS, "8.1.1")]
    both(pair[0].folder / "dump.json", pair[1].folder / "dump.json")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("level", "summary_mode"), [("mix", "statistics"), ("L1", "md5")])
def test_differences_of_all_sizes(
    level: str, summary_mode: str, seed: int, recorded: Recorded, both: Both, tmp_path: Path
) -> None:
    rank = recorded(Setting(OURS, "transformer", level, "statistics", summary_mode))[0]
    both(perturbed(rank, tmp_path / "perturbed", seed), rank.folder / "dump.json")
