"""No cell of a csv file that a text of a dump, a log or a csv can reach is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from hostile.limits import Called
from hostile.made import TENSOR, dump, record

EVIL = "=cmd|' /C calc'!A0"
NUMBER = re.compile(r"[-+][\d.]+([eE][-+]?\d+)?|[-+](inf|nan)", re.IGNORECASE)


def demand_no_formula(folder: Path) -> None:
    files = sorted(folder.rglob("*.csv"))
    assert files, "no csv file was written"
    for file in files:
        with open(file, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            for cell in (cell for row in csv.reader(lines) for cell in row):
                begin = cell.lstrip(" \t\r\n\xa0")[:1]
                bad = begin in tuple("=@＝＠") or (begin in tuple("+-＋－") and not NUMBER.fullmatch(cell.strip()))
                assert not bad, f"{file.name} has the cell {cell[:40]!r}"


@pytest.mark.parametrize("evil", [EVIL, "＠SUM(A1)", "\xa0=1+1"])
def test_result_of_a_check(tmp_path: Path, evil: str) -> None:
    """The name of a record, and of what it says of an argument."""
    data = {
        f"{evil}.gelu.0.forward": record(),
        f"Functional.{evil}.0.forward": record(),
        "Functional.gelu.1.forward": record({**TENSOR, "dtype": evil}),
    }
    file = dump(tmp_path / "A", data)
    Called("run_ut", "-api_info", file, "-o", tmp_path / "out", cwd=tmp_path, seconds=60).demand_quick(60)
    demand_no_formula(tmp_path / "out")


@pytest.mark.parametrize("evil", [EVIL.replace(" ", "_"), "-2+3+cmd", "\u3000+1"])
def test_settings_of_two_logs(tmp_path: Path, evil: str) -> None:
    for side in ("one.log", "two.log"):
        line = f"{evil} ..... {side}"
        (tmp_path / side).write_text(f"---- arguments ----\n{line}\n----- end of arguments ----\n", "utf-8")
    words = "config_check", "-sc", tmp_path / "one.log", tmp_path / "two.log", "-o", tmp_path / "out"
    Called(*words, cwd=tmp_path).demand_quick()
    demand_no_formula(tmp_path / "out")


def test_sheet_of_a_comparison(tmp_path: Path) -> None:
    for side, most in (("A", 1.0), ("B", 2.0)):
        dump(tmp_path / side, {f"Functional.{EVIL}.0.forward": record({**TENSOR, "Max": most})})
    Called("compare", tmp_path / "A", tmp_path / "B", "-o", tmp_path / "out", "--csv", cwd=tmp_path).demand_quick()
    demand_no_formula(tmp_path / "out")


def test_table_of_two_checkpoints(tmp_path: Path) -> None:
    import numpy as np

    for side in "ab":
        np.savez(tmp_path / f"{side}.npz", **{EVIL.replace("/", ""): np.ones(3), "w": np.zeros(2)})
    words = "config_check", "-c", tmp_path / "a.npz", tmp_path / "b.npz", "-o", tmp_path / "out.json"
    answer = Called(*words, cwd=tmp_path)
    answer.demand_quick()
    if list(tmp_path.rglob("*.csv")):
        demand_no_formula(tmp_path)


def test_verdict_of_gradients(tmp_path: Path) -> None:
    for side, value in (("A", 1.0), ("B", 2.0)):
        place = tmp_path / side / "rank0" / "step0"
        place.mkdir(parents=True)
        rows = [["param_name", "max", "min", "norm", "shape"], [f"'{EVIL}", value, -value, value, "[2]"]]
        with open(place / "grad_summary_0.csv", "w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows(rows)
    words = "grad_compare", tmp_path / "A", tmp_path / "B", "-o", tmp_path / "out"
    Called(*words, cwd=tmp_path).demand_quick()
    if (tmp_path / "out").is_dir() and list((tmp_path / "out").rglob("*.csv")):
        demand_no_formula(tmp_path / "out")
