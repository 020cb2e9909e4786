"""The first bad value over all ranks, searched in a dump of which only what matters is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.hand_made import write_part
from unit.diagnose.overflow_ranks import CASES, Ranks, c01, c03, c05, c08, c11, leaf

from msprobe.diagnose.check.bad_values import GrowthLimits
from msprobe.diagnose.check.first_overflow import Asked, find_first_overflow
from msprobe.errors import InvalidInputError, PathError


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_the_first_bad_call_over_ranks(tmp_path: Path, case: Any, expected: list[tuple[int, str]]) -> None:
    answer = find_first_overflow(case().write(tmp_path))
    assert [(node.rank, node.name) for node in answer.nodes] == expected


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_the_answer_depends_on_no_order_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Any, expected: list[tuple[int, str]]
) -> None:
    step = case().write(tmp_path)
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(sorted(listed(self), reverse=True)))
    assert [(node.rank, node.name) for node in find_first_overflow(step).nodes] == expected


def test_an_overflow_in_the_reduction_is_of_kind_communication(tmp_path: Path) -> None:
    (node,) = find_first_overflow(c03().write(tmp_path)).nodes
    assert (node.name, node.how, node.value) == ("Distributed.all_reduce.1.forward", "communication", "inf")


def test_what_ranks_gather_as_one_tensor_is_followed(tmp_path: Path) -> None:
    ranks = Ranks().op("mul", "1", "1", 0, 1, 3).op("log", "-1", "n", 2)
    for rank in range(4):
        given, made = leaf("n" if rank == 2 else "1"), leaf("n")
        ranks.call("all_gather_single", rank, [leaf("0"), given], [made, given])
    (node,) = find_first_overflow(ranks.op("add", "n", "n").write(tmp_path)).nodes
    assert (node.rank, node.name) == (2, "Torch.log.0.forward")


def test_layers_count_the_calls_of_other_ranks_that_are_waited_for(tmp_path: Path) -> None:
    ranks = Ranks().op("mul", "1", "1", 0).op("mul", "1", "1", 0).reduce_all(("1", "1")).op("log", "1", "n", 3)
    (node,) = find_first_overflow(ranks.write(tmp_path)).nodes
    assert node.layer == 3  # two calls of rank 0, the collective, and itself


def test_origins_that_do_not_explain_each_other_are_all_told_in_order(tmp_path: Path) -> None:
    nodes = find_first_overflow(c08().write(tmp_path)).nodes
    assert [(node.layer, node.rank) for node in nodes] == [(0, 0), (0, 2)]


def test_how_it_spread_is_told_for_each_rank(tmp_path: Path) -> None:
    (node,) = find_first_overflow(c01().write(tmp_path)).nodes
    told = [(one.rank, one.through, one.first_bad) for one in node.arrivals]
    assert told == [(rank, "Distributed.all_reduce.0.forward", "Torch.add.0.forward") for rank in (0, 1, 3)]


def test_the_modules_around_the_call_come_outermost_first(tmp_path: Path) -> None:
    data = {"Torch.log.0.forward": {"input_args": [leaf("-1")], "input_kwargs": {}, "output": [leaf("n")]}}
    inner, outer = "Module.i.Inner.forward.0", "Module.Model.forward.0"
    construct = {"Torch.log.0.forward": inner, inner: [outer, 0], outer: None}
    part = write_part(tmp_path / "step0" / "rank", data, construct=construct)
    part.close()
    (node,) = find_first_overflow(tmp_path / "step0").nodes
    assert node.construct == (outer, inner, "Torch.log.0.forward")


def test_steps_are_searched_in_order_up_to_the_first_bad_one(tmp_path: Path) -> None:
    c11().write(tmp_path)
    for step in (1, 2):
        c01().write(tmp_path / "later")
        (tmp_path / "later" / "step0").rename(tmp_path / f"step{step}")
    assert [node.step for node in find_first_overflow(tmp_path).nodes] == [1]
    assert [node.step for node in find_first_overflow(tmp_path, Asked(all_steps=True)).nodes] == [1, 2]


def test_numbers_beyond_a_threshold_count_where_they_are_asked_for(tmp_path: Path) -> None:
    step = Ranks().op("mul", "1", "1").op("exp", "1", "9e5", 1).op("add", "9e5", "9e5", 1).write(tmp_path)
    assert not find_first_overflow(step).nodes
    (node,) = find_first_overflow(step, Asked(GrowthLimits(largest=1e5))).nodes
    assert (node.rank, node.name, node.value) == (1, "Torch.exp.0.forward", "large")
    (node,) = find_first_overflow(step, Asked(GrowthLimits(growth=1000))).nodes
    assert (node.rank, node.name) == (1, "Torch.exp.0.forward")


def test_a_mask_counts_only_if_every_infinity_does(tmp_path: Path) -> None:
    def call(inputs: list[Any], output: Any) -> dict[str, Any]:
        return {"input_args": inputs, "input_kwargs": {}, "output": [output]}

    data = {
        "Tensor.masked_fill.0.forward": call([leaf("1"), {"type": "float", "value": -1e30}], leaf("-i")),
        "Torch.softmax.0.forward": call([leaf("-i")], leaf("0.25")),
    }
    write_part(tmp_path / "step0" / "rank", data).close()
    assert not find_first_overflow(tmp_path).nodes
    (node,) = find_first_overflow(tmp_path, Asked(GrowthLimits(every_infinity=True))).nodes
    assert (node.name, node.value) == ("Tensor.masked_fill.0.forward", "-inf")


def test_a_receive_from_anybody_takes_the_message_to_its_rank(tmp_path: Path) -> None:
    ranks = Ranks().op("log", "1", "n", 0)
    ranks.call("send", 0, [leaf("n")], [leaf("n")], dst=1).call("recv", 1, [leaf("0")], [leaf("n")])
    answer = find_first_overflow(ranks.write(tmp_path))
    assert [(node.rank, node.name) for node in answer.nodes] == [(0, "Torch.log.0.forward")]
    assert answer.unmatched == ()


def test_a_rank_that_groups_name_and_the_dump_lacks_is_told(tmp_path: Path) -> None:
    step = c01().write(tmp_path)
    (step / "rank3" / "dump.json").unlink()
    (step / "rank3").rmdir()
    answer = find_first_overflow(step)
    assert [(node.rank, node.name) for node in answer.nodes] == [(2, "Torch.div.0.forward")]
    assert any(mentions(note, "ranks-not-in-dump", ranks="3") for note in answer.notes)


def test_tensors_that_do_not_fit_and_calls_without_answer_are_told(tmp_path: Path) -> None:
    ranks = Ranks().reduce_all(("1", "1")).reduce_all(("1", "1"))
    ranks.data[2]["Distributed.all_reduce.0.forward"]["input_args"][0]["shape"] = [8]
    del ranks.data[3]["Distributed.all_reduce.1.forward"]
    answer = find_first_overflow(ranks.write(tmp_path))
    assert "torch.float32 [8] (rank 2)" in str(answer.mismatch)
    assert {rank for rank, _ in answer.unmatched} == {0, 1, 2}


def test_a_rank_without_its_file_is_an_error_and_can_be_left_out(tmp_path: Path) -> None:
    step = c01().write(tmp_path)
    (step / "rank0" / "dump.json").rename(step / "rank0" / "stack.json")
    with pytest.raises(PathError, match=r"rank0/dump\.json"):
        find_first_overflow(step)
    answer = find_first_overflow(step, Asked(partial=True))
    assert [node.rank for node in answer.nodes] == [2]
    assert "rank 0" in answer.unread[0]


def test_a_file_that_is_cut_off_is_read_to_its_last_whole_record_where_asked_for(tmp_path: Path) -> None:
    data = {
        f"Torch.{word}.0.forward": {"input_args": [leaf("1")], "input_kwargs": {}, "output": [leaf(out)]}
        for word, out in (("mul", "1"), ("log", "n"), ("add", "n"))
    }
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    text = json.dumps({"task": "statistics", "level": "L1", "framework": "pytorch", "data": data}, indent=1)
    (folder / "dump.json").write_text(text[: text.index('"Torch.add') + 200])
    with pytest.raises(InvalidInputError, match=r"dump\.json.* line \d+"):
        find_first_overflow(tmp_path)
    answer = find_first_overflow(tmp_path, Asked(partial=True))
    assert [node.name for node in answer.nodes] == ["Torch.log.0.forward"]
    assert answer.records == 2
    assert any("interrupted" in note for note in answer.notes)


def test_digests_alone_are_refused(tmp_path: Path) -> None:
    ranks = c01()
    for data in ranks.data.values():
        for record in data.values():
            for one in (record["input_args"][0], record["output"][0]):
                for key in ("Max", "Min", "Mean", "Norm"):
                    one.pop(key, None)
                one["md5"] = "d41d8cd9"
    with pytest.raises(InvalidInputError, match="statistics"):
        find_first_overflow(ranks.write(tmp_path))


def test_only_what_matters_is_read_and_the_answer_stays_the_same(tmp_path: Path) -> None:
    ranks = Ranks()
    for _ in range(300):
        ranks.op("mul", "1", "1")
    ranks.op("log", "1", "n", 1)
    for _ in range(2500):
        ranks.op("mul", "n", "n", 1)
    ranks.reduce_all({0: ("1", "n"), 1: ("n", "n"), 2: ("1", "n"), 3: ("1", "n")}).op("add", "n", "n")
    (node,) = find_first_overflow(ranks.write(tmp_path)).nodes
    assert (node.rank, node.name, node.layer, node.finding.order) == (1, "Torch.log.0.forward", 300, 300)
    assert len(node.arrivals) == 3
    assert not node.finding.harmless


def test_messages_carry_bad_values_from_stage_to_stage(tmp_path: Path) -> None:
    (node,) = find_first_overflow(c05().write(tmp_path)).nodes
    assert [(one.rank, one.through) for one in node.arrivals] == [(1, "Distributed.recv.0.forward")]


@pytest.mark.parametrize("collective", [False, True])
def test_a_gradient_that_another_rank_made_bad_is_no_origin_though_its_reduction_is_not_recorded(
    tmp_path: Path, collective: bool
) -> None:
    ranks = Ranks().op("log", "1", "1", 0, 2, 3).op("sqrt", "-1", "n", 1)
    for rank, value in ((0, "1"), (1, "n"), (2, "1"), (3, "1")):
        record = {"input": [leaf(value)], "output": [leaf(value)]}
        ranks.data[rank][f"Torch.{'sqrt' if rank == 1 else 'log'}.0.backward"] = record
    if collective:  # the norm of the gradients
        ranks.reduce_all(("n", "n"))
    for data in ranks.data.values():
        data["Optimizer.SGD.0.forward"] = {"input_args": [leaf("n")], "input_kwargs": {}, "output": [leaf("n")]}
    (node,) = find_first_overflow(ranks.write(tmp_path)).nodes
    first = "Distributed.all_reduce.0.forward" if collective else "Optimizer.SGD.0.forward"
    assert (node.rank, node.name) == (1, "Torch.sqrt.0.forward")
    assert [(one.rank, one.through) for one in node.arrivals] == [(rank, first) for rank in (0, 2, 3)]


def test_a_bad_gradient_that_no_rank_made_is_told(tmp_path: Path) -> None:
    ranks = Ranks().op("mul", "1", "1")
    ranks.data[2]["Optimizer.SGD.0.forward"] = {"input_args": [leaf("n")], "input_kwargs": {}, "output": [leaf("n")]}
    ranks.op("log", "1", "n", 1)  # without a gradient: it reaches no other rank
    nodes = find_first_overflow(ranks.write(tmp_path)).nodes
    assert sorted((node.rank, node.name) for node in nodes) == [
        (1, "Torch.log.0.forward"),
        (2, "Optimizer.SGD.0.forward"),
    ]
