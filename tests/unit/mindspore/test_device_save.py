"""``save`` and ``save_grad`` where the device writes files itself: Ascend is made believe.

In the dynamic graph MindSpore's operators write files on the CPU, too; in a graph the CPU refuses them by name.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import batch  # noqa: E402

from msprobe.capture.mindspore.graphs import device_save  # noqa: E402
from msprobe.errors import InvalidInputError  # noqa: E402
from msprobe.mindspore import save, save_grad, step  # noqa: E402


@pytest.fixture(autouse=True)
def _on_ascend(monkeypatch: pytest.MonkeyPatch) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    monkeypatch.setattr(device_save, "device", lambda: "Ascend")


def written(folder: Path, count: int) -> dict[str, Any]:
    """The files, by their names without the number that MindSpore gives them; it writes them in its own time."""
    deadline = time.monotonic() + 20
    while len(files := sorted(folder.rglob("*.npy"))) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.1)
    return {str(file.relative_to(folder)).rpartition("_")[0]: np.load(file) for file in files}


@pytest.mark.parametrize("has_dump_gradient", [True, False])
def test_mindspore_writes_values_and_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_dump_gradient: bool
) -> None:
    if not has_dump_gradient:
        monkeypatch.setattr(device_save, "_dump_gradient", None)
    elif device_save._dump_gradient is None:
        pytest.skip("this MindSpore has no DumpGradient")
    folder = str(tmp_path)
    x = batch()

    def loss(x: Any) -> Any:
        y = ops.tanh(x)
        save(folder, "y", [y, {"twice/2": y * 2}, None])
        y = save_grad(folder, "y", y)
        return (y * 3).sum()

    value, gradient = ms.value_and_grad(loss)(x)
    t = np.tanh(x.asnumpy())
    assert np.allclose(value.asnumpy(), (t * 3).sum(), rtol=1e-5)
    assert np.allclose(gradient.asnumpy(), 3 * (1 - t**2), rtol=1e-4, atol=1e-6)
    files = written(tmp_path, 3)
    assert set(files) == {f"step0/rank0/{name}_float32" for name in ("y.0", "y.1.twice_2", "y_grad")}
    assert np.allclose(files["step0/rank0/y.0_float32"], t, atol=1e-6)
    assert np.array_equal(files["step0/rank0/y_grad_float32"], np.full((3, 8), 3, np.float32))


def test_in_a_graph_the_operator_stands_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # MindSpore leaves a report of what it could not compile.
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path)

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            save(folder, "x", x)
            return x * 2

    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with pytest.raises(Exception, match="TensorDump"):
            Net()(batch()).asnumpy()
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def test_mindspore_is_reported_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    import mindspore._c_expression as inner

    told: list[int] = []
    monkeypatch.setattr(inner, "_dump_step", told.append)
    step()
    assert told == [1]
    monkeypatch.setattr(device_save, "device", lambda: "CPU")
    step()
    assert told == [1]


def test_names_that_are_no_texts() -> None:
    with pytest.raises(InvalidInputError, match="must be texts"):
        save("folder", 3, batch())  # type: ignore[arg-type]
