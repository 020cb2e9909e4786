"""csv files of the monitor: any number, any quote and any width end in a result or a sentence."""

from __future__ import annotations

import pytest

from hostile.limits import Called
from hostile.made import monitored

HEADER = "vpp_stage,name,step,norm,min,max,mean\n"


def two_sides(folder, text=None, more=""):
    sides = [monitored(folder / side) for side in "AB"]
    for side in sides:
        file = next(side.rglob("*.csv"))
        file.write_bytes(
            (file.read_text() if text is None else text).encode("utf-8", "surrogateescape") + more.encode()
        )
    return sides


@pytest.mark.parametrize(
    "line",
    [
        f"0,w,{'9' * 5000},1,1,1,1\n",
        f"0,w,{'9' * 19},1,1,1,1\n",
        f"{'9' * 5000},w,1,1,1,1,1\n",
        "0,w,--5,1,1,1,1\n",
        "0,w,-5,1,1,1,1\n",
        "0,w,nan,1,1,1,1\n0,w,inf,1,1,1,1\n",
        "0,w,999999999999999999,1,1,1,1\n",
        "0,w,1,1e999,-inf,nan,0x10\n",
        '0,"w,1,1,1,1,1\n' + "0,x,1,1,1,1,1\n" * 20_000,
        "0,w\0,1,1,1,1,1\n",
        f"0,{'w' * 300_000},1,1,1,1,1\n",
        "0,w,٣,1,1,1,1\n",
        "," * 1_000_000 + "\n",
    ],
)
def test_a_line_that_is_no_row(tmp_path, line):
    sides = two_sides(tmp_path, more=line)
    Called("monitor", "diff", *sides, cwd=tmp_path).demand_quick()


@pytest.mark.parametrize(
    "text",
    [
        lambda: HEADER.rstrip() + "".join(f",c{n}" for n in range(1_000_000)) + "\n",
        lambda: "\ufeff" + HEADER + "0,w,1,1,1,1,1\n",
        lambda: '"' * 1_000_001,
        lambda: "\n" * 1_000_000,
        lambda: "\udcff\udcfe\n",
        lambda: HEADER + "0,w,1,1,1,1,1\n" * 60_000,
    ],
    ids=["columns", "mark", "quotes", "lines", "no-text", "repeats"],
)
def test_a_file_that_is_no_table(tmp_path, text):
    sides = two_sides(tmp_path, text())
    Called("monitor", "diff", *sides, cwd=tmp_path).demand_quick()


def test_small_files_where_memory_is_limited(tmp_path):
    """Nothing hostile: two files of a hundred bytes, read where a process may have four gibibytes."""
    sides = monitored(tmp_path / "A"), monitored(tmp_path / "B")
    answer = Called("monitor", "diff", *sides, cwd=tmp_path, gibibytes=4)
    answer.demand_quick()
    assert answer.status == 0, answer.text
