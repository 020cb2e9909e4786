"""Records that answer to each other by their place in the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.compare.layers import called_function, pair_entries
from msprobe.compare.mapping_files import LayerMapping, load_layer_mapping


class Part:
    """Names, and what they ran in: as much of a dump as a layer mapping reads."""

    def __init__(self, *names: str, inside: Mapping[str, Any] | None = None, stacks: Any = None) -> None:
        self._names = names
        self._inside = dict(inside or {})
        self._stacks = stacks or {}

    def names(self) -> list[str]:
        return list(self._names)

    def parents(self) -> dict[str, Any]:
        return self._inside

    def stack(self, name: str) -> list[str]:
        return list(self._stacks.get(name, []))


def pairs(mine: Part, theirs: Part, **classes: dict[str, str]) -> dict[str, str]:
    return pair_entries(mine, theirs, load_layer_mapping(classes) if classes else LayerMapping())


def test_modules_of_one_path_answer_to_each_other_whatever_their_class() -> None:
    found = pairs(Part("Cell.a.fc.Dense.forward.0", "Cell.a.x.Dense.forward.0"), Part("Module.a.fc.Linear.forward.0"))
    assert found == {"Cell.a.fc.Dense.forward.0": "Module.a.fc.Linear.forward.0"}


def test_a_rule_counts_for_children_of_its_class_only() -> None:
    mine = Part(
        *("Cell.one.fc.Dense.forward.0", "Cell.one.Blk.forward.0"),
        *("Cell.two.fc.Dense.forward.0", "Cell.two.Other.forward.0"),
    )
    theirs = Part(*(f"Module.{a}.{b}.Linear.forward.0" for a in ("one", "two") for b in ("fc", "linear")))
    found = pairs(mine, theirs, Blk={"fc": "linear"})
    assert found["Cell.one.fc.Dense.forward.0"] == "Module.one.linear.Linear.forward.0"
    assert found["Cell.two.fc.Dense.forward.0"] == "Module.two.fc.Linear.forward.0"


def test_rules_of_several_levels_go_before_those_of_one() -> None:
    mine = Part("Cell.net.a.b.Dense.forward.0", "Cell.net.a.c.Dense.forward.0", "Cell.net.Net.forward.0")
    theirs = Part("Module.net.x.Linear.forward.0", "Module.net.y.c.Linear.forward.0")
    found = pairs(mine, theirs, Net={"a": "y", "a.b": "x"})
    assert found["Cell.net.a.b.Dense.forward.0"] == "Module.net.x.Linear.forward.0"
    assert found["Cell.net.a.c.Dense.forward.0"] == "Module.net.y.c.Linear.forward.0"


@pytest.mark.parametrize("word", ["TopLayer", "Cell"])
def test_the_outermost_level_has_a_name_of_its_own(word: str) -> None:
    mine = Part("Cell.network.fc.Dense.forward.0", "Cell.network.Net.forward.0")
    theirs = Part("Module.module.module.fc.Linear.forward.0")
    found = pairs(mine, theirs, **{word: {"network": "module.module (Float16Module)"}})
    assert found == {"Cell.network.fc.Dense.forward.0": "Module.module.module.fc.Linear.forward.0"}


def test_calls_are_paired_in_their_order_inside_the_module_they_ran_in() -> None:
    mine = Part(
        *("Mint.mul.0.forward", "Mint.mul.1.forward", "Cell.a.Net.forward.0", "Mint.mul.2.forward"),
        inside={"Mint.mul.0.forward": "Cell.b.Net.forward.0", "Mint.mul.1.forward": "Cell.a.Net.forward.0"},
    )
    theirs = Part(
        *("Torch.mul.0.forward", "Torch.mul.1.forward", "Torch.mul.2.forward"),
        inside={"Torch.mul.0.forward": "Module.a.Net.forward.0", "Torch.mul.1.forward": ["Module.b.Net.forward.0", 0]},
    )
    assert pairs(mine, theirs) == {
        "Mint.mul.0.forward": "Torch.mul.1.forward",
        "Mint.mul.1.forward": "Torch.mul.0.forward",
        "Mint.mul.2.forward": "Torch.mul.2.forward",
    }


def test_a_backward_call_goes_with_its_forward() -> None:
    # Two calls on one side, three on the other: counted from the end, as the engine runs, all would be shifted.
    mine = Part(*(f"Tensor.add.{n}.forward" for n in (0, 1)), *(f"Tensor.add.{n}.backward" for n in (1, 0)))
    theirs = Part(*(f"Tensor.add.{n}.forward" for n in (0, 1, 2)), *(f"Tensor.add.{n}.backward" for n in (2, 1, 0)))
    found = pairs(mine, theirs)
    assert all(name == partner for name, partner in found.items())
    assert len(found) == 4


def test_a_backward_call_whose_forward_has_no_partner_has_none() -> None:
    mine = Part("Mint.mul.0.forward", "Mint.mul.0.backward")
    assert pairs(mine, Part("Torch.add.0.forward", "Torch.mul.0.backward")) == {}


def test_a_backward_call_without_forward_is_found_by_its_place() -> None:
    found = pairs(Part("Cell.a.Net.backward.0"), Part("Module.a.Net.backward.0"))
    assert found == {"Cell.a.Net.backward.0": "Module.a.Net.backward.0"}


def test_functions_are_looked_for_under_the_other_frameworks_name() -> None:
    mine = Part("Functional.equal.0.forward", "Primitive.relu.ReLU.0.forward", "Functional.dense.0.forward")
    theirs = Part("Functional.relu.0.forward", "Torch.eq.0.forward", "Functional.linear.0.forward")
    assert pairs(mine, theirs) == {
        "Functional.equal.0.forward": "Torch.eq.0.forward",
        "Primitive.relu.ReLU.0.forward": "Functional.relu.0.forward",
        "Functional.dense.0.forward": "Functional.linear.0.forward",
    }


def test_a_rule_for_a_function_goes_before_the_table() -> None:
    mine = Part("Primitive.relu.ReLU.0.forward")
    theirs = Part("Functional.relu.0.forward", "Functional.gelu.0.forward")
    assert pairs(mine, theirs, TopLayer={"ReLU": "gelu"}) == {
        "Primitive.relu.ReLU.0.forward": "Functional.gelu.0.forward"
    }


def test_pipeline_stages_count_their_layers_from_the_first() -> None:
    mine = Part(
        *("Cell.net.layers.0.Layer.forward.0", "Cell.net.layers.1.Layer.forward.0"),
        "Cell.net.ParallelTransformer.forward.0",
    )
    theirs = Part(
        *("Module.net.layers.9.Layer.forward.0", "Module.net.layers.10.Layer.forward.0"),
        "Module.net.ParallelTransformer.forward.0",
    )
    found = pairs(mine, theirs)
    assert found["Cell.net.layers.0.Layer.forward.0"] == "Module.net.layers.9.Layer.forward.0"
    assert found["Cell.net.layers.1.Layer.forward.0"] == "Module.net.layers.10.Layer.forward.0"


TORCH = "/env/torch"


@for_each(
    ("frames", "expected"),
    [
        ([("/proj/net.py", "forward")], None),
        ([(f"{TORCH}/nn/modules/linear.py", "forward"), (f"{TORCH}/nn/modules/module.py", "_call_impl")], None),
        ([(f"{TORCH}/nn/functional.py", "attention"), ("/proj/net.py", "forward")], "attention"),
        ([(f"{TORCH}/nn/functional.py", "own"), ("/proj/net.py", "forward")], None),
        ([(f"{TORCH}/nn/functional.py", "inner"), (f"{TORCH}/x.py", "outer"), ("/proj/net.py", "forward")], "outer"),
        ([("/proj/f.py", "mine"), (f"{TORCH}/x.py", "outer"), ("/proj/net.py", "forward")], None),
        ([("/env/site-packages/msprobe/core/a.py", "wrapper"), (f"{TORCH}/x.py", "f"), ("/p.py", "g")], "f"),
        ([(f"{TORCH}/x.py", "before"), ("/a.py", "APITemplate"), (f"{TORCH}/x.py", "after"), ("/p.py", "g")], "after"),
        (
            [("/env/mindspore/ops/f.py", "dropout"), ("/env/mindspore/nn/l.py", "construct")],
            "dropout",
        ),
    ],
)
def test_a_function_between_module_and_call_is_a_level_of_its_own(
    frames: list[tuple[str, str]], expected: str | None
) -> None:
    stack = [f"File {file}, line 3, in {function}, \n ..." for file, function in frames]
    assert called_function(stack, "own") == expected


_CALLS = st.lists(st.sampled_from(["Torch.mul", "Torch.add", "Functional.relu"]), max_size=12)


@given(_CALLS, st.booleans())
def test_a_dump_answers_to_itself(calls: list[str], with_backward: bool) -> None:
    numbers: dict[str, int] = {}
    names = []
    for api in calls:
        numbers[api] = numbers.get(api, -1) + 1
        names.append(f"{api}.{numbers[api]}")
    entries = [f"{name}.forward" for name in names]
    if with_backward:
        entries += [f"{name}.backward" for name in reversed(names)]
    part = Part(*entries)
    assert pair_entries(part, part, LayerMapping()) == {entry: entry for entry in entries}
