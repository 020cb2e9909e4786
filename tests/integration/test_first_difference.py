"""``-da``: the first call that differs, over the communication between ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions

from msprobe.cli import main
from msprobe.compare.first_difference import RankCall, communication_times, is_communication

GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1]}


def tensor(high: float) -> dict[str, Any]:
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": high, "Min": high, "Mean": high}
    return {**leaf, "Norm": high, "requires_grad": False}


def step(values: list[float], group: Any = GROUP) -> dict[str, Any]:
    """Two calls, an all-reduce, a call, an all-reduce, a call; ``values`` are their results."""
    names = ["Torch.f.0", "Torch.g.0", "Distributed.all_reduce.0", "Torch.f.1", "Distributed.all_reduce.1", "Torch.g.1"]
    data = {}
    given = 1.0
    for name, value in zip(names, values, strict=True):
        kwargs = {"group": group} if name.startswith("Distributed") else {}
        data[f"{name}.forward"] = {"input_args": [tensor(given)], "input_kwargs": kwargs, "output": [tensor(value)]}
        given = value
    return data


def write(folder: Path, data: dict[str, Any], task: str = "statistics") -> None:
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps({"task": task, "framework": "pytorch", "data": data}))
    stacks = {"0": [list(data), ["File train.py, line 1, in f, \n y = f(x)"]]}
    (folder / "stack.json").write_text(json.dumps(stacks))


GOOD = [1.0] * 6
Analyse = Callable[[list[list[float]]], dict[str, list[str]]]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    """Compare ranks with a good run; the calls named, by rank."""

    def run(ranks: list[list[float]]) -> dict[str, list[str]]:
        for number, values in enumerate(ranks):
            write(tmp_path / "npu" / f"rank{number}", step(values))
            write(tmp_path / "bench" / f"rank{number}", step(GOOD))
        command = ["compare", "-tp", str(tmp_path / "npu"), "-gp", str(tmp_path / "bench"), "-da"]
        assert main([*command, "-o", str(tmp_path / "out")]) == 0
        assert len(list((tmp_path / "out").glob("compare_result_rank*.json"))) == len(ranks)
        found = list((tmp_path / "out").glob("diff_analyze_*.json"))
        if not found:
            return {}
        content = json.loads(found[0].read_text())
        return {rank: [call["op_name"] for call in calls] for rank, calls in content.items()}

    return run


@pytest.mark.parametrize(
    ("ranks", "wanted"),
    [
        ([GOOD, GOOD], {}),
        # Before the first all-reduce on rank 1; rank 0 is off from there on.
        ([[1, 1, 9, 9, 9, 9], [1, 9, 9, 9, 9, 9]], {"rank_1": ["Torch.g.0.forward"]}),
        # Between the two.
        ([[1, 1, 1, 1, 9, 9], [1, 1, 1, 9, 9, 9]], {"rank_1": ["Torch.f.1.forward"]}),
        # After the last, on rank 0.
        ([[1, 1, 1, 1, 1, 9], GOOD], {"rank_0": ["Torch.g.1.forward"]}),
        # The communication itself.
        (
            [[1, 1, 9, 9, 9, 9], [1, 1, 9, 9, 9, 9]],
            {"rank_0": ["Distributed.all_reduce.0.forward"], "rank_1": ["Distributed.all_reduce.0.forward"]},
        ),
        # Both ranks at the same time.
        ([[9] * 6, [1, 9, 9, 9, 9, 9]], {"rank_0": ["Torch.f.0.forward"], "rank_1": ["Torch.g.0.forward"]}),
        # A small difference is none.
        ([[1.2] * 6, GOOD], {}),
    ],
)
def test_the_first_call_that_differs_is_named(
    ranks: list[list[float]], wanted: dict[str, list[str]], analyse: Analyse
) -> None:
    assert analyse(ranks) == wanted


def test_files_have_what_26_2_writes(analyse: Analyse, tmp_path: Path) -> None:
    analyse([[1, 1, 9, 9, 9, 9], [1, 9, 9, 9, 9, 9]])
    (found,) = (tmp_path / "out").glob("diff_analyze_*.json")
    (call,) = json.loads(found.read_text())["rank_1"]
    assert call["data_info"]["output"]["Torch.g.0.forward.output.0"]["Max"] == 9.0
    assert call["data_info"]["input"]["Torch.g.0.forward.input.0"]["Max"] == 1.0
    assert call["stack_info"] == ["File train.py, line 1, in f, \n y = f(x)"]
    (ranks,) = (tmp_path / "out").glob("compare_result_rank1_*.json")
    content = json.loads(ranks.read_text())
    assert content["Torch.f.0.forward"]["is_same"] is True
    assert content["Torch.g.0.forward"]["is_same"] is False
    (given, made) = content["Torch.g.0.forward"]["op_items"]
    assert (given["state"], made["state"]) == ("input", "output")
    assert made["MaxRelativeErr"] == "800.0%"
    assert made["api_origin_name"] == "Torch.g.0.forward"


def test_two_files_are_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "npu" / "rank0", step([1, 9, 9, 9, 9, 9]), "tensor")
    write(tmp_path / "bench" / "rank0", step(GOOD), "tensor")
    paths = [str(tmp_path / side / "rank0" / "dump.json") for side in ("npu", "bench")]
    assert main(["compare", "-tp", paths[0], "-gp", paths[1], "-da", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "first difference: rank0, Torch.g.0.forward" in said
    # Its rule is not that of the verdict, which may name a call before.
    assert mentions(said, "what-first-difference-is", candidate=paths[0], reference=paths[1])


def test_memory_that_is_not_written_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, value in (("npu", 9.0), ("bench", 1.0)):
        call = {"input_args": [], "input_kwargs": {}, "output": [tensor(value)]}
        write(tmp_path / side, {"Torch.empty.0.forward": call})
    words = ["compare", "-tp", str(tmp_path / "npu" / "dump.json"), "-gp", str(tmp_path / "bench" / "dump.json")]
    assert main([*words, "-da", "-o", str(tmp_path / "out")]) == 0
    assert mentions(capsys.readouterr().out, "no-call-differs-by-half", where="")


def calls(*names: str) -> list[RankCall]:
    return [RankCall(name, False, is_communication(name)) for name in names]


def test_messages_between_two_ranks_carry_the_time() -> None:
    """Rank 0 sends to 1, which sends to 2; what rank 2 does then comes after both."""
    names = {
        "rank0": calls("Torch.f.0.forward", "Distributed.send.0.forward", "Torch.f.1.forward"),
        "rank1": calls("Distributed.recv.0.forward", "Distributed.send.0.forward"),
        "rank2": calls("Torch.f.0.forward", "Distributed.recv.0.forward", "Torch.f.1.forward"),
    }
    speaks = {
        "rank0": {"Distributed.send.0.forward": ("send", frozenset(("rank0", "rank1")))},
        "rank1": {
            "Distributed.recv.0.forward": ("recv", frozenset(("rank0", "rank1"))),
            "Distributed.send.0.forward": ("send", frozenset(("rank1", "rank2"))),
        },
        "rank2": {"Distributed.recv.0.forward": ("recv", frozenset(("rank1", "rank2")))},
    }
    assert communication_times(names, speaks) == {"rank0": [0, 0, 1], "rank1": [0, 1], "rank2": [0, 0, 2]}


def test_a_communication_that_nobody_answers_does_not_stop_the_clock() -> None:
    names = {"rank0": calls("Distributed.send.0.forward", "Torch.f.0.forward"), "rank1": calls("Torch.f.0.forward")}
    speaks = {"rank0": {"Distributed.send.0.forward": ("send", frozenset(("rank0", "rank1")))}, "rank1": {}}
    assert communication_times(names, speaks) == {"rank0": [0, 1], "rank1": [0]}


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter_tensor", "all_to_all_single", "isend", "broadcast"])
def test_names_of_communications(name: str) -> None:
    assert is_communication(f"Distributed.{name}.0.forward")
    assert not is_communication(f"Torch.{name}.0.forward")


def test_groups_that_no_argument_names_are_read_from_the_record(tmp_path: Path) -> None:
    """Ranks 0 and 1 reduce among themselves twice, so rank 2 is not ahead of what happens after that."""
    for side in ("npu", "bench"):
        for rank in range(3):
            values = [1.0] * 6
            if side == "npu" and rank == 0:
                values[3] = 9.0
            if side == "npu" and rank == 2:
                values = [1.0, 9.0, 1.0, 1.0, 1.0, 1.0]
            data = step(values, None)
            for name, record in data.items():
                record["input_kwargs"] = {}
                if name.startswith("Distributed"):
                    ranks = [0, 1] if rank < 2 else [2]
                    record["process_group"] = {"type": "torch.ProcessGroup", "group_ranks": ranks}
            write(tmp_path / side / f"rank{rank}", data)
    words = ["compare", "-tp", str(tmp_path / "npu"), "-gp", str(tmp_path / "bench"), "-da"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    (found,) = (tmp_path / "out").glob("diff_analyze_*.json")
    assert list(json.loads(found.read_text())) == ["rank_2"]
