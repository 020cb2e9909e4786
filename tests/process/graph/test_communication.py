"""Ranks whose graphs are built side by side."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.command_line import call
from support.graph_models import compare_file
from support.hand_made import tensor, write_part
from unit.graph.test_communication import record

from msprobe.graph.graph_files import read_graph_file


@pytest.mark.parametrize("form", ["vis", "db"])
def test_ranks_done_side_by_side_give_the_same_files(tmp_path: Path, form: str) -> None:
    name = "Distributed.all_reduce.0.forward"
    for side, values in (("a", (1.0, 2.0)), ("b", (1.0, 1.0))):
        for rank, value in enumerate(values):
            data = {name: record() | {"output": [tensor(2, value=value)]}, 'Tensor.\u00e9"%s.0.forward': record()}
            write_part(tmp_path / side / f"rank{rank}", data, construct=dict.fromkeys(data), stacks={name: ["File a"]})
    sides = tmp_path / "a", tmp_path / "b"
    words = ["graph_visualize", "-tp", sides[0], "-gp", sides[1]]
    if form == "vis":
        words = ["-f", "pytorch", "graph", "-i", compare_file(tmp_path, *sides)]
    found = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        assert call(*words, "-o", out, "--jobs", jobs).returncode == 0
        files = sorted(out.iterdir())
        assert len(files) == (2 if form == "vis" else 1)
        found.append([rows_of(file) if form == "db" else file.read_bytes() for file in files])
        for file in files:
            for graph in read_graph_file(file).graphs:
                (other,) = {0, 1} - {graph.rank}
                assert set(graph.nodes[name].communication["nodes_info"]) == {str(other)}
    assert found[0] == found[1]


def rows_of(file: Path) -> list[Any]:
    """All rows of a database, in their order."""
    database = sqlite3.connect(file)
    tables = ("tb_nodes", "tb_config", "tb_stack")
    return [database.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall() for table in tables]
