from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.row_by_row import for_each

from msprobe.compare.entry_names import EntryName, operation, plain_path, read_name, writes_in_place

WORD = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)


@for_each(
    ("name", "expected"),
    [
        ("Functional.linear.3.forward", ("api", "Functional.linear", 3, "forward", "", "Functional")),
        ("Tensor.__add__.0.backward", ("api", "Tensor.__add__", 0, "backward", "", "Tensor")),
        ("Distributed.all_reduce.12.forward", ("api", "Distributed.all_reduce", 12, "forward", "", "Distributed")),
        ("Function.MyLoss.1.backward", ("api", "Function.MyLoss", 1, "backward", "", "Function")),
        ("Ops.aten_add.0.forward", ("api", "Ops.aten_add", 0, "forward", "", "Ops")),
        ("Aten._softmax.0.forward", ("api", "Aten._softmax", 0, "forward", "", "Aten")),
        ("Custom.my.module.norm.2.forward", ("api", "Custom.my.module.norm", 2, "forward", "", "Custom")),
        ("Module.fc.Linear.forward.0", ("module", "Module.fc.Linear", 0, "forward", "fc", "Linear")),
        (
            "Module.blocks.0.fc.Linear.backward.11",
            ("module", "Module.blocks.0.fc.Linear", 11, "backward", "blocks.0.fc", "Linear"),
        ),
        ("Module.1.root.Net.forward.0", ("module", "Module.1.root.Net", 0, "forward", "1.root", "Net")),
        ("Cell.net.fc.Dense.forward.2", ("module", "Cell.net.fc.Dense", 2, "forward", "net.fc", "Dense")),
        (
            "Module.fc.Linear.parameters_grad",
            ("parameters", "Module.fc.Linear", None, "gradient", "fc", "Linear"),
        ),
        (
            "Module.blocks.0.fc.Linear.parameters_grad.3",
            ("parameters", "Module.blocks.0.fc.Linear", 3, "gradient", "blocks.0.fc", "Linear"),
        ),
        ("Optimizer.AdamW.2.forward", ("optimizer", "Optimizer.AdamW", 2, "optimizer", "", "AdamW")),
        ("loss.0.debug", ("saved", "loss", 0, "forward", "", "")),
        ("a.b_grad.7.debug", ("saved", "a.b_grad", 7, "forward", "", "")),
        ("Functional.linear.x.forward", ("unknown", "Functional.linear.x.forward", None, "forward", "", "")),
        ("0.forward", ("unknown", "0.forward", None, "forward", "", "")),
        ("", ("unknown", "", None, "forward", "", "")),
        ("Module", ("unknown", "Module", None, "forward", "", "")),
    ],
)
def test_names_are_taken_apart(name: str, expected: tuple[object, ...]) -> None:
    assert tuple(read_name(name)) == expected


def test_a_module_whose_path_ends_in_a_number_is_no_call() -> None:
    assert read_name("Module.layers.0.Block.forward.1").path == "layers.0"
    assert read_name("Module.forward.Linear.forward.0").path == "forward"


@given(st.lists(WORD, min_size=1, max_size=3), WORD, st.integers(0, 999), st.sampled_from(["forward", "backward"]))
def test_a_name_that_is_put_together_is_taken_apart(path: list[str], owner: str, number: int, direction: str) -> None:
    where = ".".join(path)
    found = read_name(f"Module.{where}.{owner}.{direction}.{number}")
    assert found == EntryName("module", f"Module.{where}.{owner}", number, direction, where, owner)


@given(st.text(max_size=30))
def test_any_text_is_a_name(text: str) -> None:
    assert read_name(text).stem in text


@for_each(
    ("path", "plain"),
    [
        ("blocks.0.fc", "blocks.0.fc"),
        ("module.blocks.0.fc", "blocks.0.fc"),
        ("module.module.blocks.0", "blocks.0"),
        ("_orig_mod.fc", "fc"),
        ("blocks.0._checkpoint_wrapped_module.fc", "blocks.0.fc"),
        ("_fsdp_wrapped_module.blocks._fsdp_wrapped_module.0", "blocks.0"),
        ("submodule.fc", "submodule.fc"),
        ("module", ""),
        ("", ""),
    ],
)
def test_wrappers_are_taken_out_of_paths(path: str, plain: str) -> None:
    assert plain_path(path) == plain


@for_each(
    ("stems", "word"),
    [
        (("Tensor.__add__", "Tensor.__radd__", "Tensor.__iadd__", "Torch.add", "Tensor.add_", "Aten.add"), "add"),
        (("Tensor.__truediv__", "Torch.true_divide", "Torch.div", "Tensor.div_", "Torch.divide"), "div"),
        (("Tensor.__matmul__", "Torch.bmm", "Torch.mm", "Torch.matmul", "Tensor.__rmatmul__"), "matmul"),
        (("Tensor.view", "Tensor.reshape", "Tensor.view_as"), "reshape"),
        (("Torch.concat", "Torch.cat"), "cat"),
        (("Tensor.t", "Tensor.transpose", "Torch.swapaxes", "Tensor.transpose_"), "transpose"),
        (("Torch.softmax", "Functional.softmax", "Aten._softmax"), "softmax"),
        (("Tensor.__getitem__",), "getitem"),
        (("Tensor.__invert__",), "invert"),
        (("Tensor.__rsub__",), "sub"),
        (("Functional.relu_", "Functional.relu"), "relu"),
        (("Torch._foreach_norm",), "_foreach_norm"),
    ],
)
def test_one_operation_has_many_names(stems: tuple[str, ...], word: str) -> None:
    assert {operation(stem) for stem in stems} == {word}


@pytest.mark.parametrize(
    "stem", ["Tensor.mul_", "Tensor.__iadd__", "Tensor.__setitem__", "Functional.relu_", "Torch.add_"]
)
def test_calls_that_write(stem: str) -> None:
    assert writes_in_place(stem)


@for_each(
    "stem",
    [
        "Tensor.mul",
        "Tensor.__add__",
        "Tensor.__radd__",
        "Tensor.__getitem__",
        "Tensor.requires_grad_",
        "Tensor.__invert__",
    ],
)
def test_calls_that_do_not(stem: str) -> None:
    assert not writes_in_place(stem)
