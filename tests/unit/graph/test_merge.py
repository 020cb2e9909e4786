"""Ranks of a parallel training as one graph."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.command_line import call
from support.hand_made import call as record
from support.hand_made import tensor, write_part

from msprobe.errors import InvalidInputError
from msprobe.graph.graph_files import FileNode, read_graph_file
from msprobe.graph.merge.layout import ParallelLayout
from msprobe.graph.merge.together import merge_ranks
from msprobe.graph.side import GraphOfSide, read_side
from msprobe.messages import said
from msprobe.store.reader import open_dump

Construct = dict[str, str | None]


def stage(folder: Path, layers: int, value: float, names: tuple[str, ...] = ()) -> Path:
    """A rank with some layers, forward, numbered from 0, in a model that has ``names`` beside them."""
    data: dict[str, Any] = {"Tensor.to.0.forward": record(tensor(2, value=value), out=tensor(2, value=value))}
    construct: Construct = {"Tensor.to.0.forward": None}
    model = "Module.net.Net.forward.0"
    for layer in range(layers):
        module = f"Module.net.layers.{layer}.Layer.forward.0"
        data[f"Functional.linear.{layer}.forward"] = record(tensor(2, value=value), out=tensor(2, value=value + layer))
        data[module] = record(tensor(2, value=value), out=tensor(2, value=value + layer))
        construct |= {f"Functional.linear.{layer}.forward": module, module: model}
    for name in names:
        data[name] = record(tensor(2, value=value))
        construct[name] = model
    data[model] = record(tensor(2, value=value), out=tensor(2, value=10 * value))
    construct[model] = None
    write_part(folder, data, construct=construct)
    return folder


def sides_of(place: Path, count: int) -> list[GraphOfSide]:
    return [read_side(open_dump(place / f"rank{rank}").part()) for rank in range(count)]


def outputs(side: GraphOfSide, name: str) -> Any:
    return side.outputs[side.tree.numbers[name]][0][1]


def test_slices_of_a_tensor_are_put_together_and_the_formula_is_kept(tmp_path: Path) -> None:
    for rank, value in enumerate((3.0, 4.0)):
        stage(tmp_path / f"rank{rank}", 1, value)
    (whole,) = merge_ranks(sides_of(tmp_path, 2), ParallelLayout(2, 2, 1))
    found = outputs(whole, "Functional.linear.0.forward")
    assert (found["Max"], found["Min"], found["Mean"]) == (4.0, 3.0, 3.5)
    assert found["Norm"] == math.sqrt(3.0**2 + 4.0**2)
    assert "of ranks 0, 1" in whole.merged[whole.tree.numbers["Functional.linear.0.forward"]][0]


def test_what_is_equal_on_all_ranks_stays(tmp_path: Path) -> None:
    for rank in range(2):
        stage(tmp_path / f"rank{rank}", 1, 3.0)
    (whole,) = merge_ranks(sides_of(tmp_path, 2), ParallelLayout(2, 2, 1))
    assert outputs(whole, "Functional.linear.0.forward")["Norm"] == 3.0
    assert whole.merged == {}


def test_the_reduction_stands_for_a_partial_sum(tmp_path: Path) -> None:
    module = "Module.fc.RowParallelLinear.forward.0"
    for rank, value in enumerate((3.0, 4.0)):
        data = {
            "Functional.linear.0.forward": record(tensor(2, value=value), out=tensor(2, value=value)),
            "Distributed.all_reduce.0.forward": record(tensor(2, value=value), out=tensor(2, value=7.0)),
            module: record(tensor(2, value=value), out=tensor(2, value=7.0)),
        }
        construct = {"Functional.linear.0.forward": module, "Distributed.all_reduce.0.forward": module, module: None}
        write_part(tmp_path / f"rank{rank}", data, construct=construct)
    (whole,) = merge_ranks(sides_of(tmp_path, 2), ParallelLayout(2, 2, 1))
    assert outputs(whole, "Functional.linear.0.forward")["Norm"] == 7.0


def test_layers_of_later_stages_are_numbered_on_under_the_first(tmp_path: Path) -> None:
    stage(tmp_path / "rank0", 2, 1.0, ("Module.net.emb.Embedding.forward.0",))
    stage(tmp_path / "rank1", 2, 5.0, ("Module.net.head.Linear.forward.0",))
    (whole,) = merge_ranks(sides_of(tmp_path, 2), ParallelLayout(2, 1, 2))
    tree = whole.tree
    model = tree.numbers["Module.net.Net.forward.0"]
    assert [tree.names[node] for node in tree.children(model)] == [
        "Module.net.layers.0.Layer.forward.0",
        "Module.net.layers.1.Layer.forward.0",
        "Module.net.emb.Embedding.forward.0",
        "Module.net.layers.2.Layer.forward.0",
        "Module.net.layers.3.Layer.forward.0",
        "Module.net.head.Linear.forward.0",
    ]
    assert outputs(whole, "Module.net.layers.3.Layer.forward.0")["Norm"] == 6.0
    # The whole model's result is that of the last stage.
    assert outputs(whole, "Module.net.Net.forward.0")["Norm"] == 50.0
    inside = tree.children(tree.numbers["Module.net.layers.2.Layer.forward.0"])
    assert [tree.names[node] for node in inside] == ["Functional.linear_rank1.0.forward"]


def test_what_runs_between_modules_is_shown_rank_by_rank(tmp_path: Path) -> None:
    stage(tmp_path / "rank0", 1, 1.0)
    stage(tmp_path / "rank1", 1, 5.0)
    for layout in (ParallelLayout(2, 1, 2), ParallelLayout(2, 2, 1)):
        (whole,) = merge_ranks(sides_of(tmp_path, 2), layout)
        tree = whole.tree
        (group,) = [node for node in tree.children(0) if tree.kinds[node] == 9]
        assert tree.names[group] == "Apis_Between_Modules_All_Ranks.0"
        of_ranks = [(tree.names[one], [tree.names[c] for c in tree.children(one)]) for one in tree.children(group)]
        assert of_ranks == [
            ("Apis_Between_Modules_Rank0.0", ["Tensor.to.0.forward"]),
            ("Apis_Between_Modules_Rank1.0", ["Tensor.to_rank1.0.forward"]),
        ]


def test_chunks_of_virtual_stages_are_folded_into_the_first(tmp_path: Path) -> None:
    for rank in range(2):
        data: dict[str, Any] = {}
        construct: Construct = {}
        for chunk in range(2):
            model = f"Module.{chunk}.net.Net.forward.0"
            layer = f"Module.{chunk}.net.layers.0.Layer.forward.0"
            data |= {layer: record(out=tensor(2, value=10 * chunk + rank)), model: record()}
            construct |= {layer: model, model: None}
        write_part(tmp_path / f"rank{rank}", data, construct=construct)
    (whole,) = merge_ranks(sides_of(tmp_path, 2), ParallelLayout(2, 1, 2, 2))
    norms = {name: outputs(whole, name)["Norm"] for name in whole.tree.names if ".layers." in name}
    # Chunk 0 of both ranks, then chunk 1 of both.
    assert {name.split(".")[4]: norm for name, norm in norms.items()} == {"0": 0, "1": 1, "2": 10, "3": 11}


def test_each_copy_of_the_model_is_a_graph_of_its_own(tmp_path: Path) -> None:
    for rank in range(4):
        stage(tmp_path / f"rank{rank}", 1, float(rank))
    found = merge_ranks(sides_of(tmp_path, 4), ParallelLayout(4, 2, 1))
    assert [side.rank for side in found] == [0, 2]


def test_a_merged_graph_is_written_as_database_and_as_a_dump(tmp_path: Path) -> None:
    stage(tmp_path / "dump" / "rank0", 1, 1.0)
    stage(tmp_path / "dump" / "rank1", 1, 5.0)
    words = ["graph_visualize", "-tp", tmp_path / "dump", "--rank_size", "2", "--tp", "1", "--pp", "2"]
    assert call(*words, "-o", tmp_path / "db").returncode == 0
    assert call(*words, "-gp", tmp_path / "dump", "-o", tmp_path / "no").returncode == 2
    for flag in ("-lm", "--strict"):
        done = call(*words, "-o", tmp_path / "no", flag)
        assert (done.returncode, mentions(done.stderr, "graph-pairing-of-merged")) == (2, True)
    both = ["graph_visualize", "-tp", tmp_path / "dump", "-gp", tmp_path / "dump", "-o", tmp_path / "both"]
    done = call(*both, "--rank_size", "2", "2", "--tp", "1", "1", "--pp", "2", "2")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "both").iterdir()
    nodes: dict[str, FileNode] = dict(read_graph_file(file).graphs[0].nodes)
    assert all(node.partner == name for name, node in nodes.items() if node.kind != 9)
    done = call(*words, "-o", tmp_path / "json", "--file_type", "json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "json" / "step0" / "rank0"
    assert json.loads((folder / "dump.json").read_text())["is_merged"] is True
    again = read_side(open_dump(folder).part())
    (database,) = (tmp_path / "db").iterdir()
    written = read_graph_file(database).graphs[0].nodes
    assert set(again.tree.names) == set(written)
    assert {n: again.tree.names[again.tree.parents[i]] for n, i in again.tree.numbers.items() if i} == {
        name: node.parent for name, node in written.items() if node.parent
    }


def test_the_mistakes_of_a_layout_are_reported_together() -> None:
    for fields, mistakes in (
        (
            {"rank_size": 2, "pp": 1, "vpp": True},
            [said("layout-field-required", "tp"), said("layout-number-wrong", "vpp", "True")],
        ),
        ({"rank_size": 2, "tp": 4, "pp": 1}, [said("larger-than-rank-size", "tp", 4, 2)]),
        ({"rank_size": 2, "tp": 1, "pp": 1, "vpp": 2}, [said("vpp-needs-pp")]),
        (
            {"rank_size": 2, "tp": 1, "pp": 1, "order": "TP"},
            [said("layout-order-form", "'tp-cp-ep-dp-pp'", "'TP'")],
        ),
    ):
        with pytest.raises(InvalidInputError) as caught:
            ParallelLayout.of(fields, "here")
        assert caught.value.message == f"here: {'; '.join(mistakes)}."
