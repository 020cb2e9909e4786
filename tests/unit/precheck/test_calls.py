"""How single calls are run and judged: which are run at all, of which types, under what, and with which strides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.prechecked import TENSOR, answer_of, forward, own_threads, plugin, watch, write_dump

from msprobe.messages import arguments_of, code_of
from msprobe.precheck.job import Task
from msprobe.precheck.torch import runner

pytestmark = pytest.mark.usefixtures(own_threads.__name__)

BF16 = {**TENSOR, "dtype": "torch.bfloat16"}
PLACES = {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [4], "Max": 3, "Min": 0}


def test_a_wrong_gradient_of_a_keyword_argument_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(function: Any, args: Any, kwargs: Any) -> Any:
        bias = kwargs["bias"]
        return function(*args, bias=2 * bias - bias.detach())  # the value of it, and twice its gradient

    wanted = {**TENSOR, "requires_grad": True}
    record = forward(wanted, wanted, bias={**wanted, "shape": [4]})
    found = answer_of(tmp_path, "Functional.linear", record, TENSOR, candidate=plugin(monkeypatch, run))
    assert found.result[1:3] == ["pass", "error"]
    statuses = {row[0].partition("linear.0.")[2]: row[21] for row in found.details}
    assert statuses == {
        "forward.output.0": "pass",
        "backward.output.0": "pass",
        "backward.output.1": "pass",
        "backward.output.2": "error",
    }


@pytest.mark.parametrize(("candidate", "status"), [("cpu", "pass"), ("cpu+inject:scale=1e-2", "error")])
def test_functions_of_vf_are_run(tmp_path: Path, candidate: str, status: str) -> None:
    bias = {**TENSOR, "shape": [4]}
    found = answer_of(
        tmp_path, "VF.rnn_tanh_cell", forward(TENSOR, TENSOR, TENSOR, TENSOR, bias, bias), candidate=candidate
    )
    assert found.result[1] == status
    assert (found.details[0][2], found.details[0][3]) == ("torch.float32", "(4, 4)")


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16"])
@pytest.mark.parametrize(("add", "status"), [(0, "pass"), (1, "error")])
def test_narrow_whole_numbers_are_equal_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, add: int, status: str
) -> None:
    def run(function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs).clone()
        result.view(torch.int8 if result.element_size() == 1 else torch.int16)[1, 2] += add
        return result

    whole = {**TENSOR, "dtype": f"torch.{dtype}", "Max": 5, "Min": 0}
    found = answer_of(tmp_path, "Torch.transpose", forward(whole, 0, 1), candidate=plugin(monkeypatch, run))
    assert (found.result[1], found.details[0][2]) == (status, f"torch.{dtype}")
    if add:
        assert found.details[0][22].startswith("1 of 16 elements differ; the first at [1, 2]")


@pytest.mark.parametrize(
    ("standard", "statuses"), [("assert_close", ["pass"] * 2), ("26.2", ["pass", "error"]), ("8.1.1", ["error"] * 2)]
)
def test_which_narrow_whole_numbers_a_standard_can_compare(tmp_path: Path, standard: str, statuses: list[str]) -> None:
    found = []
    for dtype in ("int8", "int16"):
        whole = {**TENSOR, "dtype": f"torch.{dtype}", "Max": 5, "Min": 0}
        found.append(answer_of(tmp_path, "Torch.transpose", forward(whole, 0, 1), standard=standard).result[1])
    assert found == statuses


@pytest.mark.parametrize(("standard", "status"), [("strict", "pass"), ("8.1.1", "error"), ("26.2", "SKIP")])
def test_results_without_elements_pass(tmp_path: Path, standard: str, status: str) -> None:
    found = answer_of(tmp_path, "Torch.sin", forward({**TENSOR, "shape": [0, 3]}), standard=standard)
    assert (found.details[0][21], found.details[0][3]) == (status, "(0, 3)")


@pytest.mark.parametrize(
    ("fault", "status", "name"),
    [
        ("", "pass", "random-by-distribution"),
        ("+inject:scale=1", "error", "random-statistic-off"),
        ("+inject:nan@3", "error", "random-not-finite"),
    ],
)
def test_a_random_call_is_judged_by_how_it_is_spread(tmp_path: Path, fault: str, status: str, name: str) -> None:
    shape = [{"type": "int", "value": 1000}]
    found = answer_of(tmp_path, "Torch.rand", forward(*shape), candidate=f"cpu{fault}")
    assert found.result[1] == status
    assert code_of(found.details[0][22])[1] == name


@pytest.mark.parametrize(("name", "shape"), [("conv1d", [2, 3, 8]), ("conv2d", [2, 3, 5, 5])])
def test_arguments_of_convolutions_have_11_bits_of_mantissa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shape: list[int]
) -> None:
    seen = watch(monkeypatch, lambda x, weight: [x, weight])
    given, weight = {**TENSOR, "shape": shape}, {**TENSOR, "shape": [3, 3, *[3] * (len(shape) - 2)]}
    found = answer_of(tmp_path, f"Functional.{name}", forward(given, weight), standard="8.1.1")
    assert found.result[1] == "pass"
    # The reference has the same numbers, in single precision.
    for tensor in [*seen[0], *seen[1]]:
        bits = tensor.view(torch.int32)
        assert not bool((bits & 0xFFF).any())
        assert bool((bits & 0x1000).any())
    low = {**BF16, "shape": shape}
    seen.clear()
    answer_of(tmp_path, f"Functional.{name}", forward(low, {**BF16, "shape": weight["shape"]}), standard="8.1.1")
    assert seen[0][0].dtype is torch.bfloat16


def test_arguments_of_other_calls_have_all_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, lambda x: x)
    answer_of(tmp_path, "Torch.sin", forward(TENSOR), standard="8.1.1")
    assert bool((seen[0].view(torch.int32) & 0xFFF).any())


@pytest.mark.parametrize(
    ("given", "result", "autocast", "reference"),
    [
        ((TENSOR, BF16), TENSOR, torch.bfloat16, torch.float32),
        ((TENSOR, {**TENSOR, "dtype": "torch.float16"}), TENSOR, torch.float16, torch.float32),
        ((TENSOR, TENSOR), BF16, torch.bfloat16, torch.float64),
        ((TENSOR, TENSOR), TENSOR, None, torch.float64),
        ((BF16, BF16), BF16, None, torch.float32),
        # As losses and norms give it under autocast alone.
        ((BF16, BF16), TENSOR, torch.bfloat16, torch.float32),
    ],
)
def test_calls_of_mixed_types_run_under_autocast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, result: Any, autocast: Any, reference: torch.dtype
) -> None:
    def see(x: torch.Tensor, y: torch.Tensor) -> Any:
        on = torch.is_autocast_enabled("cpu")
        return torch.get_autocast_dtype("cpu") if on else None, x.dtype, y.dtype

    seen = watch(monkeypatch, see)
    found = answer_of(tmp_path, "Torch.matmul", forward(*given, output=result), standard="8.1.1")
    assert found.result[1] != "SKIP"
    assert seen[0][0] is autocast
    assert seen[1] == (None, reference, reference)


@pytest.mark.parametrize("candidate", ["cpu", "cpu+inject:scale=1e-6"])
@pytest.mark.parametrize("stride", [[1, 4], [0, 1], [1, 0], [8, 2], [0, 0]], ids=str)
def test_recorded_strides_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, candidate: str, stride: list[int]
) -> None:
    seen = watch(monkeypatch, lambda x: (x.stride(), x.clone()))
    answer_of(tmp_path, "Torch.sin", forward({**TENSOR, "stride": stride}), candidate=candidate)
    strides, values = seen[0]
    assert strides == tuple(stride)
    for dimension in (0, 1):
        same = values.select(dimension, 0).unsqueeze(dimension).expand(4, 4)
        assert torch.equal(values, same) is (stride[dimension] == 0)


def test_a_pass_of_which_the_record_does_not_have_everything_is_judged_by_no_recorded_result(tmp_path: Path) -> None:
    weight = {**TENSOR, "type": "torch.nn.parameter.Parameter"}
    passes = {"Linear": weight, "LayerNorm": {**weight, "shape": [4]}}
    records = {
        f"Module.m.{name}.forward.0": {**forward(TENSOR), "parameters": {"weight": one}} for name, one in passes.items()
    }
    dump = write_dump(tmp_path, records, "tensor")
    for candidate, inexact in (("recorded", "SKIP"), ("cpu", "pass")):
        made = runner.runner(Task(str(dump), candidate=candidate, modules=True))
        assert made.run("Module.m.Linear.0").result[1] != "SKIP"
        found = made.run("Module.m.LayerNorm.0")
        assert found.result[1] == inexact
        assert (code_of(found.result[3])[1] == "module-settings-missing") is (inexact == "SKIP")


@pytest.mark.parametrize(("candidate", "status"), [("cpu", "pass"), ("cpu+inject:scale=1e-3", "error")])
def test_functions_of_lists_of_tensors_are_run(tmp_path: Path, candidate: str, status: str) -> None:
    tensors = [TENSOR, {**TENSOR, "shape": [5]}]
    found = answer_of(
        tmp_path, "Torch._foreach_mul_", forward(tensors, {**TENSOR, "shape": []}, output=tensors), candidate=candidate
    )
    assert found.result[1] == status
    assert [row[3] for row in found.details] == ["(4, 4)", "(5,)"]


@pytest.mark.parametrize(("name", "args"), [("Torch.transpose", (0, 1)), ("Tensor.index_select", (1, PLACES))])
@pytest.mark.parametrize(("units", "status"), [(0, "pass"), (3, "error")])
def test_what_only_moves_numbers_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, args: Any, units: int, status: str
) -> None:
    def run(function: Any, args: Any, kwargs: Any) -> Any:
        result = function(*args, **kwargs).clone()
        result[1, 1] += units * torch.finfo(torch.bfloat16).eps * result[1, 1].abs()
        return result

    record = forward(BF16, *args, output=BF16)
    found = answer_of(tmp_path, name, record, candidate=plugin(monkeypatch, run))
    assert found.result[1] == status
    if units:
        assert code_of(found.details[0][22])[1] == "copies-not-exact"
        assert arguments_of(found.details[0][22]).items() >= {"count": 1, "total": 16, "place": "[1, 1]"}.items()
