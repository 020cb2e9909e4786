"""Tables of ``msprobe compare CANDIDATE REFERENCE``: of the steps that differ, unless all are asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import command_line
from support.coded_texts import mentions
from unit.diagnose.training import Plan, train

from msprobe.cli import main
from msprobe.messages import said

STEPS = 4
OTHER = {"arguments": {"blocks.1.mul": {1: 0.25}}}
QUIET = {"arguments": {"blocks.1.dropout": {1: 0.1000001}}}


def run(*words: object) -> tuple[int, str]:
    done = command_line.call("compare", *words)
    assert done.stderr == ""
    return done.returncode, " ".join(done.stdout.split())


def sheets(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("compare_result*"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("sheets") / "reference", *[Plan(steps=STEPS)] * 2)


def test_are_written_of_the_step_where_they_part_and_of_all_its_ranks(tmp_path: Path, reference: Path) -> None:
    later = Plan(steps=STEPS, updated={"head.bias": lambda array: array * np.float32(1.1)})
    one = train(tmp_path / "one", later, Plan(steps=STEPS))
    status, text = run(one, reference, "-o", tmp_path / "out", "--csv", "--xlsx")
    assert status == 1
    assert sheets(tmp_path / "out") == [
        f"compare_result_step0_rank{rank}.{kind}" for rank in (0, 1) for kind in ("csv", "xlsx")
    ]
    assert said("tables-left-out-later", said("so-many-steps", 3)) in text


@pytest.mark.parametrize("planted", [{}, {"noise": 2e-7}], ids=["the same", "rounding"])
def test_are_not_written_of_steps_that_agree(tmp_path: Path, reference: Path, planted: dict[str, float]) -> None:
    one = train(tmp_path / "one", *[Plan(steps=STEPS, **planted)] * 2)  # type: ignore[arg-type]
    status, text = run(one, reference, "-o", tmp_path / "out", "--csv")
    assert (status, sheets(tmp_path / "out")) == (0, [])
    assert said("tables-left-out-same", said("so-many-steps", 4)) in text
    status, text = run(one, reference, "-o", tmp_path / "out", "--csv", "--all-steps")
    assert (status, len(sheets(tmp_path / "out"))) == (0, 2 * STEPS)
    assert "--all-steps" not in text


def test_are_written_of_steps_with_a_harmless_finding(tmp_path: Path, reference: Path) -> None:
    again = train(tmp_path / "again", *[Plan(steps=STEPS, **QUIET)] * 2)  # type: ignore[arg-type]
    one = train(tmp_path / "one", *[Plan(steps=STEPS)] * 2)
    (one / "step2").rename(tmp_path / "step2")
    (again / "step2").rename(one / "step2")
    status, _ = run(one, reference, "-o", tmp_path / "out", "--csv")
    assert status == 0
    assert sheets(tmp_path / "out") == [f"compare_result_step2_rank{rank}.csv" for rank in (0, 1)]


def test_are_written_of_all_where_nothing_could_be_compared(tmp_path: Path) -> None:
    one = train(tmp_path / "one", Plan(steps=2, level="L0"))
    other = train(tmp_path / "other", Plan(steps=2, level="L1"))
    status, _ = run(one, other, "-o", tmp_path / "out", "--csv")
    assert (status, len(sheets(tmp_path / "out"))) == (2, 2)


def test_all_steps_without_a_table_is_a_mistake(tmp_path: Path, reference: Path) -> None:
    done = command_line.call("compare", train(tmp_path / "one"), reference, "--all-steps")
    assert (done.returncode, done.stdout) == (2, "")
    assert mentions(done.stderr, "all-steps-without-tables", table_flags="--xlsx, --csv, --parquet")


def test_the_form_of_mindstudio_probe_always_writes_its_sheet(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one"), train(tmp_path / "other")
    file = tmp_path / "compare.json"
    paths = [str(folder / "step0" / "rank" / "dump.json") for folder in (one, other)]
    file.write_text(json.dumps({"npu_path": paths[0], "bench_path": paths[1]}))
    assert main(["-f", "pytorch", "compare", "-i", str(file), "-o", str(tmp_path / "out")]) == 0
    assert len([*(tmp_path / "out").glob("compare_result_*.xlsx")]) == 1
