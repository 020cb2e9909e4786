"""Calls of MindSpore: their names and numbers, what is written of them, and that nothing stays behind."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Tensor, mint, nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, Toy, batch, gradients_of, record, train_step  # noqa: E402

from msprobe.capture.mindspore.calls.surface import MINDSPORE  # noqa: E402

__all__ = ["record"]


def one_call(record: Recorder, call: Any, **settings: Any) -> Any:
    """The dump of one call at level L1."""
    debugger = record(level="L1", **settings)
    debugger.start()
    call()
    debugger.stop()
    debugger.step()
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


def test_a_record_has_arguments_keywords_and_results(record: Recorder) -> None:
    x = batch(1)
    dump = one_call(record, lambda: mint.nn.functional.softmax(x, dim=-1))
    entry = dump.data()["MintFunctional.softmax.0.forward"]
    values = x.asnumpy()
    described = entry["input_args"][0]
    assert described["type"] == "mindspore.Tensor"
    assert described["dtype"] == "Float32"
    assert described["shape"] == [3, 8]
    assert described["Max"] == values.max()
    assert described["Min"] == values.min()
    assert described["Mean"] == pytest.approx(values.mean(dtype=np.float64))
    assert described["Norm"] == pytest.approx(np.linalg.norm(values.astype(np.float64)))
    assert entry["input_kwargs"] == {"dim": {"type": "int", "value": -1}}
    assert len(entry["output"]) == 1


def test_only_the_outermost_call_is_recorded(record: Recorder) -> None:
    x = batch()
    dump = one_call(record, lambda: ops.std(x))
    assert dump.names() == ["Functional.std.0.forward"]


def test_level_l1_without_a_model_records_functions_and_no_primitives(record: Recorder) -> None:
    debugger = record(level="L1")
    model = Toy()
    gradients = gradients_of(model)
    debugger.start()
    gradients(batch())
    debugger.stop()
    debugger.step()
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


def test_stacks_lead_to_the_line_of_the_call(record: Recorder) -> None:
    x = batch()
    dump = one_call(record, lambda: ops.tanh(x))
    stacks = dump.file(name="stack.json")
    (names, frames) = stacks["0"]
    assert names == ["Functional.tanh.0.forward"]
    assert frames[0].startswith(f"File {__file__}, line ")
    assert "ops.tanh(x)" in frames[0]
    assert "msprobe/capture" not in "".join(frames)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float16", "Float16"),
        ("float32", "Float32"),
        ("float64", "Float64"),
        ("bfloat16", "BFloat16"),
        ("int8", "Int8"),
        ("int16", "Int16"),
        ("int32", "Int32"),
        ("int64", "Int64"),
        ("uint8", "UInt8"),
        ("uint16", "UInt16"),
        ("uint32", "UInt32"),
        ("uint64", "UInt64"),
    ],
)
def test_statistics_of_every_real_type(record: Recorder, dtype: str, name: str) -> None:
    x = Tensor(np.array([[1, 2], [4, 0]]), getattr(ms, dtype))
    (described,) = one_call(record, lambda: ops.shape(x)).data()["Functional.shape.0.forward"]["input_args"]
    assert described["dtype"] == name
    assert (described["Max"], described["Min"], described["Mean"]) == (4, 0, 1.75)
    assert described["Norm"] == pytest.approx(21**0.5, rel=4e-3)
    assert described["zero"] == 1


def test_statistics_of_bool_complex_empty_scalar_and_nonfinite_tensors(record: Recorder) -> None:
    cases = {
        "bool": (Tensor([True, False]), (True, False, None, None)),
        "complex": (Tensor(np.array([3 + 4j, 0], np.complex64)), (5.0, 0.0, 2.5, 5.0)),
        "empty": (Tensor(np.zeros((0, 3), np.float32)), (None, None, None, None)),
        "scalar": (Tensor(-2.0), (-2.0, -2.0, -2.0, 2.0)),
        "whole scalar": (Tensor(-2, ms.int32), (-2, -2, -2, 2)),
    }

    def calls() -> None:
        for value, _ in cases.values():
            ops.shape(value)
        ops.shape(Tensor([1.0, float("nan")]))
        ops.shape(Tensor([1.0, float("inf")]))

    data = one_call(record, calls).data()
    for number, (case, (_, wanted)) in enumerate(cases.items()):
        found = data[f"Functional.shape.{number}.forward"]["input_args"][0]
        assert tuple(found[key] for key in ("Max", "Min", "Mean", "Norm")) == wanted, case
        assert type(found["Max"]) is type(wanted[0]), case
    nan = data["Functional.shape.5.forward"]["input_args"][0]
    assert all(nan[key] != nan[key] for key in ("Max", "Min", "Mean", "Norm"))
    assert data["Functional.shape.6.forward"]["input_args"][0]["Max"] == float("inf")


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


def test_a_call_that_raises_is_recorded_with_its_error(record: Recorder) -> None:
    debugger = record(level="L1")
    debugger.start()
    with pytest.raises((TypeError, ValueError)):
        ops.concat([batch(), 3], axis=0)
    debugger.stop()
    debugger.step()
    entry = record.end().data()["Functional.concat.0.forward"]
    assert "error" in entry
    assert len(entry["input_args"]) == 1


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


def test_a_value_that_cannot_be_read_costs_the_value_and_not_the_training(
    record: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msprobe.capture.mindspore import tensors

    def fails(tensor: Any) -> Any:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(tensors, "host_array", fails)
    x = batch()
    results = []
    dump = one_call(record, lambda: results.append(ops.tanh(x)))
    assert np.array_equal(results[0].asnumpy(), ops.tanh(x).asnumpy())
    entry = dump.data()["Functional.tanh.0.forward"]
    assert entry["input_args"][0]["Max"] is None
    assert entry["input_args"][0]["shape"] == [3, 8]
    assert "no kernel" in dump.errors()[0]


def test_filters_and_directions(record: Recorder) -> None:
    model = Toy()
    debugger = record(level="mix", list=["tanh"])
    train_step(debugger, model)
    assert record.end().names() == ["Functional.tanh.0.forward", "Functional.tanh.0.backward"]
    debugger = record(level="L1", data_mode=["forward", "output"])
    train_step(debugger, model)
    dump = record.end()
    assert dump.names(part="backward") == []
    assert set(dump.data()["Functional.tanh.0.forward"]) == {"is_recompute", "output", "msprobe"}
    debugger = record(level="L1", scope=["Tensor.__add__.0.forward", "Mint.mul.0.forward"])
    train_step(debugger, model)
    assert record.end().names() == ["Tensor.__add__.0.forward", "Functional.tanh.0.forward", "Mint.mul.0.forward"]


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
    debugger.start()
    mine.double(batch())
    debugger.stop()
    debugger.step()
    assert record.end().names() == ["mine.double.0.forward", "Functional.add.0.forward"]


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_values_are_those_of_the_moment_whatever_writes_to_them_later(record: Recorder, level: str) -> None:
    class Writes(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.tanh = nn.Tanh()

        def construct(self, x: Any, how: str) -> Any:
            y = self.tanh(x)
            if how == "+=":
                y += 1
            elif how == "[]":
                y[0] = 5.0
            elif how == "copy_":
                y.copy_(x)
            elif how == "view":
                y.view(-1)[:4] = 3.0
            else:
                ops.assign(y, x)
            return y

    model, x = nn.SequentialCell(Writes()), batch()
    wanted = ops.tanh(x).asnumpy()
    entry = "Cell.0.tanh.Tanh.forward.{}" if level == "L0" else "Primitive.tanh.Tanh.{}.forward"
    debugger = record(level=level, task="tensor")
    debugger.start(model)
    ways = ["+=", "[]", "copy_", "view", "assign"]
    changed = [model[0](x, how).asnumpy() for how in ways]
    debugger.stop()
    debugger.step()
    files = record.end().tensors()
    for number, how in enumerate(ways):
        assert not np.array_equal(changed[number], wanted), how
        assert np.array_equal(files[f"{entry.format(number)}.output.0.npy"], wanted), how
