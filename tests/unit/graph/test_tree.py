"""The hierarchy of a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from support.coded_texts import mentions, raising
from support.recorded import ModelT, loss_of, record_steps
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.errors import InvalidInputError
from msprobe.graph.node_kinds import CALL, GROUP, MODULE
from msprobe.graph.tree import Tree, read_tree
from msprobe.messages import said
from msprobe.store.reader import open_dump


def dump_of(folder: Path, construct: dict[str, Any], also: tuple[str, ...] = (), **records: Any) -> Path:
    """A dump written by hand: a record for each entry of ``construct`` that is a pass or a call, and ``also``."""
    names = [*(name for name in construct if name.endswith((".forward", ".backward")) or name[-1].isdigit()), *also]
    data = {name: {"input_args": [], "input_kwargs": {}, "output": []} for name in names} | records
    folder.mkdir(parents=True, exist_ok=True)
    header = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**header, "data": data}, indent=1))
    (folder / "construct.json").write_text(json.dumps(construct))
    (folder / "stack.json").write_text("{}")
    return folder


def tree_of(folder: Path, **options: Any) -> Tree:
    return read_tree(open_dump(folder).part(), **options)


def shape_of(tree: Tree, node: int = 0) -> Any:
    """Nested lists of names; a leaf is its name."""
    children = tree.children(node)
    return (tree.names[node], [shape_of(tree, child) for child in children]) if children else tree.names[node]


def test_calls_stand_in_their_modules_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    tree = tree_of(
        dump_of(
            tmp_path,
            {
                "Functional.linear.0.forward": "Module.fc.Linear.forward.0",
                "Module.fc.Linear.forward.0": "Module.net.Net.forward.0",
                "Tensor.add.0.forward": "Module.net.Net.forward.0",
                "Module.net.Net.forward.0": None,
            },
        )
    )
    fc = ("Module.fc.Linear.forward.0", ["Functional.linear.0.forward"])
    assert shape_of(tree) == ("DefaultModel", [("Module.net.Net.forward.0", [fc, "Tensor.add.0.forward"])])
    # First mention: a parent comes before the child that names it.
    assert tree.names[1:4] == ["Module.fc.Linear.forward.0", "Functional.linear.0.forward", "Module.net.Net.forward.0"]
    assert [tree.names[node] for node in tree.by_order] == [
        "Functional.linear.0.forward",
        "Module.fc.Linear.forward.0",
        "Tensor.add.0.forward",
        "Module.net.Net.forward.0",
        "DefaultModel",
    ]
    assert tree.kinds[tree.numbers["Tensor.add.0.forward"]] == CALL
    assert tree.kinds[tree.numbers["Module.fc.Linear.forward.0"]] == MODULE
    assert tree.ancestors(tree.numbers["Functional.linear.0.forward"]) == [0, 3, 1]
    assert tree.notices == ()


def test_a_backward_call_without_parent_goes_to_the_backward_pass_of_its_module(tmp_path: Path) -> None:
    tree = tree_of(
        dump_of(
            tmp_path,
            {
                "Functional.linear.0.forward": "Module.fc.Linear.forward.0",
                "Module.fc.Linear.forward.0": None,
                "Module.fc.Linear.backward.0": None,
                "Functional.linear.0.backward": None,
                "Functional.relu.0.backward": None,
            },
        )
    )
    assert shape_of(tree)[1][1:] == [
        ("Module.fc.Linear.backward.0", ["Functional.linear.0.backward"]),
        "Functional.relu.0.backward",
    ]


def test_two_or_more_calls_between_modules_are_a_group_and_one_is_not(tmp_path: Path) -> None:
    construct = dict.fromkeys(
        [
            "Tensor.a.0.forward",
            "Module.f.F.forward.0",
            "Tensor.b.0.forward",
            "Tensor.c.0.forward",
            "Module.g.F.forward.0",
            "Tensor.d.0.forward",
            "Tensor.e.0.forward",
        ]
    )
    tree = tree_of(dump_of(tmp_path, {"Functional.x.0.forward": "Module.f.F.forward.0", **construct}))
    assert [tree.names[node] for node in tree.children(0)] == [
        "Tensor.a.0.forward",
        "Module.f.F.forward.0",
        "Apis_Between_Modules.0",
        "Module.g.F.forward.0",
        "Apis_Between_Modules.1",
    ]
    group = tree.numbers["Apis_Between_Modules.1"]
    assert tree.kinds[group] == GROUP
    assert [tree.names[node] for node in tree.children(group)] == ["Tensor.d.0.forward", "Tensor.e.0.forward"]


def test_gradients_of_parameters_belong_to_the_last_backward_pass_or_the_one_they_name(tmp_path: Path) -> None:
    construct = {
        "Module.f.F.forward.0": None,
        "Functional.x.0.forward": "Module.f.F.forward.0",
        "Module.f.F.backward.0": None,
        "Module.f.F.backward.1": None,
    }
    gradients = ("Module.f.F.parameters_grad", "Module.f.F.parameters_grad.0", "Module.g.G.parameters_grad")
    tree = tree_of(dump_of(tmp_path, construct, gradients))
    parent = {name: tree.names[tree.parents[tree.numbers[name]]] for name in gradients}
    assert list(parent.values()) == ["Module.f.F.backward.1", "Module.f.F.backward.0", "DefaultModel"]
    assert tree.kinds[tree.numbers[gradients[0]]] == MODULE
    assert tree.notices == (said("gradients-without-backward", "one node"),)


def test_gradients_that_construct_json_lists_too_are_one_node_each(tmp_path: Path) -> None:
    construct = {
        "Functional.x.0.forward": "Module.f.F.forward.0",
        "Module.f.F.forward.0": None,
        "Module.f.F.backward.0": None,
        "Module.f.F.parameters_grad": None,
        "Module.g.F.parameters_grad": "Module.f.F.backward.0",
    }
    tree = tree_of(dump_of(tmp_path, construct, ("Module.f.F.parameters_grad", "Module.g.F.parameters_grad")))
    assert len(tree.names) == len(tree.kinds) == len(set(tree.names))
    backward = tree.numbers["Module.f.F.backward.0"]
    assert {tree.names[node] for node in tree.children(backward)} == {
        "Module.f.F.parameters_grad",
        "Module.g.F.parameters_grad",
    }
    assert tree.notices == ()


def test_an_optimizer_without_an_entry_is_nothing_to_say(tmp_path: Path) -> None:
    tree = tree_of(dump_of(tmp_path, {"Tensor.add_.0.forward": "optimizer"}))
    assert shape_of(tree) == ("DefaultModel", [("optimizer", ["Tensor.add_.0.forward"])])
    assert tree.notices == ()


def test_what_runs_inside_itself_is_shown_at_the_top_and_said(tmp_path: Path) -> None:
    tree = tree_of(
        dump_of(
            tmp_path,
            {
                "Module.a.A.forward.0": "Module.b.B.forward.0",
                "Module.b.B.forward.0": "Module.a.A.forward.0",
                "Functional.x.0.forward": "Module.a.A.forward.0",
                "Module.c.C.forward.0": "Module.c.C.forward.0",
            },
        )
    )
    assert sorted(tree.order.tolist()) == list(range(len(tree)))
    assert {tree.names[node] for node in tree.children(0)} == {"Module.b.B.forward.0", "Module.c.C.forward.0"}
    assert mentions(tree.notices[0], "modules-inside-themselves")


def test_a_dump_without_structure_is_a_flat_list_and_says_which_level_to_use(tmp_path: Path) -> None:
    tree = tree_of(dump_of(tmp_path, {}, ("Functional.a.0.forward", "Functional.b.0.forward")))
    assert tree.is_flat
    assert shape_of(tree) == ("DefaultModel", ["Functional.a.0.forward", "Functional.b.0.forward"])
    assert "level L0 or mix" in tree.notices[0]


def test_records_that_construct_json_does_not_know_are_shown_and_said(tmp_path: Path) -> None:
    construct = {"Module.f.F.forward.0": None, "Functional.x.0.forward": "Module.f.F.forward.0"}
    tree = tree_of(dump_of(tmp_path, construct, ("Functional.y.0.forward",)))
    assert tree.parents[tree.numbers["Functional.y.0.forward"]] == 0
    assert mentions(tree.notices[0], "records-without-place")


def test_passes_that_never_ended_stand_in_the_module_around_them(tmp_path: Path) -> None:
    construct = {
        "Functional.x.0.forward": "Module.n.layers.0.fc.Fc.forward.0",
        "Tensor.y.0.forward": "Module.n.N.forward.0",
    }
    tree = tree_of(dump_of(tmp_path, construct))
    fc = ("Module.n.layers.0.fc.Fc.forward.0", ["Functional.x.0.forward"])
    assert shape_of(tree) == ("DefaultModel", [("Module.n.N.forward.0", ["Tensor.y.0.forward", fc])])
    assert "not finished" in tree.notices[0]


def test_a_parent_that_is_no_name_is_an_error_that_names_the_entry(tmp_path: Path) -> None:
    with raising(InvalidInputError, "parent-is-no-name", name="Tensor.a.0.forward"):
        tree_of(dump_of(tmp_path, {"Tensor.a.0.forward": 7}))


def test_the_micro_steps_of_26_2_are_taken_from_construct_json(tmp_path: Path) -> None:
    construct = {
        "megatron_micro_step_number": 2,
        "Functional.x.0.forward": ["Module.f.F.forward.0", 0],
        "Module.f.F.forward.0": [None, 0],
        "Functional.x.1.forward": ["Module.f.F.forward.1", 1],
        "Module.f.F.forward.1": [None, 1],
    }
    tree = tree_of(dump_of(tmp_path, construct))
    assert tree.micro_step_count == 2
    assert {tree.names[node]: int(step) for node, step in enumerate(tree.micro_steps)} == {
        "DefaultModel": 0,
        "Module.f.F.forward.0": 0,
        "Functional.x.0.forward": 0,
        "Module.f.F.forward.1": 1,
        "Functional.x.1.forward": 1,
    }


def test_a_recorded_step_with_three_micro_batches_counts_them(tmp_path: Path) -> None:
    model = ModelT()

    def work() -> None:
        for _ in range(3):
            loss_of(model(torch.randn(2, 8))).backward()

    dump = record_steps(tmp_path, [work], model, level="mix")[0]
    tree = tree_of(dump.folder)
    assert tree.micro_step_count == 3
    assert {int(tree.micro_steps[node]) for node in tree.children(0)} == {0, 1, 2}
    of_call = {name: int(tree.micro_steps[node]) for name, node in tree.numbers.items() if "l1.Linear.forward" in name}
    assert list(of_call.values()) == [0, 1, 2]
    assert set(dump.data) <= set(tree.names)


def test_a_recomputed_layer_stands_in_its_backward_pass_and_begins_no_micro_step(tmp_path: Path) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.fc(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

    model = Net()

    def work() -> None:
        model(torch.randn(3, 4, requires_grad=True)).sum().backward()

    tree = tree_of(record_steps(tmp_path, [work], model, level="mix")[0].folder)
    again = tree.numbers["Module.layers.1.Block.forward.1"]
    assert tree.names[tree.parents[again]] == "Module.layers.1.Block.backward.0"
    assert tree.micro_step_count == 1
    as_published = tree_of(tmp_path / "step0" / "rank", rehang_recomputed=False)
    assert as_published.parents[as_published.numbers["Module.layers.1.Block.forward.1"]] == 0


def test_an_interrupted_recording_shows_what_is_there(tmp_path: Path) -> None:
    folder = record_steps(tmp_path, [lambda: None], ModelT(), level="mix")[0].folder
    whole = dump_of(folder, {"Functional.x.0.forward": "Module.f.F.forward.0"})
    text = json.loads((whole / "dump.json").read_text())
    (whole / "dump.json").write_text(json.dumps({**text, "msprobe": {"complete": False}}, indent=1))
    tree = tree_of(whole)
    assert tree.parents[tree.numbers["Functional.x.0.forward"]] == tree.numbers["Module.f.F.forward.0"]
    assert mentions(tree.notices[0], "graph-of-interrupted")


def test_calls_of_families_that_published_builders_do_not_know_are_calls(tmp_path: Path) -> None:
    names = ("Ops.c10d.wait_tensor.0.forward", "Compiled.model.0.forward")
    tree = tree_of(dump_of(tmp_path, dict.fromkeys(names, "Module.net.Net.forward.0")))
    assert [tree.kinds[tree.numbers[name]] for name in names] == [CALL, CALL]
    assert not [notice for notice in tree.notices if "unknown kind" in notice]
