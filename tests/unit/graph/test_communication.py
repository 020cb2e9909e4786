"""Which calls of other ranks a communication call answers to."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from graph_models import compare_file, nodes_of
from hand_made import tensor, write_part

from msprobe.graph.communication import Call, exchanges_of, partners
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
        rank: [Call(node, name, exchanges_of(name, one)) for node, (name, one) in enumerate(records.items())]
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
    assert done.returncode == 1
    assert "different frameworks need --layer_mapping" in done.stderr
    assert call(*words, "-lm").returncode == 0
