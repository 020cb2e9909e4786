"""Commands that collect, convert, show or reproduce say what of their input they did not read, with status 2."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from process.test_coverage import (
    a_rank_of_a_step,
    an_interruption,
    dump,
    half_of_a_record,
    said_ranks,
    tensors,
    the_known_format,
    the_other_rank,
    the_record,
)
from support.acl_files import EXAMPLE, NAME
from support.command_line import Completed, call
from support.graph_dumps import BUILT, TRAINING, make_dump
from support.prechecked import InThisProcess
from unit.monitor.runs import begun, gradients, write_run

from msprobe.monitor.sinks.csv import CsvSink
from msprobe.precheck import pool, sample_check


def monitored(folder: Path) -> Path:
    """Two ranks of a monitored training, four steps each, in csv files."""
    for rank in range(2):
        write_run(begun(folder, rank, world=2, steps_per_file=4), [gradients(step) for step in range(4)], CsvSink())
    return folder


def kernels(folder: Path) -> Path:
    """Three dump files of kernels."""
    folder.mkdir()
    for number in range(3):
        (folder / NAME.replace("12", str(12 + number))).write_bytes(EXAMPLE)
    return folder


def graph_kernels(folder: Path) -> Path:
    folder.mkdir()
    shutil.copytree(BUILT, folder / "graphs")
    make_dump(folder)
    return folder


def tensor_ranks(folder: Path) -> Path:
    """A step of two ranks with the values of all tensors."""
    for rank in range(2):
        made = tensors(folder / f"of_rank{rank}") / "step0/rank0"
        shutil.move(made, folder / f"step1/rank{rank}")
        shutil.rmtree(folder / f"of_rank{rank}")
    return folder


def nothing(folder: Path) -> Path:
    folder.mkdir()
    return folder


# ---- what is taken away ----


def a_monitored_rank(folder: Path) -> None:
    shutil.rmtree(next(folder.glob("*-rank1-*")))


def half_of_its_lines(folder: Path) -> None:
    (path,) = next(folder.glob("*-rank1-*")).glob("grad_reduced_*.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: len(lines) // 2]) + "\n")


def what_its_lines_say(folder: Path) -> None:
    (path,) = next(folder.glob("*-rank1-*")).glob("grad_reduced_*.csv")
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *(f"{line},x,y" if at % 2 else line for at, line in enumerate(lines))]) + "\n")


def its_csv_file(folder: Path) -> None:
    (path,) = next(folder.glob("*-rank1-*")).glob("grad_reduced_*.csv")
    path.unlink()


def half_of_a_kernel(folder: Path) -> None:
    path = sorted(folder.iterdir())[1]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def the_other_graphs(folder: Path) -> None:
    for path in (folder / "graphs").iterdir():
        if path.name != TRAINING.name:
            path.unlink()


def half_of_a_graph(folder: Path) -> None:
    path = folder / "graphs" / TRAINING.name
    text = path.read_text()
    path.write_text(text[: len(text) // 2])


def the_name_of_a_file(folder: Path) -> None:
    """The record of an argument that was too large to be saved."""
    path = folder / "step0/rank0/dump.json"
    content = json.loads(path.read_text())
    del content["data"]["Functional.gelu.0.forward"]["input_args"][0]["data_name"]
    path.write_text(json.dumps(content))


def nothing_at_all(folder: Path) -> None:
    """What is asked for was never there."""


# ---- commands ----


def collect(less: Path, out: Path) -> Completed:
    one = out / "one"
    one.mkdir(parents=True)
    for step in sorted(less.iterdir()):
        shutil.copytree(step, one / step.name)
    return call("collect", one, "-o", out / "all")


def to_db(less: Path, out: Path) -> Completed:
    return call("monitor", "to-db", "--data", less, "--db", out)


def data2db(less: Path, out: Path) -> Completed:
    return call("data2db", "--format", "dump", "--data", less, "--db", out)


def to_tensorboard(less: Path, out: Path) -> Completed:
    return call("monitor", "to-tensorboard", less, "-o", out)


def code_mapping(less: Path, out: Path) -> Completed:
    return call(
        "-f", "mindspore", "code_mapping", "--ir", less / "graphs", "--dump_data", less / "dump", "--output", out
    )


def parse(less: Path, out: Path) -> Completed:
    return call("parse", "-d", less, "-t", "npy", "-o", out)


def view(less: Path, out: Path) -> Completed:
    out.mkdir()
    done = call("view", less, "--html", out / "page.html")
    assert '"complete":false' in (out / "page.html").read_text().replace(" ", "") or done.returncode == 0
    return done


def reproduce(less: Path, out: Path) -> Completed:
    out.mkdir()
    finding = {"entry": "Functional.gelu.0.forward", "step": 0, "rank": 0, "kind": "computation", "evidence": {}}
    (out / "verdict.json").write_text(json.dumps({"candidate": str(less), "findings": [finding]}))
    return call("reproduce", out / "verdict.json", "-o", out)


def op_check(less: Path, out: Path) -> Completed:
    return call("op_check", "--ops", "sgn,bitwise_and", "--samples", 1, "-o", out, "--candidate", "cpu")


def first_difference(less: Path, out: Path) -> Completed:
    whole = dump(out / "whole")
    return call("compare", "-tp", less / "step1", "-gp", whole / "step1", "-o", out / "o", "-da")


def first_difference_of_a_rank(less: Path, out: Path) -> Completed:
    whole = dump(out / "whole")
    files = (folder / "step1/rank1/dump.json" for folder in (less, whole))
    return call("compare", "-tp", next(files), "-gp", next(files), "-o", out / "o", "-da")


def consistent(less: Path, out: Path) -> Completed:
    whole = tensor_ranks(out / "whole")
    words = ("--consistent_check", "--backend", "fsdp")
    return call("compare", "-tp", less / "step1", "-gp", whole / "step1", "-o", out / "o", *words)


@dataclass(frozen=True)
class Case:
    """``status``: what the command ends with; ``names``: a word of what was not read."""

    command: Callable[[Path, Path], Completed]
    make: Callable[[Path], Path]
    take: Callable[[Path], None]
    names: str
    status: int = 2


CASES = [
    Case(collect, dump, a_rank_of_a_step, "step 1: rank 1"),
    Case(collect, dump, the_record, "step 1: rank 1"),
    Case(to_db, monitored, a_monitored_rank, "rank 1"),
    Case(to_db, monitored, half_of_its_lines, "rank 1: steps 2 to 3 of grad_reduced"),
    Case(to_db, monitored, what_its_lines_say, "lines of grad_reduced"),
    Case(to_db, monitored, its_csv_file, "rank 1: grad_reduced"),
    Case(to_tensorboard, monitored, a_monitored_rank, "rank 1"),
    Case(to_tensorboard, monitored, half_of_its_lines, "rank 1: steps 2 to 3 of grad_reduced"),
    Case(to_db, dump, a_rank_of_a_step, "step 1 (rank 1 is missing"),
    Case(data2db, dump, half_of_a_record, "step 1, rank 1"),
    Case(data2db, dump, the_record, "step 1, rank 1"),
    Case(data2db, dump, an_interruption, "step 1, rank 1"),
    Case(data2db, said_ranks, the_other_rank, "rank 1"),
    Case(code_mapping, graph_kernels, the_other_graphs, "kernels"),
    Case(code_mapping, graph_kernels, half_of_a_graph, TRAINING.name),
    # As 26.2 has it, what cannot be converted is a failure.
    Case(parse, kernels, half_of_a_kernel, "Add.trans_Add_1"),
    Case(view, dump, a_rank_of_a_step, "step 1"),
    Case(view, dump, half_of_a_record, "step 1, rank 1"),
    Case(view, dump, the_known_format, "step 1"),
    Case(view, said_ranks, the_other_rank, "rank 1"),
    Case(reproduce, tensors, the_name_of_a_file, "argument 0"),
    Case(op_check, nothing, nothing_at_all, "bitwise_and_float32"),
    Case(first_difference, dump, a_rank_of_a_step, "rank1"),
    Case(first_difference, dump, half_of_a_record, "rank1"),
    Case(first_difference_of_a_rank, dump, an_interruption, "step1/rank1"),
    Case(consistent, tensor_ranks, a_rank_of_a_step, "rank1"),
    Case(consistent, tensor_ranks, half_of_a_record, "rank1"),
    Case(consistent, tensor_ranks, an_interruption, "step1/rank1"),
]


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pool, sample_check):
        monkeypatch.setattr(module, "Worker", InThisProcess)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command.__name__}-{case.take.__name__}")
def test_what_was_not_read_is_named(tmp_path: Path, case: Case) -> None:
    less = case.make(tmp_path / "less")
    case.take(less)
    done = case.command(less, tmp_path / "out")
    assert done.returncode == case.status, done.stdout + done.stderr
    (said,) = [line for line in done.stdout.splitlines() if "Not " in line or "not checked" in line][:1]
    assert case.names in said, said
    for path in tmp_path.glob("out/**/*coverage_*.json"):
        covered = json.loads(path.read_text())["coverage"]
        assert covered["complete"] is False
        assert any(case.names in one["what"] for one in covered["not_read"])


WHOLE = [
    *[(collect, dump), (to_db, monitored), (to_tensorboard, monitored), (to_db, dump), (data2db, said_ranks)],
    *[(code_mapping, graph_kernels), (parse, kernels), (view, dump), (reproduce, tensors)],
    *[(first_difference, dump), (first_difference_of_a_rank, dump), (consistent, tensor_ranks)],
]


@pytest.mark.parametrize(("command", "make"), WHOLE, ids=lambda one: one.__name__)
def test_of_what_is_whole_nothing_is_missed(
    tmp_path: Path, command: Callable[[Path, Path], Completed], make: Callable[[Path], Path]
) -> None:
    done = command(make(tmp_path / "whole"), tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Not " not in done.stdout


@pytest.mark.parametrize(("step", "rank"), [(0, 1), (4, 0)])
def test_a_call_is_not_looked_for_in_a_part_that_the_finding_is_not_of(tmp_path: Path, step: int, rank: int) -> None:
    """Its step or rank is gone: what is there has calls of the same names, and other values."""
    less = dump(tmp_path / "less", 1, 1)
    finding = {"entry": "Functional.gelu.0.forward", "step": step, "rank": rank, "kind": "computation", "evidence": {}}
    (tmp_path / "verdict.json").write_text(json.dumps({"candidate": str(less), "findings": [finding]}))
    done = call("reproduce", tmp_path / "verdict.json", "-o", tmp_path / "none")
    assert done.returncode == 2
    assert f"step {step}, rank {rank}" in done.stderr
    assert not list(tmp_path.glob("none/*.py"))
