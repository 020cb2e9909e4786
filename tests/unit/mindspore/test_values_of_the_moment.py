"""A record holds the values of its moment, whatever writes into the memory before the step ends: every kind of view of
a parameter, and every way to write.

A tensor is read long after it was recorded. Here the values are 1 to 16 when they are recorded and below zero after
the write, so each number that is recorded tells when it was read; and they are compared with copies of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed here; `make test-mindspore` runs these")
pytestmark = pytest.mark.mindspore

from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402

# As programs have it that import functions by name: these names are not replaced while recording.
from mindspore.ops import assign, assign_add, scatter_update  # noqa: E402
from support.mindspore_dumps import Recorder, record  # noqa: E402

from msprobe.capture.mindspore import tensors  # noqa: E402
from msprobe.mindspore import MsprobeStep  # noqa: E402

__all__ = ["record"]

VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda t: t,
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "view": lambda t: t.view(16),
    "view of the same shape": lambda t: t.view(4, 4),
    "permute": lambda t: t.permute(1, 0),
    "transpose": lambda t: t.transpose(1, 0),
    "ops.transpose": lambda t: ops.transpose(t, (1, 0)),
    "to": lambda t: t.to(ms.float32),
    "astype": lambda t: t.astype(ms.float32),
    "ops.cast": lambda t: ops.cast(t, ms.float32),
    "float": lambda t: t.float(),
    "data": lambda t: t.data,
    "Tensor": lambda t: Tensor(t),
    "value": lambda t: t.value(),
    "reshape": lambda t: t.reshape(2, 8),
    "ops.reshape": lambda t: ops.reshape(t, (2, 8)),
    "mint.reshape": lambda t: mint.reshape(t, (2, 8)),
    "ops.Reshape": lambda t: ops.Reshape()(t, (2, 8)),
    "flatten": lambda t: t.flatten(),
    "rows": lambda t: t[1:],
    "first rows": lambda t: t[:2],
    "row": lambda t: t[0],
    "everything": lambda t: t[:],
    "new axis": lambda t: t[None],
    "T": lambda t: t.T,
    "mint.t": lambda t: mint.t(t),
    "broadcast_to": lambda t: t.broadcast_to((2, 4, 4)),
    "expand_as": lambda t: t.expand_as(t),
    "narrow": lambda t: t.narrow(0, 1, 2),
    "split": lambda t: t.split(2)[0],
    "ops.split": lambda t: ops.split(t, 2)[1],
    "chunk": lambda t: t.chunk(2)[0],
    "mint.chunk": lambda t: mint.chunk(t, 2)[1],
    "unsqueeze": lambda t: t.unsqueeze(0),
    "squeeze": lambda t: t.unsqueeze(0).squeeze(0),
    "select": lambda t: t.select(0, 1),
    "unbind": lambda t: t.unbind(0)[0],
    "diagonal": lambda t: t.diagonal(),
    "stop_gradient": lambda t: ops.stop_gradient(t),
    "Identity": lambda t: nn.Identity()(t),
    "dropout without training": lambda t: mint.nn.functional.dropout(t, training=False),
    "view of a view": lambda t: t.swapaxes(0, 1).reshape(4, 2, 2)[0],
}


def minus(p: Any) -> Any:
    """What the tests write."""
    return Tensor(np.full(p.shape, -5, np.float32))


class Optimized:
    """A step of an optimizer that is there, and compiled, before the recording."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make
        self.optimizer: Any = None

    def prepare(self, p: Any) -> None:
        before = p.asnumpy().copy()
        self.optimizer = self.make([p])
        self(p)
        ops.assign(p, Tensor(before))

    def __call__(self, p: Any) -> None:
        self.optimizer((Tensor(np.full(p.shape, 100, np.float32)),))


def by_index(p: Any) -> None:
    p[:] = -5.0


def put_by_a_view(p: Any) -> None:
    p.view(-1).copy_(minus(p).view(-1))


def through_a_compiled_function(p: Any) -> None:
    value = minus(p)

    @ms.jit
    def write() -> Any:
        ops.assign(p, value)
        return value

    write()


WRITES: dict[str, Callable[[Any], None]] = {
    "nn.Adam": Optimized(lambda ps: nn.Adam(ps, 200.0)),
    "nn.AdamWeightDecay": Optimized(lambda ps: nn.AdamWeightDecay(ps, 200.0)),
    "nn.SGD": Optimized(lambda ps: nn.SGD(ps, 1.0)),
    "nn.Momentum": Optimized(lambda ps: nn.Momentum(ps, 1.0, 0.9)),
    "nn.RMSProp": Optimized(lambda ps: nn.RMSProp(ps, 200.0)),
    "nn.Adagrad": Optimized(lambda ps: nn.Adagrad(ps, learning_rate=200.0)),
    "experimental SGD": Optimized(lambda ps: ms.experimental.optim.SGD(ps, 1.0)),
    "experimental AdamW": Optimized(lambda ps: ms.experimental.optim.AdamW(ps, 200.0)),
    "ops.assign": lambda p: ops.assign(p, minus(p)),
    "assign, imported by name": lambda p: assign(p, minus(p)),
    "assign_add, imported by name": lambda p: assign_add(p, minus(p) * 20),
    "ops.AssignAdd": lambda p: ops.AssignAdd()(p, minus(p) * 20),
    "ops.Assign": lambda p: ops.Assign()(p, minus(p)),
    "scatter_update, imported by name": lambda p: scatter_update(p, Tensor([0, 1, 2, 3], ms.int32), minus(p)),
    "ops.ScatterNdUpdate": lambda p: ops.ScatterNdUpdate()(p, Tensor([[0], [1], [2], [3]], ms.int32), minus(p)),
    "ops.ApplyMomentum": lambda p: ops.ApplyMomentum()(p, minus(p) * 0, 1.0, -20 * minus(p), 0.9),
    "set_data": lambda p: p.set_data(minus(p)),
    "assign_value": lambda p: p.assign_value(minus(p)),
    "copy_": lambda p: p.copy_(minus(p)),
    "copy_ of a view": put_by_a_view,
    "[]": by_index,
    "a compiled function": through_a_compiled_function,
}


class Seen(nn.Cell):
    """A cell without parameters of its own that returns a view of its argument."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        super().__init__()
        self.look = look

    def construct(self, x: Any) -> Any:
        return self.look(x)


class Views(nn.Cell):
    """A parameter and views of it, each in a cell; ``moment``: what they were."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names
        self.weight = Parameter(Tensor(np.arange(1, 17, dtype=np.float32).reshape(4, 4)), name="weight")
        self.views = nn.CellList([Seen(VIEWS[name]) for name in names])
        self.moment: list[Any] = []

    def construct(self, x: Any) -> Any:
        seen = [cell(self.weight) for cell in self.views]
        self.moment = [view.asnumpy().copy() for view in seen]
        return (x * self.weight).sum()


def prepared(how: str, model: Views) -> Callable[[Any], None]:
    write = WRITES[how]
    if isinstance(write, Optimized):
        write.prepare(model.weight)
    return write


def check(dump: Any, model: Views) -> None:
    """All that was recorded before the write is of the moment."""
    assert dump.errors() == []
    assert (model.weight.asnumpy() < 0).all(), "nothing was written"
    names = dump.names(0)
    last = next((i for i, name in enumerate(names) if ".sum.0" in name), len(names))
    before = tuple(name for name in names[:last] if not name.startswith("Optimizer."))
    files = dump.tensors()
    late = [name for name, values in files.items() if name.startswith(before) and (values < 1).any()]
    assert late == []
    for number, wanted in enumerate(model.moment):
        found = files.get(f"Cell.views.{number}.Seen.forward.0.output.0.npy", wanted)
        assert np.array_equal(found, wanted), model.names[number]
    assert sum(name.startswith(before) for name in files) >= len(model.names)


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read because time has passed."""
    monkeypatch.setattr(tensors, "MOST_LATE_SECONDS", 1e9)


@pytest.mark.parametrize("how", ["nn.Adam", "assign, imported by name"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_every_view_of_a_parameter_is_that_of_the_moment(record: Recorder, how: str, level: str) -> None:
    model = Views(list(VIEWS))
    write = prepared(how, model)
    with record(level=level, task="tensor").recording(model):
        model(ops.ones((4, 4)))
        write(model.weight)
    check(record.end(), model)


@pytest.mark.parametrize("how", WRITES)
def test_whatever_writes_later_views_are_those_of_the_moment(record: Recorder, how: str) -> None:
    model = Views(["itself", "swapaxes", "reshape", "to", "row", "stop_gradient"])
    write = prepared(how, model)
    with record(level="mix", task="tensor").recording(model):
        model(ops.ones((4, 4)))
        write(model.weight)
    check(record.end(), model)


class Tied(nn.Cell):
    """A matrix product with the transpose of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.ones((4, 4), np.float32)), name="weight")

    def construct(self, x: Any) -> Any:
        return ops.matmul(x, self.weight.swapaxes(0, 1))


class Weights(ms.train.Callback):  # type: ignore[misc]
    """Keeps what the weight is when a step begins."""

    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = weight
        self.seen: list[Any] = []

    def on_train_step_begin(self, run_context: Any) -> None:
        self.seen.append(self.weight.asnumpy().copy())


def trained(make: Callable[[Any], Any], *callbacks: Any) -> list[Any]:
    """The weights at the beginning of three steps of `Model.train`, and at the end."""
    net = Tied()
    rows = np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32)
    data = ms.dataset.GeneratorDataset([(row, row * 2) for row in rows], ["x", "y"], shuffle=False)
    model = ms.train.Model(net, nn.MSELoss(), make(net.trainable_params()))
    weights = Weights(net.weight)
    model.train(1, data, callbacks=[weights, *callbacks], dataset_sink_mode=False)
    return [*weights.seen, net.weight.asnumpy()]


@pytest.mark.parametrize(
    "make",
    [lambda ps: nn.Adam(ps, 0.1), lambda ps: nn.SGD(ps, 0.1), lambda ps: nn.Momentum(ps, 0.1, 0.9)],
    ids=["Adam", "SGD", "Momentum"],
)
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_views_of_weights_that_model_train_updates_are_those_of_the_moment(
    record: Recorder, level: str, make: Callable[[Any], Any]
) -> None:
    alone = trained(make)
    recorded = trained(make, MsprobeStep(record(level=level, task="tensor")))
    assert all(np.array_equal(one, other) for one, other in zip(recorded, alone, strict=True))
    assert not np.array_equal(alone[0], alone[1])
    dump = record.end()
    for step in range(3):
        files = dump.tensors(step)
        assert np.array_equal(files["Tensor.swapaxes.0.forward.input.0.npy"], alone[step])
        assert np.array_equal(files["Tensor.swapaxes.0.forward.output.0.npy"], alone[step].T)


class Averages(nn.Cell):
    """A batch norm, and views of its running averages, which it writes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.look = nn.CellList(
            [Seen(lambda t: t.view(1, 3, 1, 1)), Seen(lambda t: t.broadcast_to((2, 3))), Seen(lambda t: t[:2])]
        )
        self.moment: list[Any] = []

    def construct(self, x: Any) -> Any:
        seen = [look(self.norm.moving_mean) for look in self.look]
        self.moment = [view.asnumpy().copy() for view in seen]
        return self.norm(x)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_running_averages_are_those_of_the_moment(record: Recorder, level: str) -> None:
    model = Averages()
    model.set_train()
    x = Tensor(np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32) + 5)
    with record(level=level, task="tensor").recording(model):
        model(x)
    files = record.end().tensors()
    after = model.norm.moving_mean.asnumpy()
    assert (after != 0).all()
    assert all((moment == 0).all() for moment in model.moment)
    if level != "L1":
        for number, wanted in enumerate(model.moment):
            assert np.array_equal(files[f"Cell.look.{number}.Seen.forward.0.output.0.npy"], wanted), number
        assert np.array_equal(files["Cell.norm.BatchNorm2d.forward.0.parameters.moving_mean.npy"], after)
    if level != "L0":
        assert (files["Tensor.broadcast_to.0.forward.output.0.npy"] == 0).all()
        assert (files["Primitive.bn_train.BatchNorm.0.forward.input.3.npy"] == 0).all()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("level", ["mix", "L2"])
def test_results_that_a_batch_norm_does_not_write_have_no_numbers(record: Recorder, level: str, train: bool) -> None:
    model = nn.SequentialCell(nn.BatchNorm2d(3))
    model.set_train(train)
    x = Tensor(np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32))
    with record(level=level, task="tensor", summary_mode="md5").recording(model):
        model(x)
    dump = record.end()
    (entry,) = (name for name in dump.names() if ".BatchNorm." in name and not name.startswith("Cell"))
    results = dump.data()[entry]["output"]
    unwritten = [1, 2] if train else [1, 2, 3, 4]
    for place, result in enumerate(results):
        is_written = place not in unwritten
        assert (result["Max"] is not None) == is_written, place
        assert (result["md5"] is not None) == is_written, place
        assert ("data_name" in result) == is_written, place
        assert result.get("unsupported", "uninitialised").startswith("uninitialised")
    assert len(results) == 5
    assert len(dump.tensors()) == sum("data_name" in part for part in _tensors(dump.data()))


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value] if "dtype" in value else [leaf for part in value.values() for leaf in _tensors(part)]
    return [leaf for part in value for leaf in _tensors(part)] if isinstance(value, list) else []


def test_what_is_held_takes_no_more_memory_than_it_may(record: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "MOST_LATE_BYTES", 100_000)
    debugger = record(level="L1", task="tensor")
    held = debugger.recorder.tensors
    most: list[int] = []
    x = ops.ones((16, 64))  # 4096 bytes
    with debugger.recording():
        for _ in range(60):
            x = ops.tanh(x)
            most.append(sum(waiting.tensor.nbytes for waiting in held._late))
        wanted = x.asnumpy()
    assert 50_000 < max(most) <= 100_000
    files = record.end().tensors()
    assert len(files) == 120
    assert np.array_equal(files["Functional.tanh.59.forward.output.0.npy"], wanted)


@pytest.mark.parametrize("view", ["swapaxes", "reshape", "to", "stop_gradient"])
def test_what_save_is_given_is_that_of_the_moment(record: Recorder, view: str) -> None:
    weight = Parameter(Tensor(np.arange(1, 17, dtype=np.float32).reshape(4, 4)), name="weight")
    activation = ops.tanh(weight)
    debugger = record(level="debug", task="tensor")
    seen = VIEWS[view](weight)
    wanted = [seen.asnumpy().copy(), activation.asnumpy().copy()]
    debugger.save(seen, "view")
    debugger.save(activation, "activation")
    assign(weight, minus(weight))
    activation.copy_(minus(activation))
    debugger.step()
    dump = record.end()
    assert dump.errors() == []
    files = dump.tensors()
    assert np.array_equal(next(values for name, values in files.items() if name.startswith("view")), wanted[0])
    assert np.array_equal(next(values for name, values in files.items() if name.startswith("activ")), wanted[1])


class Counting(nn.Cell):
    """Holds a primitive that writes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Parameter(Tensor(np.zeros(3, np.float32)), name="count")
        self.add_to = ops.AssignAdd()

    def construct(self, x: Any) -> Any:
        return self.add_to(self.count, x)


def test_primitives_that_write_are_recorded_in_later_models_too(record: Recorder) -> None:
    plain, counting = nn.SequentialCell(nn.ReLU()), Counting()
    own, x = ops.AssignAdd.__call__, ops.ones(3)
    debugger = record(level="L1")
    for model in (plain, counting):
        with debugger.recording(model):
            model(x)
    assert ops.AssignAdd.__call__ is own
    assert "__call__" not in vars(nn.Optimizer)
    assert record.end().names(1) == ["Primitive.add_to.AssignAdd.0.forward"]
