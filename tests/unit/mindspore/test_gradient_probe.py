"""The gradient probe in MindSpore's dynamic graph writes what it writes in PyTorch."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mindspore = pytest.importorskip("mindspore")
from mindspore import Parameter, Tensor, nn  # noqa: E402

from msprobe.errors import InvalidInputError  # noqa: E402
from msprobe.mindspore import PrecisionDebugger  # noqa: E402

pytestmark = pytest.mark.mindspore


@pytest.fixture(autouse=True)
def _dynamic_graph() -> Iterator[None]:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    yield
    PrecisionDebugger.reset()


def configured(folder: Path, **section: Any) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps({"task": "grad_probe", "dump_path": str(folder / "out"), "grad_probe": section}))
    return str(file)


def read(file: Path) -> list[dict[str, str]]:
    data = file.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def train(optimizer: Any, net: Any, steps: int) -> list[np.ndarray[Any, Any]]:
    """The gradients of the weight in each step."""
    compute = mindspore.value_and_grad(lambda x: (net(x) ** 2).sum(), None, optimizer.parameters)
    found = []
    for step in range(steps):
        _, gradients = compute(Tensor(np.arange(6).reshape(2, 3) + step, mindspore.float32))
        found.append(gradients[0].asnumpy())
        optimizer(gradients)
    return found


def test_a_dense_cell(tmp_path: Path) -> None:
    net = nn.Dense(3, 2)
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    debugger = PrecisionDebugger(configured(tmp_path, grad_level="L2"))
    debugger.monitor(optimizer)
    gradients = train(optimizer, net, 2)
    debugger.stop()
    train(optimizer, net, 1)
    rank = tmp_path / "out" / "rank0"
    assert sorted(path.name for path in rank.glob("*.csv")) == ["grad_summary_0.csv", "grad_summary_1.csv"]
    header = (rank / "grad_summary_0.csv").read_bytes().splitlines()[0]
    assert header == b'\xef\xbb\xbfparam_name,"(-inf, -1]","(-1, 0]","(0, 1]","(1, inf)",=0,max,min,norm,shape'
    rows = read(rank / "grad_summary_1.csv")
    assert [(row["param_name"], row["shape"]) for row in rows] == [("weight", "[2, 3]"), ("bias", "[2]")]
    assert float(rows[0]["max"]) == gradients[1].max()
    assert float(rows[0]["norm"]) == pytest.approx(np.linalg.norm(gradients[1]), rel=1e-6)
    direction = np.load(rank / "step1" / "weight.npy")
    assert direction.dtype == np.bool_
    assert np.array_equal(direction, gradients[1] > 0)
    assert np.load(rank / "step0" / "bias.npy").shape == (2,)


def test_gradients_given_by_hand_in_other_types(tmp_path: Path) -> None:
    parameter = Parameter(Tensor(np.zeros(4), mindspore.float16), name="w")
    optimizer = nn.SGD([parameter], 0.0)
    debugger = PrecisionDebugger(configured(tmp_path, grad_level="L0"))
    debugger.monitor(optimizer)
    optimizer((Tensor([1, -2, 0, 1], mindspore.float16),))
    debugger.stop()
    row = read(tmp_path / "out" / "rank0" / "grad_summary_0.csv")[0]
    assert row["MD5"] == f"{zlib.crc32(np.float32([1, -2, 0, 1]).tobytes()):08x}"
    assert (row["max"], row["min"]) == ("1.0", "-2.0")


def test_another_optimizer_does_not_count(tmp_path: Path) -> None:
    nets = [nn.Dense(3, 2), nn.Dense(3, 2)]
    watched, other = (nn.SGD(net.trainable_params(), 0.01) for net in nets)
    debugger = PrecisionDebugger(configured(tmp_path))
    debugger.monitor(watched)
    train(other, nets[1], 2)
    train(watched, nets[0], 1)
    debugger.stop()
    assert [path.name for path in (tmp_path / "out" / "rank0").glob("*.csv")] == ["grad_summary_0.csv"]


def test_the_training_is_the_same(tmp_path: Path) -> None:
    weights = []
    for probed in (False, True):
        mindspore.set_seed(3)
        np.random.seed(3)
        net = nn.Dense(3, 2, weight_init=Tensor(np.ones((2, 3)), mindspore.float32))
        optimizer = nn.Adam(net.trainable_params(), 0.1)
        if probed:
            debugger = PrecisionDebugger(configured(tmp_path, grad_level="L2"))
            debugger.monitor(optimizer)
        train(optimizer, net, 4)
        weights.append(net.weight.asnumpy().tobytes())
    assert weights[0] == weights[1]


def test_a_network_is_no_optimizer(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(configured(tmp_path))
    with pytest.raises(InvalidInputError, match=r"monitor\(\): pass the optimizer"):
        debugger.monitor(nn.Dense(3, 2))
