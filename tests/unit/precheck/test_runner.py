"""What is found of single calls, in this process."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions

from msprobe.errors import InvalidInputError
from msprobe.messages import code_of
from msprobe.precheck.arguments import Argument, ArgumentTensor, Plain
from msprobe.precheck.columns import DETAILS_HEADER
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.operators import read_operators
from msprobe.precheck.requests import ApiCall, ApiName
from msprobe.precheck.torch.formula import check_formula
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.recorded import unknown_gradients
from msprobe.precheck.torch.runner import runner

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4], "Max": 2.0, "Min": -2.0}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """A worker takes one thread; this process keeps its own."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


def check(folder: Path, name: str, args: list[Any], kwargs: dict[str, Any] | None = None, **task: Any) -> Answer:
    """What is found of one call of a dump."""
    path = folder / "dump.json"
    record = {"input_args": args, "input_kwargs": kwargs or {}, "output": [TENSOR]}
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**header, "data": {f"{name}.0.forward": record}}))
    return runner(Task(str(path), **{"candidate": "cpu", **task})).run(f"{name}.0")


def test_results_that_differ_between_runs_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unsteady.py").write_text(
        "count = 0\n\n\ndef run(function, args, kwargs):\n    global count\n    count += 1\n"
        "    return function(*args, **kwargs) * (1 + count * 2.0**-23)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = check(tmp_path, "Torch.sin", [TENSOR], candidate="plugin:unsteady:run", repeat=3)
    assert found.result[1] == "pass"
    assert found.notes[0] == "output 0 differs in run 2 of 3: not deterministic."
    assert check(tmp_path, "Torch.sin", [TENSOR], repeat=3).notes == []


class Square(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        return Square.factor * x * gradient


@pytest.mark.parametrize(("factor", "status"), [(2.0, "pass"), (2.1, "error")])
def test_a_backward_that_is_not_the_derivative_is_an_error(
    monkeypatch: pytest.MonkeyPatch, factor: float, status: str
) -> None:
    monkeypatch.setattr(Square, "factor", factor)
    inputs = Inputs([torch.rand(3, dtype=torch.float64)], {}, None, ["0"])
    assert check_formula("Call.0", Square.apply, inputs).status == status


def test_nan_on_both_sides_passes_strictly_and_is_an_error_of_8_1_1(tmp_path: Path) -> None:
    assert check(tmp_path, "Torch.log", [TENSOR]).result[1] == "pass"
    assert check(tmp_path, "Torch.log", [TENSOR], standard="8.1.1").result[1] == "error"


@pytest.mark.parametrize("dtype", ["torch.int32", "torch.int64"])
def test_a_loss_is_checked_with_labels_some_of_which_are_ignored(tmp_path: Path, dtype: str) -> None:
    labels = {**TENSOR, "dtype": dtype, "shape": [4], "Max": 3, "Min": -100}
    found = check(tmp_path, "Functional.cross_entropy", [TENSOR, labels])
    assert found.result[1] == "pass", found.result
    assert "nan" not in found.details[0]


@pytest.mark.parametrize(("name", "where"), [("Torch.add", "out"), ("Tensor.copy_", "0"), ("Tensor.uniform_", "0")])
@pytest.mark.parametrize("mark", [{}, {"unset": True}])
def test_a_call_that_writes_over_uninitialised_memory_is_checked(
    tmp_path: Path, name: str, where: str, mark: dict[str, bool]
) -> None:
    target = {**TENSOR, "Max": None, "Min": None, **mark}
    if where == "out":
        found = check(tmp_path, name, [TENSOR, TENSOR], {"out": target})
    else:
        found = check(tmp_path, name, [target, TENSOR] if name.endswith("copy_") else [target])
    assert found.result[1] == "pass", found.result


@pytest.mark.parametrize(
    ("dtype", "standard", "reference", "computed_in", "named"),
    [
        ("float16", "strict", "", "float64", "strict"),
        ("float16", "strict", "legacy", "float32", "strict, reference legacy"),
        ("float32", "strict", "legacy", "float64", "strict, reference legacy"),
        ("float16", "8.1.1", "", "float32", "8.1.1"),
        ("float16", "8.1.1", "legacy", "float32", "8.1.1"),
        ("float16", "8.1.1", "fp64", "float64", "8.1.1, reference fp64"),
    ],
)
def test_the_reference_is_chosen_beside_the_standard(
    tmp_path: Path, dtype: str, standard: str, reference: str, computed_in: str, named: str
) -> None:
    tensor = {**TENSOR, "dtype": f"torch.{dtype}"}
    found = check(tmp_path, "Torch.sin", [tensor], standard=standard, reference=reference)
    row = dict(zip(DETAILS_HEADER, found.details[0], strict=True))
    assert (row["Bench Dtype"], row["DEVICE Dtype"]) == (f"torch.{computed_in}", f"torch.{dtype}")
    assert row["Standard"] == named


def test_arguments_of_several_types_are_computed_in_float32_by_the_legacy_reference(tmp_path: Path) -> None:
    mixed = [{**TENSOR, "dtype": "torch.float16"}, TENSOR]
    found = check(tmp_path, "Torch.add", mixed, reference="legacy")
    assert found.details[0][1] == "torch.float32"


def test_error_data_has_arguments_by_place_and_by_name(tmp_path: Path) -> None:
    bias = {**TENSOR, "shape": [4]}
    folder = tmp_path / "errors"
    check(
        tmp_path,
        "Functional.linear",
        [TENSOR, TENSOR],
        {"bias": bias},
        candidate="cpu+inject:nan@0",
        error_folder=str(folder),
    )
    names = {path.name for path in folder.iterdir()}
    assert {f"Functional.linear.0.forward.input.{word}.pt" for word in ("0", "1", "bias")} <= names


def test_what_a_call_never_computed_is_cleaned_away(tmp_path: Path) -> None:
    text = "def first(api, output, args, kwargs):\n    assert api == 'exp'\n    return output[1:]\n"
    (tmp_path / "hooks.py").write_text(text)
    fault = {"candidate": "cpu+inject:nan@0"}
    assert check(tmp_path, "Torch.exp", [TENSOR], **fault).result[1] == "error"
    cleaned = check(tmp_path, "Torch.exp", [TENSOR], cleaning=f"{tmp_path}/hooks.py:first")
    assert (cleaned.result[1], cleaned.details[0][3]) == ("pass", "(3, 4)")
    for wrong in ("hooks.py:first", f"{tmp_path}/hooks.py:none", f"{tmp_path}/hooks.py"):
        with pytest.raises(InvalidInputError, match="--clean-output"):
            check(tmp_path, "Torch.exp", [TENSOR], cleaning=wrong)


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 20, 1 << 20], [60000, 60000]])
def test_a_call_that_takes_more_memory_than_there_is_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: list[int]
) -> None:
    monkeypatch.setattr("msprobe.precheck.memory.available_bytes", lambda: 1 << 34)
    found = check(tmp_path, "Torch.sin", [{**TENSOR, "shape": shape}])
    assert found.result[1] == "SKIP"
    assert mentions(found.result[3], "memory-too-small", free=16.0)


@pytest.mark.parametrize("standard", ["strict", "26.2", "assert_close"])
def test_floats_of_8_bits_are_judged(tmp_path: Path, standard: str) -> None:
    small = {**TENSOR, "dtype": "torch.float8_e4m3fn"}
    args = [[small, small]]
    assert check(tmp_path, "Torch.cat", args, standard=standard).result[1] == "pass"
    narrow = [TENSOR, {"type": "torch.dtype", "value": "torch.float8_e5m2"}]
    assert check(tmp_path, "Tensor.type", narrow, standard=standard).result[1] == "pass"
    faulty = check(tmp_path, "Torch.cat", args, standard=standard, candidate="plugin:torch_of_tests:far")
    assert faulty.result[1] == "error", faulty.details


def test_an_operator_of_the_user_is_judged_by_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text("def double(x):\n    return 2 * x\n")
    table = tmp_path / "ops.yaml"
    table.write_text("operators: {npu_double: {forward: ops.py:double, description: twice}}")
    operators = tuple((name, *both) for name, both in read_operators(table).items())
    for candidate, status in (("cpu", "pass"), ("cpu+inject:scale=1e-3", "error")):
        found = check(tmp_path, "NPU.npu_double", [TENSOR], candidate=candidate, operators=operators)
        assert found.result[1] == status
    assert check(tmp_path, "NPU.npu_double", [TENSOR]).result[1] == "SKIP"
    task = Task("dump.json", operators=operators)
    assert Task.from_json(task.to_json()) == task
    table.write_text(
        "operators: {a: {forward: os.system}, b: {}, c: {forward: x.py:y, colour: red}, "
        "d: {forward: x.py:y, backward: 3}}"
    )
    with pytest.raises(InvalidInputError) as problem:
        read_operators(table)
    assert all(
        word in str(problem.value) for word in ("os.system", "operators.b.forward", "colour", "operators.d.backward")
    )


@pytest.mark.parametrize(("factor", "status"), [("2", "pass"), ("2.02", "error")])
def test_the_backward_of_an_operator_of_the_user_is_that_of_the_reference(
    tmp_path: Path, factor: str, status: str
) -> None:
    (tmp_path / "ops.py").write_text(
        "import torch\n\n\ndef double(x, y):\n    return x * 2 + y\n\n\n"
        f"def back(gradient, x, y):\n    return gradient * {factor}, gradient\n\n\n"
        "class Double(torch.autograd.Function):\n    @staticmethod\n    def forward(context, x, y):\n"
        "        return x * 2 + y\n    @staticmethod\n    def backward(context, gradient):\n"
        "        return gradient * 2, gradient\n"
    )
    table = tmp_path / "ops.yaml"
    table.write_text("operators: {Double: {forward: ops.py:double, backward: ops.py:back}}")
    ((name, both),) = read_operators(table).items()
    path = tmp_path / "dump.json"
    given = {**TENSOR, "requires_grad": True}
    forward = {"input_args": [given, given], "input_kwargs": {}, "output": [TENSOR]}
    records = {"Function.Double.0.forward": forward, "Function.Double.0.backward": {"input": [TENSOR], "output": []}}
    path.write_text(json.dumps({"framework": "pytorch", "dump_data_dir": None, "data": records}))
    task = Task(str(path), candidate="cpu", operators=((name, *both),), load=str(tmp_path / "ops.py"))
    answer = runner(task).run("Function.Double.0")
    assert answer.result[1:3] == ["pass", status]


@pytest.fixture(autouse=True)
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate whose results are half as large again."""
    module = types.ModuleType("torch_of_tests")

    def run(function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return (result.double() * 1.5).to(result.dtype)

    module.far = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_of_tests", module)


@pytest.mark.parametrize(
    ("outputs", "gradients", "why"),
    [
        ("ff", "sf", "gradient-values-missing"),  # as of the state of a GRU
        ("fff", "ff", "gradient-result-unknown"),  # as of lu_unpack
        ("ff", "ff", ""),
        ("fi", "f", ""),
        ("fi", "fn", ""),
        ("f", "f", ""),
    ],
)
def test_recorded_gradients_are_judged_where_all_that_came_in_is_known(outputs: str, gradients: str, why: str) -> None:
    made: dict[str, Argument] = {
        "f": ArgumentTensor("float32", (2,), file="a.pt"),
        "s": ArgumentTensor("float32", (2,)),
        "i": ArgumentTensor("int64", (2,), file="b.pt"),
        "n": Plain("NoneType", None),
    }
    results, came = (tuple(made[letter] for letter in letters) for letters in (outputs, gradients))
    call = ApiCall("Torch.x.0", ApiName("Torch", "x", "0"), (), {}, results, came)
    assert code_of(unknown_gradients(call))[1] == why
    assert bool(why) == bool(unknown_gradients(call))
