"""What several processes find or write is what one does."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.checked import of_ranks
from support.command_line import call
from support.graph_models import compare_file
from support.hand_made import tensor, write_part
from unit.diagnose.overflow_ranks import c05
from unit.diagnose.test_checks_training import replica
from unit.graph.test_communication import record

from msprobe.diagnose.check import check_run
from msprobe.diagnose.check.first_overflow import find_first_overflow
from msprobe.engine import Workers
from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints
from msprobe.errors import InvalidInputError
from msprobe.graph.graph_files import read_graph_file


def test_processes_find_what_one_finds(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        torch.save(
            {str(at): torch.randn(9, generator=torch.Generator().manual_seed(seed)) for at in range(4100)},
            tmp_path / name,
        )
    request = CheckpointRequest(str(tmp_path / "a"), str(tmp_path / "b"))
    with pytest.raises(InvalidInputError, match="known"):
        compare_checkpoints(CheckpointRequest(str(tmp_path), str(tmp_path)))
    one, two = compare_checkpoints(request), compare_checkpoints(request, Workers(2))
    assert one.rows == two.rows
    assert one.counts == {"changed": 4100}


def test_memory_is_that_of_the_largest_parameter(tmp_path: Path) -> None:
    """48 parameters of 4 MiB: as a whole they would not fit under the limit."""
    torch.save({str(at): torch.full((1 << 20,), float(at)) for at in range(48)}, tmp_path / "a.pt")
    torch.save({str(at): torch.full((1 << 20,), at + 0.5) for at in range(48)}, tmp_path / "b.pt")
    code = (
        "import resource, sys\n"
        "from msprobe.environment.checkpoint.comparison import CheckpointRequest, compare_checkpoints\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "found = compare_checkpoints(CheckpointRequest(sys.argv[1], sys.argv[2]))\n"
        "assert len(found.rows) == 48\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown * 1024 < 100 << 20


def test_ranks_that_are_read_in_other_processes_give_the_same_answer(tmp_path: Path) -> None:
    step = c05().write(tmp_path)
    assert find_first_overflow(step, workers=Workers(2)) == find_first_overflow(step)


def test_ranks_that_are_checked_in_other_processes_give_the_same_answer(tmp_path: Path) -> None:
    for step in (0, 1):
        of_ranks(tmp_path, lambda rank: replica(rank, batch=9 + rank, lr=0.2 if rank == 1 else 0.1), step=step)
    alone = check_run(tmp_path)
    assert alone.findings
    assert check_run(tmp_path, workers=Workers(2)).to_json() == alone.to_json()


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
