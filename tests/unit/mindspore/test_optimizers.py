"""Steps of optimizers: what they were given, what they made of it, and their settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import nn, ops  # noqa: E402
from mindspore.experimental import optim  # noqa: E402
from support.mindspore_dumps import Recorder, batch, record  # noqa: E402

from msprobe.mindspore import MsprobeStep  # noqa: E402

__all__ = ["record"]


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(8, 4)
        self.norm = nn.LayerNorm((4,))

    def construct(self, x: Any) -> Any:
        return self.norm(ops.tanh(self.dense(x)))


def adam(weights: Any) -> Any:
    return nn.Adam(weights, learning_rate=0.01, weight_decay=0.1, beta1=0.8)


def train(make: Any, debugger: Any = None, model_given: bool = True, steps: int = 2) -> tuple[list[bytes], list[Any]]:
    """Losses and weights as bytes; the dense layer's weight before each step and behind the last."""
    ms.set_seed(3)
    np.random.seed(3)
    model = Model()
    optimizer = make(model.trainable_params())
    gradients = ms.value_and_grad(lambda x: ops.square(model(x) - 1).sum(), None, optimizer.parameters)
    found: list[bytes] = []
    weights = [model.dense.weight.asnumpy().copy()]
    for number in range(steps):
        if debugger is not None:
            debugger.start(model if model_given else None)
        loss, grads = gradients(batch(number))
        optimizer(grads)
        if debugger is not None:
            debugger.stop()
            debugger.step()
        found.append(loss.asnumpy().tobytes())
        weights.append(model.dense.weight.asnumpy().copy())
    kept = [parameter.asnumpy().tobytes() for parameter in (*model.get_parameters(), *optimizer.get_parameters())]
    return found + kept, weights


def plain(leaf: Any) -> Any:
    """The number or word that a leaf of a group holds."""
    if isinstance(leaf, list):
        return [plain(one) for one in leaf]
    return leaf.get("value", leaf.get("Max"))


@pytest.mark.parametrize("level", ["mix", "L1", "L0"])
def test_a_step_is_recorded_with_weights_before_and_after_and_nothing_changes(record: Recorder, level: str) -> None:
    alone, _ = train(adam)
    recorded, weights = train(adam, record(level=level))
    assert recorded == alone
    dump = record.end()
    assert dump.errors() == []
    for step in (0, 1):
        entry = dump.data(step)["Optimizer.Adam.0.forward"]
        assert list(entry["input_kwargs"]) == ["dense.weight", "dense.bias", "norm.gamma", "norm.beta"]
        before, after = entry["input_kwargs"]["dense.weight"], entry["output"][0]["dense.weight"]
        assert before["weight"]["Max"] == weights[step].max()
        assert after["weight"]["Max"] == weights[step + 1].max() != before["weight"]["Max"]
        assert list(before) == ["weight", "grad", "moment1", "moment2"]
        assert list(after) == ["weight", "moment1", "moment2"]
        if level != "L1":
            gradient = dump.data(step)["Cell.dense.Dense.parameters_grad"]["weight"][0]
            assert before["grad"]["Norm"] == gradient["Norm"] > 0
    assert before["moment1"]["Max"] != 0 != after["moment1"]["Max"]
    assert entry["class"] == "mindspore.nn.optim.adam.Adam"
    assert plain(entry["state"]["global_step"]) == 1
    assert entry["msprobe"]["source"].startswith(__file__)


def test_settings_are_those_that_hold_for_each_parameter(record: Recorder) -> None:
    train(adam, record(level="L1"))
    decayed, others = record.end().data()["Optimizer.Adam.0.forward"]["groups"]
    # MindSpore leaves parameters out of weight decay whose names speak of gamma and beta.
    assert decayed["params"] == ["dense.weight", "dense.bias"]
    assert others["params"] == ["norm.gamma", "norm.beta"]
    assert plain(decayed["weight_decay"]) == pytest.approx(0.1)
    assert plain(others["weight_decay"]) == 0
    for group in (decayed, others):
        assert plain(group["learning_rate"]) == pytest.approx(0.01)
        assert plain(group["beta1"]) == pytest.approx(0.8)
        assert plain(group["eps"]) == pytest.approx(1e-8)
        assert plain(group["use_nesterov"]) is False


def test_groups_schedules_and_optimizers_with_param_groups(record: Recorder) -> None:
    def grouped(weights: Any) -> Any:
        rate = nn.ExponentialDecayLR(0.1, 0.9, 3)
        return nn.Momentum([{"params": weights[:1], "lr": 0.5}, {"params": weights[1:]}], rate, 0.9)

    train(grouped, record(level="L1"), model_given=False)
    entry = record.end().data()["Optimizer.Momentum.0.forward"]
    first, second = entry["groups"]
    assert plain(first["learning_rate"]["learning_rate"]) == 0.5
    assert plain(second["learning_rate"]["schedule"]) == "ExponentialDecayLR"
    assert plain(second["learning_rate"]["decay_rate"]) == 0.9
    assert plain(first["momentum"]) == pytest.approx(0.9)
    assert "moments" in entry["input_kwargs"]["dense.weight"]

    def two(weights: Any) -> Any:
        return optim.AdamW([{"params": weights[:2], "lr": 0.5}, {"params": weights[2:]}], betas=(0.7, 0.9))

    alone, _ = train(two)
    assert train(two, record(level="L1"))[0] == alone
    entry = record.end().data()["Optimizer.AdamW.0.forward"]
    first, second = entry["groups"]
    assert (plain(first["lr"]), plain(first["betas"])) == (0.5, [0.7, 0.9])
    assert second["params"] == ["norm.gamma", "norm.beta"]
    assert {"exp_avg", "exp_avg_sq"} < set(entry["output"][0]["norm.beta"])


def test_the_step_inside_of_a_training_step_is_recorded(record: Recorder) -> None:
    debugger = record(level="mix")
    model = Model()
    training = nn.TrainOneStepCell(nn.WithLossCell(model, nn.MSELoss()), nn.Adam(model.trainable_params(), 0.01))
    with debugger.recording(training):
        training(batch(), batch(1, (3, 4)))
    dump = record.end()
    assert next(iter(dump.data()["Optimizer.Adam.0.forward"]["input_kwargs"])) == "network._backbone.dense.weight"
    parents = dump.file(name="construct.json")
    assert parents["Optimizer.Adam.0.forward"] == parents["Cell.optimizer.Adam.forward.0"] == "optimizer"
    assert "Cell.network._backbone.dense.Dense.forward.0" in dump.names()


def test_the_steps_of_model_train_are_recorded(record: Recorder) -> None:
    import mindspore.dataset as ds

    model = Model()
    data = ds.NumpySlicesDataset((batch(0, (4, 8)).asnumpy(), batch(1, (4, 4)).asnumpy()), shuffle=False).batch(2)
    whole = ms.Model(model, nn.MSELoss(), nn.Momentum(model.trainable_params(), 0.01, 0.9))
    whole.train(1, data, callbacks=[MsprobeStep(record(level="L1"))], dataset_sink_mode=False)
    dump = record.end()
    assert dump.steps() == ["step0", "step1"]
    for step in (0, 1):
        entry = dump.data(step)["Optimizer.Momentum.0.forward"]
        before, after = entry["input_kwargs"]["dense.weight"], entry["output"][0]["dense.weight"]
        assert before["weight"]["Norm"] != after["weight"]["Norm"]
    first = dump.data(0)["Optimizer.Momentum.0.forward"]["output"][0]
    second = dump.data(1)["Optimizer.Momentum.0.forward"]["input_kwargs"]
    # Rows are numbered in each step.
    assert {**first["dense.weight"]["weight"], "row": 0} == {**second["dense.weight"]["weight"], "row": 0}


def test_a_step_that_raises_is_recorded_and_raises_the_same(record: Recorder) -> None:
    debugger = record(level="L1")
    model = Model()
    optimizer = nn.Momentum(model.trainable_params(), 0.01, 0.9)
    wrong = [ops.ones((1, 1))]
    with pytest.raises(Exception) as alone:
        optimizer(wrong)
    with debugger.recording(model), pytest.raises(type(alone.value)) as recorded:
        optimizer(wrong)
    assert str(recorded.value).splitlines()[0] == str(alone.value).splitlines()[0]
    entry = record.end().data()["Optimizer.Momentum.0.forward"]
    assert entry["output"] == [None]
    assert entry["error"].startswith(type(alone.value).__name__)


def test_steps_are_left_out_or_saved_whole_as_asked_for(record: Recorder) -> None:
    train(adam, record(level="L1", task="tensor", optimizer=False), steps=1)
    assert record.end().names(part="Optimizer.") == []
    train(adam, record(level="L1", task="tensor"), steps=1)
    assert [name for name in record.end().tensors() if name.startswith("Optimizer.")] == []
    _, weights = train(adam, record(level="L1", task="tensor", optimizer=True), steps=1)
    saved = record.end().tensors()
    assert np.array_equal(saved["Optimizer.Adam.0.forward.kwargs.dense.weight.weight.npy"], weights[0])
    assert np.array_equal(saved["Optimizer.Adam.0.forward.output.0.dense.weight.weight.npy"], weights[1])


def test_after_stop_optimizers_are_as_they_were(record: Recorder) -> None:
    kinds = nn.Optimizer, optim.Optimizer
    before = [dict(vars(kind)) for kind in kinds]
    debugger = record(level="mix")
    model = Model()
    debugger.start(model)
    assert [dict(vars(kind)) for kind in kinds] != before
    debugger.stop()
    assert [dict(vars(kind)) for kind in kinds] == before


def test_a_step_stands_behind_the_backward_pass(record: Recorder) -> None:
    train(adam, record(level="mix", record_root=True), steps=1)
    names = record.end().names()
    # The gradient of the model's input is not asked for, so nothing tells that its backward pass is over.
    assert "Cell.root.Model.backward.0" in names
    assert max(names.index(name) for name in names if ".backward" in name) < names.index("Optimizer.Adam.0.forward")
