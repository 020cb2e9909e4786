"""``save`` and ``save_grad`` inside static graphs, and in the dynamic graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import batch  # noqa: E402

from msprobe.capture.mindspore.graphs import graph_save  # noqa: E402
from msprobe.errors import InvalidInputError  # noqa: E402
from msprobe.mindspore import save, save_grad, step  # noqa: E402


@pytest.fixture(params=["graph", "pynative"])
def _mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(graph_save, "_places", graph_save._Places())
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


def files(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {str(file.relative_to(folder)): np.load(file) for file in sorted(folder.rglob("*.npy"))}


@pytest.mark.usefixtures("_mode")
def test_values_and_gradients_with_their_names(tmp_path: Path) -> None:
    class Model(nn.Cell):
        def __init__(self, folder: str, saves: bool) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 4)
            self.folder = folder
            self.saves = saves

        def construct(self, x: Any) -> Any:
            y = self.dense(x)
            z = ops.tanh(y)
            if self.saves:
                save(self.folder, "x", x)
                save(self.folder, "d", {"a": y, "b": [y, y + 1], "none": None})
                z = save_grad(self.folder, "z", z)
                save(self.folder, "sum", z.sum())
            return (z * z).sum()

    def run(saves: bool) -> tuple[Any, Any, Any]:
        ms.set_seed(1)
        np.random.seed(1)
        model = Model(str(tmp_path), saves)
        gradients = ms.value_and_grad(model, None, model.trainable_params())
        for number in range(2):
            loss, grads = gradients(batch(number))
            if saves:
                step()
        return model, loss.asnumpy(), [g.asnumpy() for g in grads]

    model, loss, grads = run(True)
    _, loss_alone, grads_alone = run(False)
    assert loss.tobytes() == loss_alone.tobytes()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(grads, grads_alone, strict=True))
    found = files(tmp_path)
    names = ["x_float32_0", "d.a_float32_1", "d.b.0_float32_2", "d.b.1_float32_3", "sum_float32_4", "z_grad_float32_5"]
    assert sorted(found) == sorted(f"step{n}/rank0/{name}.npy" for n in (0, 1) for name in names)
    for number in (0, 1):
        at = f"step{number}/rank0/"
        assert np.array_equal(found[f"{at}x_float32_0.npy"], batch(number).asnumpy())
        y = found[f"{at}d.a_float32_1.npy"]
        weight, bias = model.dense.weight.asnumpy(), model.dense.bias.asnumpy()
        assert np.allclose(y, batch(number).asnumpy() @ weight.T + bias, atol=1e-5)
        assert np.allclose(found[f"{at}d.b.1_float32_3.npy"], y + 1)
        assert np.allclose(found[f"{at}z_grad_float32_5.npy"], 2 * np.tanh(y), atol=1e-5)
        assert found[f"{at}sum_float32_4.npy"].shape == ()
        assert np.allclose(found[f"{at}sum_float32_4.npy"], np.tanh(y).sum(), atol=1e-5)


@pytest.mark.usefixtures("_mode")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "bool_"])
def test_types(tmp_path: Path, dtype: str) -> None:
    class Model(nn.Cell):
        def construct(self, x: Any) -> Any:
            save(folder, "x", x)
            return x

    folder = str(tmp_path)
    Model()(ms.Tensor(np.array([[0, 1], [1, 1]]), getattr(ms, dtype)))
    step()
    ((name, values),) = files(tmp_path).items()
    kind = {"bfloat16": "float32", "bool_": "bool"}.get(dtype, dtype)
    assert name == f"step0/rank0/x_{kind}_0.npy"
    assert values.tolist() == [[0, 1], [1, 1]]


@pytest.mark.usefixtures("_mode")
def test_a_place_that_is_visited_twice_keeps_both(tmp_path: Path) -> None:
    x = batch()
    for _ in range(2):
        save(str(tmp_path), "x", x)
    step()
    assert sorted(files(tmp_path)) == ["step0/rank0/x_float32_0.npy", "step0/rank0/x_float32_1.npy"]


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="must be texts"):
        save(str(tmp_path), 3, batch())  # type: ignore[arg-type]
