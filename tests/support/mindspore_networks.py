"""Small MindSpore trainings of many kinds. Each returns what must be the same bit for bit with recording on and off.

Some kernels of MindSpore's CPU backend round differently where memory begins at another address (log_softmax does): a
training with them is not the same twice, recorded or not. They are not used here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

# Between `with step(model):` a step is recorded, or not.
Step = Callable[[Any], contextlib.AbstractContextManager[None]]
Result = list[bytes]
STEPS = 3


@contextlib.contextmanager
def unrecorded(model: Any) -> Iterator[None]:
    """A step that nobody records."""
    yield


def tensor(values: Any) -> Any:
    """A tensor whose memory begins at a multiple of 64: MindSpore works on numpy's memory, which begins anywhere."""
    room = np.empty(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    aligned = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    aligned[...] = values
    return ms.Tensor(aligned)


def numbers(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Any:
    return tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def whole(shape: tuple[int, ...], high: int, seed: int) -> Any:
    return tensor(np.random.default_rng(seed).integers(0, high, shape).astype(np.int32))


def bits(values: Any) -> Result:
    """The bytes of tensors, nested ones too."""
    if isinstance(values, (list, tuple)):
        return [part for value in values for part in bits(value)]
    if type(values).__name__ in ("RowTensor", "RowTensorInner"):
        return bits([values.indices, values.values])
    if values.dtype == ms.bfloat16:
        values = values.astype(ms.float32)
    return [values.asnumpy().tobytes()]


def train(model: nn.Cell, loss: Callable[..., Any], optimizer: Any, batches: Any, step: Step) -> Result:
    """STEPS steps by hand."""
    gradients = ms.value_and_grad(loss, None, optimizer.parameters)
    found: Result = []
    for number in range(STEPS):
        with step(model):
            value, grads = gradients(*batches(number))
        optimizer(grads)
        found += bits(value) + bits(list(grads))
    return found + bits(list(model.get_parameters()))


def dense(step: Step) -> Result:
    model = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dropout(p=0.3), nn.Dense(16, 4))
    model.set_train()
    optimizer = nn.Adam(model.trainable_params(), 0.01)

    def loss(x: Any) -> Any:
        return (model(x) ** 2).mean()

    return train(model, loss, optimizer, lambda n: [numbers((5, 8), n)], step)


def convolution(step: Step) -> Result:
    model = nn.SequentialCell(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(8 * 16, 10)
    )
    model.set_train()
    optimizer = nn.Momentum(model.trainable_params(), 0.05, 0.9)

    def batches(n: int) -> Any:
        return numbers((4, 3, 8, 8), n), numbers((4, 10), n + 50)

    def loss(x: Any, y: Any) -> Any:
        return ((model(x) - y) ** 2).mean()

    return train(model, loss, optimizer, batches, step)


def lstm(step: Step) -> Result:
    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(6, 8, num_layers=2, batch_first=True)
            self.head = nn.Dense(8, 3)

        def construct(self, x: Any) -> Any:
            found, _ = self.lstm(x)
            return self.head(found[:, -1])

    model = Model()
    optimizer = nn.SGD(model.trainable_params(), 0.1)

    def loss(x: Any) -> Any:
        return (ops.sigmoid(model(x)) ** 2).sum()

    return train(model, loss, optimizer, lambda n: [numbers((2, 5, 6), n)], step)


def transformer(step: Step) -> Result:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)
    model.set_train()
    optimizer = nn.AdamWeightDecay(model.trainable_params(), 0.01)

    def loss(x: Any) -> Any:
        return (model(x) ** 2).sum()

    return train(model, loss, optimizer, lambda n: [numbers((2, 5, 8), n)], step)


def embedding(step: Step) -> Result:
    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.EmbeddingLookup(20, 8, target="CPU", sparse=True)
            self.head = nn.Dense(8, 20)

        def construct(self, x: Any) -> Any:
            return self.head(self.table(x))

    model = Model()
    parameters = model.trainable_params()

    def loss(x: Any) -> Any:
        return (ops.sigmoid(model(x)) ** 2).mean()

    gradients = ms.value_and_grad(loss, None, parameters)
    found: Result = []
    for number in range(STEPS):
        ids = whole((3, 4), 20, number)
        with step(model):
            value, grads = gradients(ids)
        found += bits(value) + bits(list(grads))
        # The dynamic graph gives the rows that were used; no optimizer of MindSpore 2.10 takes them.
        for parameter, gradient in zip(parameters, grads, strict=True):
            values, part = parameter.asnumpy().copy(), gradient.asnumpy()
            if part.shape == values.shape:
                values -= 0.1 * part
            else:
                np.subtract.at(values, ids.asnumpy().reshape(-1), 0.1 * part.reshape(-1, values.shape[1]))
            parameter.set_data(tensor(values))
    return found + bits(list(model.get_parameters()))


def recompute(step: Step) -> Result:
    class Block(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 8)

        def construct(self, x: Any) -> Any:
            return ops.tanh(self.dense(x)) + x

    model = nn.SequentialCell(nn.Dense(8, 8), Block(), Block())
    model[1].recompute()
    model[2].recompute()
    optimizer = nn.Adam(model.trainable_params(), 0.01)

    def loss(x: Any) -> Any:
        return (model(x) ** 2).mean()

    return train(model, loss, optimizer, lambda n: [numbers((3, 8), n)], step)


def mixed_precision(step: Step) -> Result:
    from mindspore import amp

    model = amp.auto_mixed_precision(
        nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,)), nn.GELU(), nn.Dense(16, 4)), "O2"
    )
    optimizer = nn.Adam(model.trainable_params(), 0.01)
    scale = 128.0

    def loss(x: Any) -> Any:
        return (model(x).astype(ms.float32) ** 2).mean() * scale

    return train(
        model,
        loss,
        optimizer,
        lambda n: [numbers((4, 8), n, np.float16)],
        step,
    )


def tuple_outputs(step: Step) -> Result:
    class Pair(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Dense(8, 4)
            self.right = nn.Dense(8, 4)

        def construct(self, x: Any, scale: Any = None) -> Any:
            return self.left(x), None, [self.right(x), 3], {"x": x * scale}

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.pair = Pair()

        def construct(self, x: Any) -> Any:
            left, _, (right, times), named = self.pair(x, scale=x)
            return (left * right * times).sum() + named["x"].sum()

    model = Model()
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    return train(model, model, optimizer, lambda n: [numbers((3, 8), n)], step)


def train_one_step(step: Step) -> Result:
    model = nn.SequentialCell(nn.Dense(8, 16), nn.Tanh(), nn.Dense(16, 4))
    whole_step = nn.TrainOneStepCell(nn.WithLossCell(model, nn.MSELoss()), nn.Adam(model.trainable_params(), 0.01))
    whole_step.set_train()
    found: Result = []
    for number in range(STEPS):
        with step(model):
            value = whole_step(numbers((3, 8), number), numbers((3, 4), number))
        found += bits(value)
    return found + bits(list(whole_step.get_parameters()))


def model_api(step: Step) -> Result:
    network = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 4))
    found: Result = []

    class Steps(ms.train.Callback):  # type: ignore[misc]
        def on_train_step_begin(self, run_context: Any) -> None:
            self.running = step(network)
            self.running.__enter__()

        def on_train_step_end(self, run_context: Any) -> None:
            self.running.__exit__(None, None, None)
            found.extend(bits(run_context.original_args().net_outputs))

    def rows() -> Iterator[tuple[Any, Any]]:
        for number in range(STEPS):
            yield numbers((8,), number).asnumpy(), numbers((4,), number + 50).asnumpy()

    data = ms.dataset.GeneratorDataset(lambda: rows(), ["x", "y"], shuffle=False).batch(1)
    optimizer = nn.Adam(network.trainable_params(), 0.01)
    model = ms.train.Model(network, nn.MSELoss(), optimizer)
    model.train(1, data, callbacks=[Steps()], dataset_sink_mode=False)
    return found + bits(list(network.get_parameters()))


def two_optimizers(step: Step) -> Result:
    maker = nn.SequentialCell(nn.Dense(4, 8), nn.Tanh())
    judge = nn.SequentialCell(nn.Dense(8, 8), nn.LeakyReLU(), nn.Dense(8, 1), nn.Sigmoid())
    for_maker = nn.RMSProp(maker.trainable_params(), 0.01)
    for_judge = nn.Adam(judge.trainable_params(), 0.01)

    def judged(noise: Any, real: Any) -> Any:
        return ops.log(1 - judge(maker(noise)) + 1e-6).mean() + ops.log(judge(real) + 1e-6).mean()

    def fooled(noise: Any) -> Any:
        return ops.log(judge(maker(noise)) + 1e-6).mean()

    judging = ms.value_and_grad(judged, None, judge.trainable_params())
    making = ms.value_and_grad(fooled, None, maker.trainable_params())
    found: Result = []
    for number in range(STEPS):
        with step([maker, judge]):
            one, grads = judging(numbers((3, 4), number), numbers((3, 8), number + 9))
            for_judge(grads)
            other, grads = making(numbers((3, 4), number))
            for_maker(grads)
        found += bits([one, other])
    return found + bits([*maker.get_parameters(), *judge.get_parameters()])


def in_place(step: Step) -> Result:
    class Writes(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 8)
            self.seen = ms.Parameter(ms.Tensor(np.zeros(8, np.float32)), name="seen", requires_grad=False)

        def construct(self, x: Any) -> Any:
            y = self.dense(x)
            z = ops.tanh(y)
            z += 1
            z[0] = 0.5
            ops.assign_add(self.seen, ops.stop_gradient(z.mean(axis=0)))
            return ops.concat([z, y[:, :2]], axis=1).T

    model = nn.SequentialCell(Writes(), nn.Flatten())
    optimizer = nn.SGD(model.trainable_params(), 0.1)

    def loss(x: Any) -> Any:
        return (model(x) ** 2).sum()

    return train(model, loss, optimizer, lambda n: [numbers((3, 8), n)], step)


def shared_and_frozen(step: Step) -> Result:
    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(12, 8)
            self.frozen = nn.Dense(8, 8)
            for parameter in self.frozen.get_parameters():
                parameter.requires_grad = False
            self.body = nn.Dense(8, 8)

        def construct(self, x: Any) -> Any:
            h = self.body(self.frozen(self.table(x)))
            h = self.body(h) + h * 2 + ops.sin(h)
            return ops.matmul(h, self.table.embedding_table.T)

    model = Model()
    optimizer = nn.Adam(model.trainable_params(), 0.01)

    def loss(x: Any) -> Any:
        return (ops.sigmoid(model(x)) ** 2).mean()

    return train(model, loss, optimizer, lambda n: [whole((2, 5), 12, n)], step)


@ms.jit
def squared(x: Any) -> Any:
    return ops.square(x) + 1


def compiled(step: Step) -> Result:
    class Part(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.SequentialCell(nn.Dense(8, 8), nn.Tanh())

        @ms.jit
        def construct(self, x: Any) -> Any:
            return self.body(x) * 2

    class Model(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Dense(8, 8)
            self.part = Part()

        def construct(self, x: Any) -> Any:
            return squared(self.part(self.before(x))[0:2])

    model = Model()
    optimizer = nn.Adam(model.trainable_params(), 0.01)

    def loss(x: Any) -> Any:
        return model(x).sum()

    return train(model, loss, optimizer, lambda n: [numbers((3, 8), n)], step)


NETWORKS: dict[str, Callable[[Step], Result]] = {
    network.__name__: network
    for network in (
        dense,
        convolution,
        lstm,
        transformer,
        embedding,
        recompute,
        mixed_precision,
        tuple_outputs,
        train_one_step,
        model_api,
        two_optimizers,
        in_place,
        shared_and_frozen,
        compiled,
    )
}


def run(name: str, step: Step = unrecorded, mode: int = ms.PYNATIVE_MODE) -> Result:
    """One training from the same beginning, and the state of the random numbers behind it."""
    ms.set_context(mode=mode)
    try:
        return _run(name, step)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def _run(name: str, step: Step) -> Result:
    ms.set_seed(11)
    np.random.seed(11)
    found = NETWORKS[name](step)
    return [*found, *bits(ops.standard_normal((4,))), np.random.rand(4).tobytes()]
