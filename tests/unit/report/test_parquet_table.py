from __future__ import annotations

import importlib.util
import math
import stat
from pathlib import Path
from typing import Any

import pytest

from msprobe.errors import NotAvailableError
from msprobe.report import parquet_table
from msprobe.report.parquet_table import write_parquet


def test_without_polars_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotAvailableError, match=r"pip install 'msprobe-debugger\[compare\]'"):
        write_parquet(tmp_path / "rows.parquet", ["a"], [[[1.0]]])
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_numbers_and_words_are_kept(tmp_path: Path) -> None:
    polars: Any = pytest.importorskip("polars")
    header = ["name", "max", "relative", "empty"]
    blocks: list[Any] = [
        [["a", "b", "c"], [1.5, "nan", "sum"], ["50.0%", "1e-05%", "N/A"], ["", "", ""]],
        [["d", "e", "f"], [-math.inf, "N/A", True], ["0.0%", "nan", ""], ["", "", ""]],
    ]
    path = tmp_path / "rows.parquet"
    write_parquet(path, header, blocks)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    frame = polars.read_parquet(path)
    assert frame.columns == ["name", "max", "max (text)", "relative", "empty"]
    assert frame["name"].to_list() == list("abcdef")
    largest = frame["max"].to_list()
    assert largest[0] == 1.5
    assert math.isnan(largest[1])
    assert largest[2:5] == [None, -math.inf, None]
    assert frame["max (text)"].to_list() == [None, None, "sum", None, None, None]
    relative = frame["relative"].to_list()
    assert relative[:4] == [0.5, pytest.approx(1e-7), None, 0.0]
    assert frame["empty"].to_list() == [""] * 6


def test_a_table_without_rows(tmp_path: Path) -> None:
    polars: Any = pytest.importorskip("polars")
    write_parquet(tmp_path / "rows.parquet", ["a", "b"], [])
    assert polars.read_parquet(tmp_path / "rows.parquet").shape == (0, 2)


def test_words_that_stand_for_numbers() -> None:
    assert parquet_table._number("12.5%") == 0.125
    assert parquet_table._number("12.5 %") is None
    assert parquet_table._number("unsupported") is None
