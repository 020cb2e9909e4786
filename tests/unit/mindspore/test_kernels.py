"""Level L2 in the dynamic graph: the kernels of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, batch, needs_kernels, record  # noqa: E402

__all__ = ["record"]


def gradients(model: nn.Cell) -> Any:
    return ms.value_and_grad(lambda x: (model(x) ** 2).sum(), None, model.trainable_params())


@needs_kernels
def test_kernels_forward_and_backward_with_their_values(record: Recorder) -> None:
    model, x = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh()), batch()
    alone = gradients(model)(x)
    debugger = record(level="L2", task="tensor")
    for _ in range(2):
        with debugger.recording(model):
            found = gradients(model)(x)
    dump = record.end()
    assert np.array_equal(found[0].asnumpy(), alone[0].asnumpy())
    assert all(np.array_equal(a.asnumpy(), b.asnumpy()) for a, b in zip(found[1], alone[1], strict=True))
    for step in (0, 1):
        names = dump.names(step)
        assert names[:3] == ["Kernel.MatMul.0.forward", "Kernel.BiasAdd.0.forward", "Kernel.Tanh.0.forward"]
        assert "Kernel.TanhGrad.0.forward" in names
        assert "Kernel.MatMul.1.forward" in names
    files = dump.tensors()
    product = files["Kernel.MatMul.0.forward.output.0.npy"]
    assert np.allclose(product, x.asnumpy() @ model[0].weight.asnumpy().T, atol=1e-5)
    assert np.array_equal(files["Kernel.BiasAdd.0.forward.input.0.npy"], product)
    added = files["Kernel.BiasAdd.0.forward.output.0.npy"]
    assert np.allclose(files["Kernel.Tanh.0.forward.output.0.npy"], np.tanh(added), atol=1e-5)
    assert np.array_equal(files["Kernel.TanhGrad.0.forward.input.0.npy"], files["Kernel.Tanh.0.forward.output.0.npy"])
    assert dump.errors() == []


@needs_kernels
def test_a_list_chooses_kernels(record: Recorder) -> None:
    with record(level="L2", list=["Tanh."]).recording():
        ops.tanh(batch() + 1)
    assert record.end().names() == ["Kernel.Tanh.0.forward"]


@needs_kernels
def test_nothing_is_seen_after_stop(record: Recorder) -> None:
    debugger = record(level="L2")
    debugger.start()
    ops.tanh(batch())
    debugger.stop()
    ops.tanh(batch())
    debugger.step()
    assert record.end().names() == ["Kernel.Tanh.0.forward"]
