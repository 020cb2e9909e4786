"""The statistics of a dump in the database of the trend viewer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising
from support.command_line import call as commanded
from support.hand_made import backward, call, tensor, write_part

from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.monitor.convert.dump_to_database import FILE_NAME, dump_to_database


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two steps of two ranks; a module with two passes in a step, one of them recomputed."""
    for step in (0, 3):
        for rank in (0, 1):
            value = 10.0 * step + rank
            again = call(tensor(2, value=value), out=tensor(2, value=value + 2))
            data: dict[str, Any] = {
                "Functional.linear.0.forward": call(
                    tensor(2, value=value), tensor(2, dtype="torch.int64"), out=tensor(2)
                ),
                "Module.layers.0.Linear.forward.0": call(tensor(2, value=value), out=tensor(2, value=value + 1)),
                "Module.layers.0.Linear.forward.1": {**again, "is_recompute": True},
                "Module.layers.0.Linear.backward.1": backward(tensor(2, value=value + 3)),
                "Module.layers.0.Linear.parameters_grad": {"weight": [tensor(2, value=value + 4)]},
            }
            write_part(tmp_path / "dump" / f"step{step}" / f"rank{rank}", data).close()
    return tmp_path / "dump"


def rows(file: Path, metric: str) -> set[tuple[Any, ...]]:
    with sqlite3.connect(file) as base:
        return set(
            base.execute(
                "SELECT rank, step, micro_step, target_name, max FROM trend_data"
                " JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id)"
                " WHERE metric_name = ?",
                (metric,),
            )
        )


def test_each_tensor_has_a_row_for_each_step_and_rank_under_its_metric(dump: Path, tmp_path: Path) -> None:
    written = dump_to_database(dump, tmp_path / "out", micro_step=False)
    file = tmp_path / "out" / FILE_NAME
    assert (written.path, written.ranks, written.steps) == (file, 2, 2)
    name = "Module.layers.0.Linear"
    assert {row for row in rows(file, "forward") if row[:2] == (1, 3)} == {
        (1, 3, 0, "Functional.linear.0.input.0", 31.0),
        (1, 3, 0, "Functional.linear.0.output.0", 1.0),
        (1, 3, 0, f"{name}.input.0", 31.0),
        (1, 3, 0, f"{name}.output.0", 32.0),
    }
    assert {row for row in rows(file, "recompute") if row[:2] == (0, 0)} == {
        (0, 0, 1, f"{name}.input.0", 0.0),
        (0, 0, 1, f"{name}.output.0", 2.0),
    }
    assert (0, 3, 1, f"{name}.output.0", 33.0) in rows(file, "backward")
    assert (1, 0, 0, f"{name}.weight", 5.0) in rows(file, "parameters_grad")
    with sqlite3.connect(file) as base:
        assert base.execute("SELECT min_step, max_step, max_rank FROM global_stats").fetchone() == (0, 3, 1)
        tags = set(base.execute("SELECT tag_name, category FROM monitoring_tags"))
        assert ("layers.0", "layer") in tags


def test_passes_become_steps_of_their_own_and_names_are_replaced(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "names.json").write_text('{"Module.layers": "layer"}')
    dump_to_database(dump, tmp_path / "out", mapping=tmp_path / "names.json", process_num=2)
    found = rows(tmp_path / "out" / FILE_NAME, "recompute")
    assert {row[1:4] for row in found} == {
        (step, 0, f"layer.0.Linear.{slot}.0") for step in (1, 3) for slot in ("input", "output")
    }


@pytest.mark.parametrize("form", ["auto", "dump"])
def test_the_command_knows_a_dump_and_says_what_it_wrote(dump: Path, tmp_path: Path, form: str) -> None:
    done = commanded("data2db", "--data", dump, "--db", tmp_path / "out", "--format", form)
    assert done.returncode == 0
    assert f"{FILE_NAME} (36 rows, 2 steps, 2 ranks)" in done.stdout


def test_what_has_no_statistics_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    whole = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "md5": "0a0b0c0d"}
    write_part(tmp_path / "dump" / "step0" / "rank0", {"Torch.exp.0.forward": call(whole, out=whole)}).close()
    with raising(InvalidInputError, "dump-without-float-statistics"):
        dump_to_database(tmp_path / "dump", tmp_path / "out")
    with raising(MsprobeError, "dump-missing", path=str(tmp_path / "nothing")):
        dump_to_database(tmp_path / "nothing", tmp_path / "out")
    for name in ("proc1", "proc2"):
        write_part(tmp_path / "many" / "step0" / name, {"Torch.exp.0.forward": call()}).close()
    with raising(InvalidInputError, "rank-folders-without-number", count=2):
        dump_to_database(tmp_path / "many", tmp_path / "out")
    assert not (tmp_path / "out").exists()
