"""Calls of MindSpore: their names and numbers, what is written of them, and that nothing stays behind."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, Toy, batch, gradients_of, record, train_step  # noqa: E402

from msprobe.capture.mindspore.calls.surface import MINDSPORE  # noqa: E402

__all__ = ["record"]


def one_call(record: Recorder, call: Any, **settings: Any) -> Any:
    """The dump of one call at level L1."""
    with record(level="L1", **settings).recording():
        call()
    return record.end()


def test_the_calls_of_a_step_have_the_names_and_numbers_of_the_list(record: Recorder) -> None:
    debugger = record(level="mix")
    model = Toy()
    train_step(debugger, model)
    train_step(debugger, model)
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    wanted = [
        "Primitive.matmul.MatMul.0",
        "MintFunctional.softmax.0",
        "Tensor.__add__.0",
        "Functional.tanh.0",
        "Mint.mul.0",
    ]
    for step in (0, 1):
        forward = [name.removesuffix(".forward") for name in dump.names(step, ".forward")]
        backward = [name.removesuffix(".backward") for name in dump.names(step, ".backward")]
        assert [name for name in forward if name in wanted] == wanted
        assert [name for name in backward if name in wanted] == wanted[::-1]
    assert dump.errors() == []


def test_level_l1_without_a_model_records_functions_and_no_primitives(record: Recorder) -> None:
    debugger = record(level="L1")
    model = Toy()
    gradients = gradients_of(model)
    with debugger.recording():
        gradients(batch())
    dump = record.end()
    assert "Functional.tanh.0.forward" in dump.data()
    assert dump.names(part="Primitive.") == []
    assert dump.names(part="Cell.") == []
    assert dump.file(name="construct.json") == {}


def test_primitives_that_a_cell_holds_are_numbered_over_the_whole_model(record: Recorder) -> None:
    debugger = record(level="L1")
    model = nn.SequentialCell(nn.Dense(8, 8), nn.Dense(8, 4))
    train_step(debugger, model)
    dump = record.end()
    assert dump.names(part="Primitive.matmul.MatMul") == [
        "Primitive.matmul.MatMul.0.forward",
        "Primitive.matmul.MatMul.1.forward",
        "Primitive.matmul.MatMul.1.backward",
        "Primitive.matmul.MatMul.0.backward",
    ]


def test_md5_is_the_crc_of_the_bytes(record: Recorder) -> None:
    x = batch()
    half = Tensor(np.array([1.5, -2.25], np.float32), ms.bfloat16)

    def calls() -> None:
        ops.shape(x)
        ops.shape(half)

    data = one_call(record, calls, summary_mode="md5").data()
    (described,) = data["Functional.shape.0.forward"]["input_args"]
    assert described["md5"] == f"{zlib.crc32(x.asnumpy().tobytes()):08x}"
    (described,) = data["Functional.shape.1.forward"]["input_args"]
    assert described["md5"] == f"{zlib.crc32(np.array([1.5, -2.25], np.float32).tobytes()):08x}"


def test_values_that_are_no_tensors(record: Recorder) -> None:
    x = batch()

    def calls() -> None:
        ops.cast(x, ms.float16)
        ops.concat([x, x], axis=0)
        ops.clip_by_value(x, None, 2.0)

    data = one_call(record, calls).data()
    assert data["Functional.cast.0.forward"]["input_args"][1] == {"type": "mindspore.dtype", "value": "Float16"}
    assert len(data["Functional.concat.0.forward"]["input_args"][0]) == 2
    _, low, high = data["Functional.clip_by_value.0.forward"]["input_args"]
    assert low is None
    assert high == {"type": "float", "value": 2.0}


def test_a_tensor_whose_elements_are_not_in_order_says_so(record: Recorder) -> None:
    x = batch().T
    (described,) = one_call(record, lambda: ops.shape(x)).data()["Functional.shape.0.forward"]["input_args"]
    assert described["contiguous"] is False
    assert described["stride"] == list(x.stride())
    assert described["shape"] == [8, 3]


def test_after_stop_everything_is_as_it_was(record: Recorder) -> None:
    before = {(id(holder), name): getattr(holder, name) for holder, name, _ in MINDSPORE.apis(everything=True)}
    own = set(vars(Tensor))
    called = ops.MatMul.__call__
    debugger = record(level="mix")
    model = Toy()
    debugger.start(model)
    assert ops.tanh is not before[id(ops), "tanh"]
    gradients_of(model)(batch())
    debugger.stop()
    for holder, name, _ in MINDSPORE.apis(everything=True):
        assert getattr(holder, name) == before[id(holder), name], name
    assert set(vars(Tensor)) == own
    assert ops.MatMul.__call__ is called
    for _, cell in model.cells_and_names():
        assert not cell._forward_hook
        assert not cell._forward_pre_hook
    assert all(not parameter.hooks() for parameter in model.get_parameters())
    debugger.step()


def test_dropout_still_drops_while_recording_and_after(record: Recorder) -> None:
    x = Tensor(np.ones((100, 100), np.float32))
    debugger = record(level="L1")
    debugger.start()
    inside = ops.dropout(x, 0.5).asnumpy()
    debugger.stop()
    outside = ops.dropout(x, 0.5).asnumpy()
    for values in (inside, outside):
        assert 0.3 < (values == 0).mean() < 0.7
    assert "Functional.dropout.0.forward" in record.end().data()


def test_functions_of_the_users_choice(record: Recorder) -> None:
    from types import ModuleType

    mine = ModuleType("mine")
    mine.double = lambda x: ops.add(x, x)  # type: ignore[attr-defined]
    original = mine.double
    debugger = record(level="L1")
    debugger.register_custom_api(mine, "double")
    debugger.start()
    mine.double(batch())
    debugger.stop()
    assert mine.double is original
    debugger.restore_custom_api(mine, "double")
    with debugger.recording():
        mine.double(batch())
    assert record.end().names() == ["mine.double.0.forward", "Functional.add.0.forward"]
