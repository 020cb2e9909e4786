"""PrecisionDebugger and its company as scripts for MindSpore use them."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import mint, nn, ops  # noqa: E402
from support.mindspore_dumps import Recorder, Toy, batch, gradients_of, record, train_step  # noqa: E402

from msprobe import log  # noqa: E402
from msprobe.errors import InvalidInputError, NotAvailableError  # noqa: E402
from msprobe.mindspore import MsprobeInitStep, MsprobeStep, PrecisionDebugger, seed_all  # noqa: E402

__all__ = ["record"]


def test_a_second_construction_is_the_first_object(record: Recorder, capsys: Any) -> None:
    first = record(level="L1")
    assert PrecisionDebugger(dump_path="/elsewhere", level="L0", opt=None) is first
    assert first.settings.level == "L1"
    assert mentions(capsys.readouterr().out, "debugger-constructed-twice")


def test_a_mindspore_that_does_not_report_kernels(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.capture.mindspore import kernels

    monkeypatch.setattr(kernels, "MsDispatchMode", None)
    with pytest.raises(NotAvailableError, match="L2"):
        record(level="L2")


def test_steps_of_a_resumed_training(record: Recorder) -> None:
    debugger = record(level="L0")
    debugger.set_init_step(7)
    train_step(debugger, Toy())
    assert record.end().steps() == ["step7"]


def test_the_callback_records_the_steps_of_model_train(record: Recorder) -> None:
    debugger = record(level="mix")
    network = nn.SequentialCell(nn.Dense(8, 4), nn.Tanh())

    def rows() -> Any:
        for number in range(3):
            yield batch(number, (8,)).asnumpy(), batch(number, (4,)).asnumpy()

    data = ms.dataset.GeneratorDataset(lambda: rows(), ["x", "y"], shuffle=False).batch(1)
    model = ms.train.Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1))
    model.train(1, data, callbacks=[MsprobeStep(debugger), MsprobeInitStep()], dataset_sink_mode=False)
    dump = record.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    for step in range(3):
        assert "Cell.0.Dense.forward.0" in dump.data(step)
        assert "Cell.0.Dense.backward.0" in dump.data(step)
        assert dump.data(step)["Cell.0.Dense.parameters_grad"]["weight"][0]["shape"] == [4, 8]
    assert dump.errors() == []
    with pytest.raises(InvalidInputError, match="PrecisionDebugger"):
        MsprobeStep(3)


@pytest.mark.parametrize("overflows", [False, True])
def test_memory_that_a_kernel_does_not_write_is_no_overflow(
    record: Recorder, monkeypatch: pytest.MonkeyPatch, overflows: bool
) -> None:
    from msprobe.capture.mindspore import tensors
    from msprobe.capture.mindspore.calls import primitives

    model = nn.SequentialCell(nn.BatchNorm2d(3))
    model.set_train()
    debugger = record(level="L1", task="overflow_check", overflow_nums=-1)
    garbage: set[int] = set()
    real, written = tensors.host_array, primitives.written_results

    def noted(is_training: bool, result: Any) -> Any:
        garbage.update(id(result[place]) for place in (1, 2))
        return written(is_training, result)

    def with_garbage(tensor: Any) -> Any:
        found = real(tensor)
        return found._replace(stored=np.full((3,), np.nan, np.float32)) if id(tensor) in garbage else found

    monkeypatch.setattr(primitives, "written_results", noted)
    monkeypatch.setattr(tensors, "host_array", with_garbage)
    x = batch(0, (2, 3, 4, 4))
    if overflows:
        x[0, 0, 0, 0] = float("inf")
    debugger.start(model)
    model(x)
    debugger.stop()
    debugger.step()
    assert len(garbage) == 2
    assert ([name for name in record.end().names() if "BatchNorm.0" in name] != []) == overflows


def test_saved_variables_and_their_gradients(record: Recorder) -> None:
    debugger = record(level="debug", task="tensor")
    w = ms.Parameter(batch(5, (8, 4)), name="w")

    def loss(x: Any) -> Any:
        debugger.save(x, "x")
        y = ops.matmul(x, w)
        debugger.save(y, "y")
        debugger.save({"a": [y, None], "n": 3}, "nested")
        z = ops.tanh(y)
        debugger.save(z, "y")
        debugger.save(z, "a/b", save_backward=False)
        debugger.save(w, "w")
        return z.sum()

    x = batch(1)
    _, gradients = ms.value_and_grad(loss, 0, [w])(x)
    debugger.step()
    dump = record.end()
    data = dump.saved()
    assert list(data) == [
        "x.0.debug",
        "x_grad.0.debug",
        "y.0.debug",
        "y_grad.0.debug",
        "nested.0.debug",
        "nested_grad.0.debug",
        "y.1.debug",
        "y_grad.1.debug",
        "a_b.0.debug",
        "w.0.debug",
        "w_grad.0.debug",
    ]
    files = dump.tensors()
    t = np.tanh(x.asnumpy() @ w.asnumpy())
    assert np.allclose(files["y_grad.0.debug.npy"], 1 - t**2, atol=1e-5)
    assert np.array_equal(files["y_grad.1.debug.npy"], np.ones((3, 4)))
    assert np.array_equal(files["w_grad.0.debug.npy"], gradients[1][0].asnumpy())
    assert np.array_equal(files["x_grad.0.debug.npy"], gradients[0].asnumpy())
    assert np.array_equal(files["nested.0.debug.a.0.npy"], files["y.0.debug.npy"])
    assert data["nested_grad.0.debug"]["a"][1] is None
    assert data["nested_grad.0.debug"]["a"][0]["shape"] == [3, 4]
    assert "a_b.0.debug.npy" in files
    assert not w.hooks()


def test_wrong_variables_give_a_warning_and_the_rest_is_saved(record: Recorder, capsys: Any) -> None:
    debugger = record(level="debug")
    debugger.save(None, "nothing")
    debugger.save(batch(), 3)
    debugger.save([batch(), object()], "half")
    debugger.step()
    data = record.end().saved()
    assert list(data) == ["half.0.debug", "half_grad.0.debug"]
    assert data["half.0.debug"][0]["shape"] == [3, 8]
    said = capsys.readouterr().out
    assert "'nothing'" in said
    assert mentions(said, "save-name-wrong", name=3)


def test_seed_all_makes_two_runs_equal() -> None:
    def draw() -> list[Any]:
        seed_all(seed=7, rm_dropout=False)
        return [
            random.random(),
            np.random.rand(),
            ops.standard_normal((3,)).asnumpy().tolist(),
            nn.Dense(4, 4).weight.asnumpy().tolist(),
        ]

    assert draw() == draw()


def test_seed_all_removes_dropout_on_request_and_puts_it_back() -> None:
    x = batch(0, (50, 50))
    seed_all(rm_dropout=True)
    try:
        layers = [ops.Dropout(0.5), ops.Dropout(keep_prob=0.3)]
        assert all(np.array_equal(layer(x)[0].asnumpy(), x.asnumpy()) for layer in layers)
        assert isinstance(layers[0], ops.Dropout)
        assert np.array_equal(ops.dropout(x, 0.5).asnumpy(), x.asnumpy())
        assert mint.nn.functional.dropout(x, 0.5) is x
    finally:
        seed_all(rm_dropout=False)
    assert (ops.Dropout(0.5)(x)[0].asnumpy() == 0).any()
    assert (ops.dropout(x, 0.5).asnumpy() == 0).any()


@pytest.mark.parametrize(
    "arguments", [{"seed": -1}, {"seed": 2**32}, {"seed": True}, {"seed": 1.5}, {"mode": 1}, {"rm_dropout": "yes"}]
)
def test_wrong_arguments_of_seed_all(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(arguments))):
        seed_all(**arguments)


def test_the_names_of_earlier_tools_can_be_imported(record: Recorder) -> None:
    from msprobe.mindspore.common.utils import MsprobeStep as Same

    assert Same is MsprobeStep


def test_what_has_no_effect_is_reported_once(record: Recorder, capsys: Any) -> None:
    log.forget_once()
    debugger = record(level="L1", buffers=True, risk_level="CORE")
    train_step(debugger, Toy())
    record.end()
    assert "buffers, risk_level" in capsys.readouterr().out


def test_an_iteration_as_a_block(record: Recorder) -> None:
    model = Toy()
    gradients = gradients_of(model)
    with record(level="L0") as debugger:
        for seed in range(2):
            with debugger.recording(model):
                gradients(batch(seed))
        with contextlib.suppress(KeyError), debugger.recording(model):
            raise KeyError
    dump = record.end()
    assert dump.steps() == ["step0", "step1", "step2"]
    assert dump.data(2) == {}
    assert "Cell.ln.LayerNorm.backward.0" in dump.names(1)
