"""No command says "no difference" or "no problem" of what it has not looked at: half of each input is taken away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.command_line import Completed, call
from support.hand_made import call as forward
from support.hand_made import tensor, write_part

from msprobe.coverage import Coverage, NotRead, together
from msprobe.messages import said

BOM = b"\xef\xbb\xbf"


def dump(folder: Path, steps: int = 3, ranks: int = 2) -> Path:
    """A training whose ranks have values of their own, and nothing wrong in it."""
    for step in range(steps):
        for rank in range(ranks):
            value = 1.0 + step + 0.25 * rank
            data = {
                f"Functional.{name}.0.forward": forward(tensor(4, value=value), out=tensor(4, value=value + number))
                for number, name in enumerate(("linear", "relu", "gelu"))
            }
            write_part(folder / f"step{step}" / f"rank{rank}", data, construct={}, stacks={})
    return folder


def ranks(folder: Path) -> Path:
    return dump(folder, 1, 4)


def said_ranks(folder: Path) -> Path:
    """A dump that says how many ranks the program had."""
    for file in dump(folder).rglob("dump.json"):
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "msprobe": {**record.get("msprobe", {}), "world": 2}}))
    return folder


def tensors(folder: Path) -> Path:
    """A dump of one step with the values of all tensors."""
    part = folder / "step0" / "rank0"
    values = part / "dump_tensor_data"
    values.mkdir(parents=True)
    data = {}
    for number, name in enumerate(("linear", "relu", "gelu", "tanh")):
        described = []
        for end in ("input.0", "output.0"):
            file = f"Functional.{name}.0.forward.{end}.npy"
            np.save(values / file, np.full(4, 1.0 + number, np.float32))
            described.append({**tensor(4, value=1.0 + number), "data_name": file})
        data[f"Functional.{name}.0.forward"] = forward(described[0], out=described[1])
    write_part(part, data, task="tensor", construct={}, stacks={})
    header = json.loads((part / "dump.json").read_text())
    (part / "dump.json").write_text(json.dumps({**header, "dump_data_dir": str(values)}))
    return folder


def gradients(folder: Path) -> Path:
    for rank in range(2):
        place = folder / f"rank{rank}"
        for step in range(2):
            (place / f"step{step}").mkdir(parents=True)
            np.save(place / f"step{step}" / "w.npy", np.ones(8, bool))
            line = 'w,1.0,-1.0,1.0,"[8]"'
            (place / f"grad_summary_{step}.csv").write_bytes(
                BOM + f"param_name,max,min,norm,shape\r\n{line}\r\n".encode()
            )
    return folder


def results(folder: Path) -> Path:
    """Sheets of a comparison, one for each of three ranks."""
    folder.mkdir()
    header = "NPU Name,Max diff,Min diff,Mean diff,L2norm diff"
    for rank in range(3):
        rows = [f"Torch.{name}.0.forward.output.0,0,0,0,0" for name in ("mul", "add")]
        (folder / f"compare_result_rank{rank}_20260101000000.csv").write_text("\n".join([header, *rows, ""]))
    return folder


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    model = torch.nn.Linear(3, 2)
    torch.nn.init.ones_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "opt": optimizer.state_dict()}, folder / "x.pt")
    return folder


def logs(folder: Path) -> Path:
    """A log in which the arguments stand twice, as of a run that was started again."""
    folder.mkdir()
    lines = "--- arguments ---\nlr ........ 0.1\nseed ........ 1\n--- end of arguments ---\n"
    (folder / "run.log").write_text(lines * 2)
    return folder


# ---- what is taken away ----


def a_rank_of_a_step(folder: Path) -> None:
    shutil.rmtree(folder / "step1/rank1")


def the_other_rank(folder: Path) -> None:
    for step in folder.glob("step*"):
        shutil.rmtree(step / "rank1")


def the_last_steps(folder: Path) -> None:
    shutil.rmtree(folder / "step2")
    shutil.rmtree(folder / "step1")


def half_of_a_list(folder: Path) -> None:
    path = folder / "run.log"
    path.write_text(path.read_text().rpartition("seed")[0])


def the_middle_rank(folder: Path) -> None:
    for step in folder.glob("step*"):
        shutil.rmtree(step / "rank2")


def an_interruption(folder: Path) -> None:
    path = folder / "step1/rank1/dump.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "msprobe": {**record.get("msprobe", {}), "complete": False}}))


def half_of_a_record(folder: Path) -> None:
    path = folder / "step1/rank1/dump.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def the_record(folder: Path) -> None:
    (folder / "step1/rank1/dump.json").unlink()


def the_known_format(folder: Path) -> None:
    (folder / "step1/rank1/dump.json").rename(folder / "step1/rank1/dump.msgpack")


def half_of_the_values(folder: Path) -> None:
    for path in sorted((folder / "step0/rank0/dump_tensor_data").iterdir())[::2]:
        path.unlink()


def a_rank_of_gradients(folder: Path) -> None:
    shutil.rmtree(folder / "rank1")


def a_step_of_gradients(folder: Path) -> None:
    (folder / "rank1/grad_summary_1.csv").unlink()
    shutil.rmtree(folder / "rank1/step1")


def a_sheet(folder: Path) -> None:
    (folder / "compare_result_rank1_20260101000000.csv").unlink()


def half_of_a_sheet(folder: Path) -> None:
    path = folder / "compare_result_rank2_20260101000000.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:2]) + "\n")


def the_optimizer(folder: Path) -> None:
    state = torch.load(folder / "x.pt", weights_only=True)
    torch.save({"model": state["model"]}, folder / "x.pt")


# ---- commands ----


def compare(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("compare", less, whole, "-o", out)
    return done, json.loads((out / "verdict.json").read_text())


def check(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("check", less, "-o", out, "--only", "overflow")
    return done, json.loads((out / "check.json").read_text())


def nan_analyze(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("nan_analyze", "-i", less, "--partial", "--json", "-")
    return call("nan_analyze", "-i", less, "-o", out, "--partial"), json.loads(done.stdout)["_propagation"]


def grad_compare(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("grad_compare", less, whole, "-o", out, "--plot", "none")
    return done, json.loads((out / "coverage.json").read_text())


def merge_result(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    out.mkdir()
    (out / "merge.yaml").write_text("api: [Torch]\n")
    done = call("merge_result", "-i", less, "-o", out, "-config", out / "merge.yaml")
    return done, json.loads(next(out.glob("*.json")).read_text())


def config_check(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("config_check", "-c", less / "x.pt", whole / "x.pt", "-o", out / "o.json")
    return done, json.loads((out / "o_summary.json").read_text())


def graph(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    out.mkdir()
    (out / "compare.json").write_text(json.dumps({"npu_path": str(less), "bench_path": str(whole)}))
    done = call("graph", "-i", out / "compare.json", "-o", out / "graphs")
    # The log is where it says what it has done.
    done = Completed(done.args, done.returncode, done.stdout.rpartition("[WARNING] ")[2], done.stderr)
    return done, json.loads(next((out / "graphs").glob("coverage_*.json")).read_text())


def sheet(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("compare", "-tp", less / "step1", "-gp", whole / "step1", "-o", out, "--csv")
    said = Completed(done.args, done.returncode, done.stdout.rpartition("[WARNING] ")[2], done.stderr)
    return said, json.loads(next(out.glob("coverage_*.json")).read_text())


def sheet_of_a_rank(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("compare", "-tp", less / "step1/rank1/dump.json", "-gp", whole / "step1/rank1/dump.json", "-o", out)
    said = Completed(done.args, done.returncode, done.stdout.rpartition("[WARNING] ")[2], done.stderr)
    return said, json.loads(next(out.glob("coverage_*.json")).read_text())


def overflow(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("run_overflow_check", "-api_info", less / "step1/rank1/dump.json", "-d", "cpu", "--json", "-")
    return done, json.loads(done.stdout[done.stdout.index("{") :])


def slime(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    done = call("config_check", "-sc", less / "run.log", whole / "run.log", "-o", out)
    said = Completed(done.args, done.returncode, done.stdout.splitlines()[-1], done.stderr)
    return said, json.loads((out / "coverage.json").read_text())


def summary(less: Path, whole: Path, out: Path) -> tuple[Completed, Any]:
    return call("summary", less), json.loads(call("summary", less, "--json", "-").stdout)


@dataclass(frozen=True)
class Case:
    """``status``: what the command ends with; 0 where its headline says of which part it speaks."""

    command: Callable[[Path, Path, Path], tuple[Completed, Any]]
    make: Callable[[Path], Path]
    take: Callable[[Path], None]
    status: int
    #: Words of the headline that keep it from speaking of all.
    says: str


READ, BOTH, NOT = "what could be read", "that both have", "Not compared: "
CASES = [
    Case(compare, dump, a_rank_of_a_step, 2, BOTH),
    Case(compare, dump, the_other_rank, 2, BOTH),
    Case(compare, dump, the_last_steps, 2, BOTH),
    Case(compare, dump, half_of_a_record, 2, READ),
    Case(compare, dump, the_record, 2, READ),
    Case(compare, dump, the_known_format, 2, READ),
    Case(compare, tensors, half_of_the_values, 2, READ),
    Case(check, dump, a_rank_of_a_step, 2, READ),
    Case(check, dump, half_of_a_record, 2, READ),
    Case(check, dump, the_record, 2, READ),
    Case(check, dump, the_known_format, 2, READ),
    Case(nan_analyze, dump, a_rank_of_a_step, 2, READ),
    Case(nan_analyze, dump, half_of_a_record, 2, READ),
    Case(nan_analyze, dump, the_record, 2, READ),
    Case(grad_compare, gradients, a_rank_of_gradients, 2, NOT),
    Case(grad_compare, gradients, a_step_of_gradients, 2, NOT),
    Case(merge_result, results, a_sheet, 2, "Not merged: "),
    Case(merge_result, results, half_of_a_sheet, 2, "Not merged: "),
    Case(config_check, checkpoint, the_optimizer, 2, NOT),
    Case(sheet, dump, a_rank_of_a_step, 2, NOT),
    Case(sheet, dump, half_of_a_record, 2, NOT),
    Case(sheet_of_a_rank, dump, an_interruption, 2, NOT),
    Case(overflow, dump, an_interruption, 2, ""),
    Case(slime, logs, half_of_a_list, 2, NOT),
    Case(summary, dump, a_rank_of_a_step, 1, ""),
    Case(summary, dump, half_of_a_record, 1, ""),
    Case(summary, dump, the_record, 1, ""),
    Case(summary, ranks, the_middle_rank, 1, ""),
    Case(check, ranks, the_middle_rank, 2, READ),
    Case(compare, ranks, the_middle_rank, 2, "3 of 4 ranks that both have"),
    Case(check, said_ranks, the_other_rank, 2, READ),
    Case(graph, dump, a_rank_of_a_step, 2, NOT),
    Case(graph, dump, the_last_steps, 2, NOT),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command.__name__}-{case.take.__name__}")
def test_half_of_the_input_is_no_all_clear(tmp_path: Path, case: Case) -> None:
    whole, less = case.make(tmp_path / "whole"), case.make(tmp_path / "less")
    case.take(less)
    done, told = case.command(less, whole, tmp_path / "out")
    assert done.returncode == case.status, done.stderr
    covered = told["coverage"]
    assert covered["complete"] is False
    assert covered["not_read"]
    assert all(one["what"] and one["why"] for one in covered["not_read"])
    assert case.says.lower() in "\n".join(done.stdout.splitlines()[:3]).lower()


COMPLETE = [(compare, dump), (compare, tensors), (check, dump), (nan_analyze, dump), (grad_compare, gradients)]
COMPLETE += [(merge_result, results), (config_check, checkpoint), (slime, logs), (summary, dump)]


@pytest.mark.parametrize(("command", "make"), COMPLETE, ids=lambda one: one.__name__)
def test_all_of_the_input_is_complete(tmp_path: Path, command: Any, make: Any) -> None:
    done, told = command(make(tmp_path / "one"), make(tmp_path / "other"), tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert told["coverage"]["complete"] is True
    assert told["coverage"]["not_read"] == []
    assert sum(told["coverage"]["read"].values()) > 0


@pytest.mark.parametrize("take", [a_rank_of_a_step, half_of_a_record, the_record])
def test_a_summary_names_what_is_not_there(tmp_path: Path, take: Callable[[Path], None]) -> None:
    folder = dump(tmp_path / "less")
    take(folder)
    done = call("summary", folder)
    assert "Not read: " in done.stdout
    assert "rank 1" in done.stdout


def test_the_sentence_is_short_and_the_json_is_whole() -> None:
    parts = tuple(NotRead(f"rank {number}", "its file is missing") for number in range(9))
    covered = Coverage({"steps": 2}, parts)
    assert covered.sentence().startswith(f"Not compared: rank 0 ({said('file-of-rank-missing')}); ")
    assert covered.sentence().endswith("and 5 more.")
    assert len(covered.as_json()["not_read"]) == 9
    assert Coverage({"steps": 2}).sentence() == ""


def test_a_status_is_that_of_what_was_found_first() -> None:
    less = Coverage({}, (NotRead("x", "y"),))
    assert [one.status(found) for one in (Coverage(), less) for found in (False, True)] == [0, 1, 2, 1]


def test_several_are_one_and_say_nothing_twice() -> None:
    one = Coverage({"steps": 1}, (NotRead("rank 1", "gone"),))
    assert together([one, one, Coverage({"ranks": 3})]) == Coverage({"steps": 2, "ranks": 3}, one.not_read)
