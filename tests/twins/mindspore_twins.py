"""Small trainings in MindSpore: ``python mindspore_twins.py NETWORK OUTPUT [--level LEVEL]``."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from twins import OF_IMAGES, STEPS, arguments, drawn, images, sentences

from msprobe.mindspore import PrecisionDebugger

NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


def parameter(*shape: int) -> ms.Parameter:
    return ms.Parameter(ms.Tensor(np.zeros(shape, np.float32)))


class Conv(nn.Cell):
    """Convolution, batch norm and pooling."""

    def __init__(self) -> None:
        super().__init__()
        around = {"pad_mode": "pad", "padding": 1}
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, **around), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, has_bias=True, **around), nn.BatchNorm2d(8)
        self.pool, self.relu, self.flatten = nn.MaxPool2d(2, 2), nn.ReLU(), nn.Flatten()
        self.head = nn.Dense(32, 5)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.pool(self.relu(self.norm1(self.conv1(x))))
        x = x + self.relu(self.norm2(self.conv2(x)))
        return self.head(self.flatten(ops.avg_pool2d(x, 2, 2)))


class Recurrent(nn.Cell):
    """An LSTM that reads words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Dense(8, 20)

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        return self.head(self.lstm(self.words(words))[0])


class Tied(nn.Cell):
    """The embedding's table is the weight of the last product."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 8), nn.LayerNorm((8,), epsilon=1e-5)
        self.middle = nn.Dense(8, 8)

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        x = ops.tanh(self.middle(self.norm(self.words(words))))
        return ops.matmul(x, self.words.embedding_table.T)


class Encoder(nn.Cell):
    """Attention in calls alone, dropout of nothing, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), parameter(7, 8)
        self.all, self.out = nn.Dense(8, 24), nn.Dense(8, 8)
        self.dropout, self.norm = nn.Dropout(p=0.0), nn.LayerNorm((8,), epsilon=1e-6)
        self.head = nn.Dense(8, 20)

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        x = self.words(words) + self.places
        q, k, v = ops.split(self.all(self.norm(x)), 8, axis=-1)
        scores = ops.bmm(q, k.swapaxes(1, 2)) / 8**0.5
        scores = ops.masked_fill(scores, ms.Tensor(np.triu(np.ones((7, 7), bool), 1)), -1e4)
        x = x + self.dropout(self.out(ops.bmm(ops.softmax(scores, -1), v)))
        x = x * ops.rsqrt(ops.mean(ops.pow(x, 2), -1, keep_dims=True) + 1e-6)
        return self.head(ops.silu(x))


class Plain(nn.Cell):
    """Weights used by calls, without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = parameter(192, 16), parameter(16, 5)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = ops.sigmoid(ops.matmul(x.reshape(6, -1), self.one))
        return ops.clamp(ops.matmul(ops.cat([x[:, :8], x[:, 8:]], axis=1), self.two), -3, 3)


class Half(nn.Cell):
    """The same layers in a half type."""

    def __init__(self) -> None:
        super().__init__()
        half = {"dtype": ms.float16}
        self.one, self.norm = nn.Dense(192, 32, **half), nn.LayerNorm((32,), epsilon=1e-5, **half)
        self.two = nn.Dense(32, 5, **half)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.norm(self.one(x.reshape(6, -1).astype(ms.float16)))
        return self.two(ops.relu(x)).astype(ms.float32)


class Attention(nn.Cell):
    """The framework's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 8), nn.LayerNorm((8,), epsilon=1e-5)
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Dense(8, 20)

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        x = self.norm(self.words(words))
        return self.head(x + self.attention(x, x, x, need_weights=False)[0])


class Gated(nn.Cell):
    """Two layers of a GRU, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Dense(16, 20)
        self.gru = nn.GRU(8, 8, num_layers=2, batch_first=True, bidirectional=True)

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        return self.head(self.gru(self.words(words))[0])


class Norms(nn.Cell):
    """Transposed and one-dimensional convolution, a norm of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Conv2dTranspose(3, 8, 2, 2, pad_mode="pad", has_bias=True)
        self.norm, self.act = nn.GroupNorm(2, 8), nn.LeakyReLU(0.1)
        self.conv = nn.Conv1d(8, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.soft, self.head = nn.Softmax(-1), nn.Dense(4, 5)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = self.conv(self.act(self.norm(self.up(x))).flatten(start_dim=2)).mean(-1)
        return self.head(x * self.soft(x))


class Styles(nn.Cell):
    """Layers here are functions in the twin, and the other way round. Some gradients are zero in exact arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.gelu = nn.Dense(192, 16), parameter(16, 16), nn.GELU(approximate=False)
        self.norm, self.three = nn.LayerNorm((16,), epsilon=1e-5), nn.Dense(16, 5)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        x = ops.relu(self.one(x.reshape(6, -1)))
        x = self.gelu(ops.matmul(x, self.two.T)) + ops.sum(x, 1, True)
        return ops.log_softmax(self.three(self.norm(x)), -1)


class Wrapped(nn.Cell):
    """The encoder in a cell of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Encoder()

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        return self.backbone(words)


KINDS = {
    "conv": Conv,
    "lstm": Recurrent,
    "tied": Tied,
    "encoder": Encoder,
    "plain": Plain,
    "half": Half,
    "attention": Attention,
    "gru": Gated,
    "norms": Norms,
    "styles": Styles,
    "wrapped": Wrapped,
}


def main() -> None:
    asked = arguments()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    model = KINDS[asked.network]()
    model.set_train()
    for name, own in model.parameters_and_names():
        path, dot, last = name.removeprefix("backbone.").rpartition(".")
        if own.requires_grad:
            value = drawn(f"{path}{dot}{NAMES.get(last, last)}", own.shape)
            own.set_data(ms.Tensor(value).astype(own.dtype))
    optimizer = nn.SGD(model.trainable_params(), learning_rate=0.05, momentum=0.9)
    batch = images if asked.network in OF_IMAGES else sentences

    def loss_of(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        logits = model(x)
        return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))

    gradients_of = ms.value_and_grad(loss_of, None, model.trainable_params())
    debugger = PrecisionDebugger(dump_path=asked.output, level=asked.level)
    for step in range(STEPS):
        x, y = map(ms.Tensor, batch(step))
        debugger.start(model)
        _, gradients = gradients_of(x, y)
        debugger.stop()
        optimizer(gradients)
        debugger.step()


if __name__ == "__main__":
    main()
