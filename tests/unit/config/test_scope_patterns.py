from __future__ import annotations

import pytest
from support.row_by_row import for_each

from msprobe.config.scope_patterns import (
    compile_list,
    compile_list_item,
    entry_kind,
    scope_kinds,
)


@for_each(
    "prefix",
    "Aten Custom Distributed Function Functional Jit MindSpeed Mint MintDistributed MintFunctional NPU Ops Optimizer "
    "Primitive Tensor Torch Triton VF".split(),
)
@for_each("direction", ["forward", "backward"])
def test_entries_of_every_prefix_of_the_tool_are_api_entries(prefix, direction):
    assert entry_kind(f"{prefix}.some_name.12.{direction}") == "api"


@for_each(
    ("name", "kind"),
    [
        ("Functional.relu.0.forward", "api"),
        ("Tensor.__add__.3.backward", "api"),
        ("Ops.aten.add.Tensor.0.forward", "api"),
        ("Function.MyFunction.0.backward", "api"),
        ("Optimizer.AdamW.0.forward", "api"),
        ("my_module.f.0.forward", "api"),
        ("a.b.c.f.0.forward", "api"),
        ("Module.conv1.Conv2d.forward.0", "module"),
        ("Module.0.blk1.a.Linear.backward.11", "module"),
        ("Cell.fc.Dense.forward.0", "module"),
        # A sub-module may be called "forward" or be named by a number.
        ("Module.0.forward.Linear.forward.0", "module"),
        ("Module.layers.0.forward", None),
        ("Module.conv1.Conv2d.parameters_grad", None),
        ("relu", None),
        ("linear", None),
        ("", None),
        ("Functional.relu.0", None),
        ("Functional.relu.forward.0", None),
        ("Functional.relu.x.forward", None),
        ("Functional.0.forward", None),
        ("Functional.relu.0.forward.input.0", None),
        ("xFunctional.relu.0.forwards", None),
        ("1abc.relu.0.forward", None),
        (".relu.0.forward", None),
        ("Functional.relu.0.forward\n", None),
        ("Functional.relu.٣.forward", None),
    ],
)
def test_full_names_of_entries_are_distinguished_from_other_texts(name, kind):
    assert entry_kind(name) == kind


def test_each_level_has_its_kinds_of_entries():
    assert scope_kinds("L0") == ("module",)
    assert scope_kinds("L1") == ("api",)
    assert scope_kinds("mix") == scope_kinds("L2") == ("api", "module")


@for_each(
    ("item", "name", "matches"),
    [
        ("relu", "Functional.relu.0.forward", True),
        ("relu", "Functional.leaky_relu_.2.backward", True),
        ("Relu", "Functional.relu.0.forward", False),
        ("blk1.a", "Module.blk1.act.ReLU.forward.0", True),
        ("a.c", "Functional.abc.0.forward", False),
        ("name-regex(relu|gelu)", "Functional.gelu.0.forward", True),
        ("name-regex(relu|gelu)", "Functional.silu.0.forward", False),
        (r"name-regex(^Torch\..*\.backward$)", "Torch.bmm.0.backward", True),
        (r"name-regex(^Torch\..*\.backward$)", "Torch.bmm.0.forward", False),
        ("name-regex((?i)RELU)", "Functional.relu.0.forward", True),
        ("name-regex(f(o+))", "x.foo.0.forward", True),
        # Not the form: an ordinary text.
        ("name-regex(", "name-regex(", True),
    ],
)
def test_list_items_are_substrings_or_regular_expressions(item, name, matches):
    assert compile_list_item(item).matches(name) is matches


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("name-regex(*a)", r"nothing to repeat \(character 1 inside the brackets\)"),
        ("name-regex(a[b)", r"unterminated character set \(character 2 "),
        ("name-regex(a{1,99999999999999999999})", "bad regular expression"),
    ],
)
def test_a_bad_regular_expression_is_reported_with_its_place(item, told):
    with pytest.raises(ValueError, match=told):
        compile_list([item])
