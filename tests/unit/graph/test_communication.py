"""Which calls of other ranks a communication call answers to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command_line import call
from support.graph_models import compare_file, nodes_of
from support.growth import MOST_EXPONENT, calls_in, exponent_of, most_bytes_in
from support.hand_made import tensor, write_part

from msprobe.compare.rank_runs import MOST_LISTED, in_runs
from msprobe.graph.communication import CommunicationCall, exchanges_of, partners
from msprobe.graph.graph_files import read_graph_file

_GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "g"}


def number(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}


def record(*arguments: Any, **keywords: Any) -> dict[str, Any]:
    more = {"process_group": keywords.pop("process_group")} if "process_group" in keywords else {}
    return {"input_args": [tensor(2), *arguments], "input_kwargs": keywords, "output": [tensor(2)], **more}


def found(*ranks: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], int]:
    """The partners by rank and name, and how many transfers have none."""
    calls = {
        rank: [
            CommunicationCall(node, name, exchanges_of(name, one)) for node, (name, one) in enumerate(records.items())
        ]
        for rank, records in enumerate(ranks)
    }
    result, alone = partners(calls, lambda rank, node: "0")
    named = {
        rank: {calls[rank][node].name: content for node, content in nodes.items()} for rank, nodes in result.items()
    }
    return named, alone


def link(kind: str, rank: int, name: str) -> dict[str, Any]:
    return {"communications_type": kind, "nodes_info": {str(rank): ["0", name]}}


def test_a_collective_without_a_group_belongs_to_the_default_group() -> None:
    name = "Distributed.all_reduce.0.forward"
    result, _ = found({name: record()}, {name: record()})
    assert result == {0: {name: link("send_receive", 1, name)}, 1: {name: link("send_receive", 0, name)}}


def test_the_default_group_that_the_recorder_names_is_the_group_that_is_given() -> None:
    one, other = "Distributed.all_reduce.0.forward", "Distributed.all_reduce.1.forward"
    sides = {one: record(process_group=_GROUP), other: record(group=_GROUP)}
    result, _ = found(sides, sides)
    assert result[0][other] == link("send_receive", 1, other)


def test_a_broadcast_is_sent_by_its_source_however_it_is_given() -> None:
    one, other = "Distributed.broadcast.0.forward", "Distributed.broadcast.1.forward"
    sides = {one: record(number(0)), other: record(src=number(1))}
    result, _ = found(sides, sides)
    assert [result[rank][one]["communications_type"] for rank in (0, 1)] == ["send", "receive"]
    assert [result[rank][other]["communications_type"] for rank in (0, 1)] == ["receive", "send"]


def test_sends_and_receives_answer_to_each_other_in_order_waiting_or_not() -> None:
    result, alone = found(
        {"Distributed.send.0.forward": record(number(1)), "Distributed.isend.0.forward": record(dst=number(1))},
        {"Distributed.irecv.0.forward": record(src=number(0)), "Distributed.recv.0.forward": record(number(0))},
    )
    assert result[0]["Distributed.send.0.forward"] == link("send", 1, "Distributed.irecv.0.forward")
    assert result[1]["Distributed.recv.0.forward"] == link("receive", 0, "Distributed.isend.0.forward")
    assert alone == 0


def test_a_receive_from_anyone_has_the_partner_that_the_recorder_noted() -> None:
    receive = record() | {"source_rank": number(0)}
    result, _ = found({"Distributed.send.0.forward": record(number(1))}, {"Distributed.recv.0.forward": receive})
    assert result[1]["Distributed.recv.0.forward"] == link("receive", 0, "Distributed.send.0.forward")


def test_each_transfer_of_a_batch_has_its_partner() -> None:
    def batch(peer: int) -> dict[str, Any]:
        listed = [{"op": op, "peer": peer, "group_id": "g", "tensor": tensor(2)} for op in ("isend", "irecv")]
        return {"input_args": [listed], "input_kwargs": {}, "output": []}

    name = "Distributed.batch_isend_irecv.0.forward"
    result, _ = found({name: batch(1)}, {name: batch(0)})
    assert result[0][name] == [link("send", 1, name), link("receive", 1, name)]


def test_a_transfer_without_other_end_is_counted() -> None:
    assert found({"Distributed.send.0.forward": record(number(1))}, {}) == ({}, 1)


def test_partners_stand_in_the_files_of_both_ranks_with_their_index(tmp_path: Path) -> None:
    name = "Distributed.all_reduce.0.forward"
    for side, values in (("a", (1.0, 2.0)), ("b", (1.0, 1.0))):
        for rank, value in enumerate(values):
            data = {name: record() | {"output": [tensor(2, value=value)]}}
            write_part(tmp_path / side / f"rank{rank}", data, construct={name: None}, stacks={name: ["File a"]})
    file = compare_file(tmp_path, tmp_path / "a", tmp_path / "b")
    assert call("-f", "pytorch", "graph", "-i", file, "-o", tmp_path / "out").returncode == 0
    first, second = (nodes_of(one, "NPU")[name] for one in sorted((tmp_path / "out").iterdir()))
    assert first["matched_distributed"]["nodes_info"] == {"1": ["1.0", name]}
    assert second["matched_distributed"]["nodes_info"] == {"0": ["0", name]}


def test_a_graph_of_mindspore_cells_is_built_and_compared(tmp_path: Path) -> None:
    for side, value in (("a", 2.0), ("b", 1.0)):
        cell = "Cell.net.Net.forward.0"
        data = {
            "Mint.add.0.forward": record() | {"output": [tensor(2, dtype="Float32", value=value)]},
            cell: record() | {"output": [tensor(2, dtype="Float32", value=value)]},
        }
        construct = {"Mint.add.0.forward": cell, cell: None}
        write_part(tmp_path / side / "rank0", data, framework="mindspore", construct=construct)
    file = compare_file(tmp_path, tmp_path / "a", tmp_path / "b")
    done = call("-f", "mindspore", "graph", "-i", file, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "out").iterdir()
    nodes = json.loads(result.read_text())["NPU"]["node"]
    assert nodes["Mint.add.0.forward"]["node_type"] == 1
    assert nodes["Mint.add.0.forward"]["upnode"] == "Cell.net.Net.forward.0"
    assert nodes["Mint.add.0.forward"]["data"]["precision_index"] == 0.999999


def test_other_frameworks_need_a_layer_mapping(tmp_path: Path) -> None:
    for side, framework, kind in (("a", "mindspore", "Cell"), ("b", "pytorch", "Module")):
        name = f"{kind}.net.Net.forward.0"
        construct = {name: None, "Functional.relu.0.forward": name}
        data = {"Functional.relu.0.forward": record(), name: record()}
        write_part(tmp_path / side / "rank0", data, framework=framework, construct=construct)
    words = ["graph_visualize", "-tp", tmp_path / "a", "-gp", tmp_path / "b", "-o", tmp_path / "out"]
    done = call(*words)
    assert done.returncode == 2
    assert "different frameworks need --layer_mapping" in done.stderr
    assert call(*words, "-lm").returncode == 0


_COLLECTIVE = "Distributed.all_reduce.0.forward"


def of_one_group(ranks: int, rated: Any = lambda rank, node: "0") -> dict[int, Any]:
    """What files hold of a collective over so many ranks, by rank."""
    group = {"type": "torch.ProcessGroup", "group_ranks": list(range(ranks)), "group_id": "g"}
    exchanges = exchanges_of(_COLLECTIVE, record(group=group))
    result, _ = partners({rank: [CommunicationCall(0, _COLLECTIVE, exchanges)] for rank in range(ranks)}, rated)
    return {rank: by_node[0] for rank, by_node in result.items()}


def test_a_small_group_lists_all_its_partners_and_nothing_else() -> None:
    for rank, one in of_one_group(MOST_LISTED + 1).items():
        others = [str(other) for other in range(MOST_LISTED + 1) if other != rank]
        assert one == {
            "communications_type": "send_receive",
            "nodes_info": {other: ["0", _COLLECTIVE] for other in others},
        }


def test_a_large_group_lists_some_partners_and_names_all_at_once() -> None:
    for rank, one in of_one_group(100).items():
        assert len(one["nodes_info"]) == MOST_LISTED
        assert str(rank) not in one["nodes_info"]
        assert one["all_nodes"] == {_COLLECTIVE: "0-99"}


def test_of_a_large_group_the_partner_that_is_unlike_the_others_is_listed() -> None:
    found = of_one_group(100, lambda rank, node: "1" if rank == 77 else "0")
    assert all(one["nodes_info"]["77"] == ["1", _COLLECTIVE] for rank, one in found.items() if rank != 77)


@pytest.mark.parametrize("cost", ["bytes", "memory", "calls"])
def test_partners_grow_with_the_ranks_and_no_faster(cost: str) -> None:
    def made(ranks: int) -> dict[int, Any]:
        return of_one_group(ranks)

    costs = {
        "bytes": lambda ranks: len(json.dumps(made(ranks))),
        "memory": lambda ranks: most_bytes_in(lambda: made(ranks)),
        "calls": lambda ranks: calls_in(lambda: made(ranks)),
    }
    assert exponent_of(costs[cost], 64, 512) <= MOST_EXPONENT


def _ranks_of(text: str) -> list[int]:
    found: list[int] = []
    for word in text.split(", "):
        ends, _, step = word.partition("/")
        first, _, last = ends.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranks_in_runs_are_the_same_ranks(ranks: set[int]) -> None:
    assert _ranks_of(in_runs(sorted(ranks, reverse=True))) == sorted(ranks)


@pytest.mark.parametrize("form", ["vis", "db"])
def test_a_large_group_in_a_file_reads_back(tmp_path: Path, form: str) -> None:
    count = MOST_LISTED + 3
    group = {"type": "torch.ProcessGroup", "group_ranks": list(range(count)), "group_id": "g"}
    for rank in range(count):
        write_part(tmp_path / "a" / f"rank{rank}", {_COLLECTIVE: record(group=group)}, construct={_COLLECTIVE: None})
    words = ["graph_visualize", "-tp", tmp_path / "a"]
    if form == "vis":
        (tmp_path / "one.json").write_text(json.dumps({"npu_path": str(tmp_path / "a")}))
        words = ["-f", "pytorch", "graph", "-i", tmp_path / "one.json"]
    assert call(*words, "-o", tmp_path / "out").returncode == 0
    graphs = [graph for file in (tmp_path / "out").iterdir() for graph in read_graph_file(file).graphs]
    assert len(graphs) == count
    for graph in graphs:
        found = graph.nodes[_COLLECTIVE].communication
        assert found["all_nodes"] == {_COLLECTIVE: f"0-{count - 1}"}
        assert len(found["nodes_info"]) == MOST_LISTED
        named = graph.nodes[_COLLECTIVE].inputs()[f"{_COLLECTIVE}.input.group"]
        assert named["group_ranks"] == str(list(range(count)))
        assert named["Max"] == f"0-{count - 1}"
