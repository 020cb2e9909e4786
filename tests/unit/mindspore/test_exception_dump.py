"""Task exception_dump: what a call that fails was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.coded_texts import mentions  # noqa: E402
from support.mindspore_dumps import Recorder, batch, needs_kernels, record  # noqa: E402

__all__ = ["record"]


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 8)

    def construct(self, x: Any) -> Any:
        h = ops.tanh(self.dense(x))
        return ops.matmul(h, ops.ones((3, 3)))


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("L1", ["Functional.matmul.0.forward"]),
        ("mix", ["Functional.matmul.0.forward", "Cell.root.Model.forward.0"]),
        ("L0", ["Cell.root.Model.forward.0"]),
        pytest.param("L2", [], marks=needs_kernels),
    ],
)
def test_what_a_call_that_raises_was_given_is_saved(record: Recorder, level: str, wanted: list[str]) -> None:
    model = Model()
    debugger = record(level=level, task="exception_dump", record_root=True)
    with debugger.recording(model), pytest.raises((ValueError, RuntimeError, TypeError)):
        model(batch())
    dump = record.end()
    assert dump.errors() == []
    if wanted:
        assert dump.names() == wanted
    else:
        # Its name is MindSpore's.
        assert [name.partition(".")[0] for name in dump.names()] == ["Kernel"]
    first = dump.data()[dump.names()[0]]
    assert first["error"]
    given = np.tanh(model.dense(batch()).asnumpy()) if level != "L0" else batch().asnumpy()
    assert np.allclose(dump.tensors()[first["input_args"][0]["data_name"]], given, atol=1e-6)


def test_where_nothing_fails_nothing_is_kept(record: Recorder, capsys: Any) -> None:
    debugger = record(level="mix", task="exception_dump")
    model = nn.SequentialCell(nn.Dense(8, 4))

    def loss(x: Any) -> Any:
        return ops.tanh(model(x)).sum()

    with debugger.recording(model):
        ms.value_and_grad(loss, None, model.trainable_params())(batch())
    dump = record.end()
    assert dump.names() == []
    assert dump.tensors() == {}
    assert mentions(capsys.readouterr().out, "no-failure-in-dump")
