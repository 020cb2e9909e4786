"""Errors of the program: they are the program's, whoever reads a value first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, batch, record  # noqa: E402

from msprobe import log  # noqa: E402
from msprobe.capture.mindspore.program_errors import forget_missed, raise_missed  # noqa: E402
from msprobe.capture.mindspore.tensors import dtype_name  # noqa: E402

__all__ = ["record"]


def wrong_shapes() -> Any:
    return ops.matmul(ops.ones((3, 4)), ops.ones((3, 4)))


def wrong_view() -> Any:
    return ops.reshape(batch(), (5, 5))


def wrong_arguments() -> Any:
    return ops.tanh(batch(), batch(), batch())


def wrong_input_of_a_cell() -> Any:
    return nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())(batch(0, (3, 5)))


def wrong_index() -> Any:
    # Only the kernel finds this out.
    return ops.scatter_nd(ms.Tensor([[99]], ms.int32), ops.ones((1,)), (3,))


def caught(fails: Callable[[], Any]) -> str:
    """What the program is told."""
    try:
        fails().asnumpy()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


def goes_on(told: str, work: Callable[[], Any]) -> None:
    """Do the work. MindSpore 2.10 itself now and then tells an error that the program has caught once more, to whoever
    computes next.
    """
    for _ in range(100):
        again = ""
        try:
            work()
        except Exception as error:
            again = str(error).splitlines()[0]
        assert again in told
        if not again:
            return
        time.sleep(0.001)
    raise AssertionError("told without end")


@pytest.mark.parametrize("task", ["statistics", "tensor", "overflow_check", "structure"])
@pytest.mark.parametrize("fails", [wrong_shapes, wrong_view, wrong_arguments, wrong_input_of_a_cell, wrong_index])
def test_an_error_that_the_program_catches_reaches_it_and_not_said_to_be_ours(
    record: Recorder, capsys: Any, fails: Callable[[], Any], task: str
) -> None:
    log.forget_once()
    alone = caught(fails)
    assert alone
    goes_on(alone, lambda: ops.ones((1,)).asnumpy())
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    debugger = record(level="mix", task=task)
    debugger.start(model)
    assert caught(fails) == alone
    goes_on(alone, lambda: model(batch()))
    goes_on(alone, debugger.stop)
    debugger.step()
    dump = record.end()
    assert dump.errors() == []
    assert "Could not record" not in capsys.readouterr().out
    if task != "overflow_check":
        assert "Cell.1.Tanh.forward.0" in dump.names()


def test_the_record_of_a_call_that_failed_says_so(record: Recorder) -> None:
    with record(level="L1").recording():
        caught(wrong_shapes)
    (entry,) = (record.end().data()[name] for name in ["Functional.matmul.0.forward"])
    assert entry["input_args"][0]["shape"] == [3, 4]
    assert "MatMul" in str(entry["output"]) or "matmul" in str(entry.get("error"))


def test_an_error_that_only_the_recorder_was_reported_of_reaches_the_program(record: Recorder) -> None:
    debugger = record(level="L1")
    debugger.start()
    found = wrong_index()
    with pytest.raises(RuntimeError, match="ScatterNd"):
        debugger.stop()
    debugger.step()
    # It is told once, as without recording.
    assert found.shape == (3,)
    with debugger.recording():
        ops.tanh(batch())
    dump = record.end()
    assert dump.errors() == []
    assert dump.names(1) == ["Functional.tanh.0.forward"]


def test_another_error_on_its_way_is_not_hidden(record: Recorder) -> None:
    debugger = record(level="L1")
    debugger.start()
    with pytest.raises(KeyError):
        try:
            wrong_index()
            raise KeyError("of the program")
        finally:
            debugger.stop()
    debugger.step()


def test_an_error_of_ours_is_still_reported(record: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from msprobe.capture.array_statistics import ArrayStatistics

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("ours")

    log.forget_once()
    with record(level="L1").recording():
        ops.tanh(batch())
        monkeypatch.setattr(ArrayStatistics, "describe", broken)
    dump = record.end()
    assert "ValueError: ours" in dump.errors()[0]
    assert "Could not record" in capsys.readouterr().out


def test_exception_dump_keeps_a_call_that_failed_and_the_program_goes_on(record: Recorder) -> None:
    model = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())
    wanted = model(batch()).asnumpy()
    alone = caught(wrong_shapes)
    with record(level="mix", task="exception_dump").recording(model):
        assert caught(wrong_shapes).partition(":")[0] == alone.partition(":")[0]
        assert np.array_equal(model(batch()).asnumpy(), wanted)
    dump = record.end()
    assert dump.errors() == []
    assert dump.names() == ["Functional.matmul.0.forward"]


class Late:
    """A tensor that tells an error of another call so many times before it answers."""

    def __init__(self, times: int) -> None:
        self.times = times

    @property
    def dtype(self) -> str:
        if self.times:
            self.times -= 1
            raise RuntimeError("of a kernel")
        return "Float32"


def test_an_error_that_hides_the_type_of_a_tensor_is_kept_for_the_program() -> None:
    forget_missed()
    assert dtype_name(Late(3)) == "Float32"
    with pytest.raises(RuntimeError, match="of a kernel"):
        raise_missed()
    with pytest.raises(RuntimeError, match="of a kernel"):
        dtype_name(Late(10**6))
    raise_missed()  # the tensor itself tells it again
