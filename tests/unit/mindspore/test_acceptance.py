"""A small training from end to end: what a user finds in the dump, in the dynamic graph and in the static one."""

from __future__ import annotations

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, ops  # noqa: E402
from support.mindspore_dumps import (  # noqa: E402
    Recorder,
    batch,
    record,
)

__all__ = ["record"]


def test_values_of_every_type_are_those_of_the_moment(record: Recorder) -> None:
    names = (
        "Float16 Float32 Float64 BFloat16 Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Bool Complex64 Complex128"
    )
    values = {
        name: Tensor(np.array([[1, 0], [3, 2]]), getattr(ms, "bool_" if name == "Bool" else name.lower()))
        for name in names.split()
    }
    assert len(values) == 15
    with record(level="L1", task="tensor").recording():
        for value in values.values():
            ops.shape(value)
    dump = record.end()
    assert dump.errors() == []
    files, data = dump.tensors(), dump.data()
    for number, (name, value) in enumerate(values.items()):
        (described,) = data[f"Functional.shape.{number}.forward"]["input_args"]
        assert described["dtype"] == name
        assert described["Max"] == (True if name == "Bool" else 3)
        assert described["Mean"] == (None if name == "Bool" else 1.5)
        stored = files[described["data_name"]]
        live = value.astype(ms.float32) if name == "BFloat16" else value
        assert stored.dtype == live.asnumpy().dtype
        assert np.array_equal(stored, live.asnumpy())


@pytest.mark.parametrize(("most", "steps"), [(1, 1), (3, 1), (-1, 2)])
def test_overflows_are_kept_until_there_are_enough(record: Recorder, most: int, steps: int) -> None:
    debugger = record(level="L1", task="overflow_check", overflow_nums=most)
    for _ in range(2):
        with debugger.recording():
            ops.tanh(batch())
            y = ops.log(batch() * 0)
            ops.exp(y)
            y / 2
    dump = record.end()
    chain = ["Functional.log.0.forward", "Functional.exp.0.forward", "Tensor.__truediv__.0.forward"]
    assert dump.names(0) == chain[: most if most > 0 else None]
    assert len([step for step in (0, 1) if f"step{step}" in dump.steps() and dump.names(step)]) == steps
