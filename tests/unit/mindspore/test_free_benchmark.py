"""The free benchmark in MindSpore's dynamic graph."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

from msprobe.errors import NotAvailableError
from msprobe.mindspore import PrecisionDebugger

pytestmark = pytest.mark.mindspore


def table(folder: Path, name: str = "free_benchmark.csv") -> list[dict[str, str]]:
    if not (folder / name).exists():
        return []
    with open(folder / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def checked(folder: Path) -> dict[str, int]:
    return {row["api"]: int(row["checked"]) for row in table(folder, "free_benchmark_summary.csv")}


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(32, 32)

    def construct(self, x: Any) -> Any:
        h = mint.matmul(x, self.a.weight.astype(x.dtype))
        h = ops.softmax(ops.relu(h), -1) + x
        h = ops.dropout(h, 0.2)
        return (mint.sum(h, -1, keepdim=True) * h).astype(ms.float32).mean()


class Layers(nn.Cell):
    """Layers with weights and states, an index, of which MindSpore cannot differentiate the call by itself, and a
    parameter that is written to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Dense(32, 16)
        self.norm = nn.LayerNorm((16,))
        self.states = nn.BatchNorm1d(16)
        self.count = ms.Parameter(Tensor(np.zeros((1,), np.float32)), requires_grad=False)

    def construct(self, x: Any) -> Any:
        h = self.states(self.norm(self.a(x.astype(ms.float32))))
        ops.assign_add(self.count, Tensor(np.ones(1, np.float32)))
        return h[0].square().mean() + h.mean() * self.count.mean()


def train(folder: Path | None, kind: type[nn.Cell] = Net, **settings: Any) -> tuple[list[bytes], bytes]:
    """Losses and weights of three steps; recorded if there is a folder."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(1)
    np.random.seed(0)
    PrecisionDebugger.reset()
    debugger = None
    if folder is not None:
        debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(folder), **settings)
    net = kind()
    net.set_train()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    function = ms.value_and_grad(net, None, optimizer.parameters)
    losses = []
    for _ in range(3):
        x = Tensor(np.random.rand(8, 32).astype(np.float32)).astype(ms.float16)
        if debugger is not None:
            debugger.start(net)
        loss, gradients = function(x)
        if debugger is not None:
            debugger.stop()
        optimizer(gradients)
        if debugger is not None:
            debugger.step()
        losses.append(loss.asnumpy().tobytes())
    PrecisionDebugger.reset()
    return losses, b"".join(one.asnumpy().tobytes() for one in net.get_parameters())


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_the_training_is_the_same_and_no_call_is_a_risk(tmp_path: Path, stage: str) -> None:
    modes = ["no_change", "add_noise", "bit_noise", "improve_precision", "change_value"]
    assert train(tmp_path, pert_mode=modes, fuzz_stage=stage) == train(None)
    assert checked(tmp_path)["Mint.matmul"] >= 12
    assert {row["verdict"] for row in table(tmp_path, "free_benchmark_details.csv")} <= {"explained by rounding"}
    assert "no_change" not in {row["pert_type"] for row in table(tmp_path, "free_benchmark_details.csv")}


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_layers_are_checked_and_a_call_that_fails_when_made_again_harms_nothing(tmp_path: Path, stage: str) -> None:
    asked: dict[str, Any] = {"pert_mode": ["no_change", "add_noise"], "fuzz_stage": stage}
    assert train(tmp_path, Layers, **asked) == train(None, Layers)
    found = checked(tmp_path)
    assert [found[f"Primitive.{name}"] for name in ("matmul.MatMul", "layer_norm.LayerNorm")] == [6, 6]
    # What writes to its parameters is not made again.
    assert [found[name] for name in ("Functional.assign_add", "Primitive.bn_train.BatchNorm")] == [0, 0]
    assert {row["verdict"] for row in table(tmp_path, "free_benchmark_details.csv")} <= {"explained by rounding"}


def test_the_table_has_the_columns_of_mindspore(tmp_path: Path) -> None:
    train(tmp_path, pert_mode="bit_noise", step=[1])
    text = (tmp_path / "free_benchmark.csv").read_text().splitlines()
    assert text[0] == "rank,pert_type,stage,step,api_name,max_rel,dtype,shape,output_index"
    assert {row["step"] for row in table(tmp_path)} == {"1"}
    assert table(tmp_path)[0]["api_name"] == "Mint.matmul.0.forward"
    assert not list(tmp_path.glob("step*"))


def test_a_list_has_names_as_users_know_them(tmp_path: Path) -> None:
    train(tmp_path, pert_mode="no_change", list=["mindspore.mint.matmul", "mindspore.Tensor.__mul__"])
    assert checked(tmp_path) == {"Mint.matmul": 3, "Tensor.__mul__": 3}


def test_fix_gives_results_of_full_precision(tmp_path: Path) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    a = Tensor(np.random.rand(8, 64).astype(np.float16))
    b = Tensor(np.random.rand(64, 8).astype(np.float16))
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), handler_type="fix")
    debugger.start()
    found = mint.matmul(a, b)
    debugger.stop()
    PrecisionDebugger.reset()
    assert found.dtype == ms.float16
    expected = mint.matmul(a.astype(ms.float32), b.astype(ms.float32)).astype(ms.float16)
    assert np.array_equal(found.asnumpy(), expected.asnumpy())


def test_the_cpu_is_for_pytorch(tmp_path: Path) -> None:
    PrecisionDebugger.reset()
    with raising(NotAvailableError, "to-cpu-for-mindspore"):
        PrecisionDebugger(task="free_benchmark", dump_path=str(tmp_path), pert_mode="to_cpu", fuzz_device="cpu")
