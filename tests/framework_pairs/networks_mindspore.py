"""Networks as users of MindSpore write them, each recorded for two steps.

    .venv-mindspore/bin/python tests/framework_pairs/networks_mindspore.py FOLDER [NAME ...]

A name with a `+` behind it has the mistake that follows: `attention+scale`.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")

import mindspore as ms
import numpy as np
from common import MISTAKES, NETWORKS, asked, batch, value
from mindspore import nn, ops

from msprobe.mindspore import PrecisionDebugger

WIDTH, HEADS = 16, 2


class Mlp(nn.Cell):
    """Dense layers whose activation is an argument."""

    def __init__(self, activation: str, wrong: str) -> None:
        super().__init__()
        activation = {"other": "tanh" if activation != "tanh" else "sigmoid"}.get(wrong, activation)
        self.fc1 = nn.Dense(WIDTH, 32, activation=None if wrong == "none" else activation)
        self.fc2 = nn.Dense(32, WIDTH)

    def construct(self, x: Any) -> Any:
        return self.fc2(self.fc1(x))


class Gelu(nn.Cell):
    """An activation that is a layer."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(WIDTH, 32), nn.Dense(32, WIDTH)
        self.act = nn.GELU(approximate=wrong != "form")

    def construct(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)))


class Attention(nn.Cell):
    """Self-attention. ``how``: the product transposes, a call does, or a mask is added."""

    def __init__(self, how: str, wrong: str) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Dense(WIDTH, WIDTH) for _ in range(4))
        self.turn, self.fold = ops.Transpose(), ops.Reshape()
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.softmax = nn.Softmax(1 if wrong == "axis" else -1)
        self.how, self.wrong = how, wrong
        self.mask = ms.Tensor(np.triu(np.ones((6, 6), bool), 1))

    def split(self, x: Any) -> Any:
        return self.turn(self.fold(x, (4, 6, HEADS, -1)), (0, 2, 1, 3))

    def construct(self, x: Any) -> Any:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = self.scores(q, k) if self.how == "fused" else ops.matmul(q, k.swapaxes(-1, -2))
        if self.wrong != "scale":
            scores = scores / 8**0.5
        if self.how == "masked" and self.wrong != "mask":
            scores = ops.masked_fill(scores, self.mask, -1e4)
        mixed = self.fold(self.turn(self.mix(self.softmax(scores), v), (0, 2, 1, 3)), (4, 6, WIDTH))
        return self.o(mixed) if self.wrong == "residual" else x + self.o(mixed)


class Norms(nn.Cell):
    """A norm of the framework, or one by hand."""

    def __init__(self, how: str, wrong: str) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        if how == "layer":
            self.norm = nn.LayerNorm((WIDTH,), epsilon=1e-2 if wrong == "eps" else 1e-5)
        elif how == "group":
            self.norm = nn.GroupNorm(4, WIDTH)
        else:
            self.gain = ms.Parameter(ms.Tensor(np.ones(WIDTH, np.float32)), name="gain")
        self.how, self.wrong = how, wrong

    def construct(self, x: Any) -> Any:
        x = self.fc1(x)
        if self.how == "rms":
            size = ops.rsqrt(ops.mean(ops.square(x), -1, True) + 1e-6)
            x = x * size * (1.0 if self.wrong == "gain" else self.gain)
        elif self.how == "group":
            x = self.norm(x.reshape(24, WIDTH, 1, 1)).reshape(4, 6, WIDTH)
        else:
            x = self.norm(x)
        return self.fc2(x)


class Images(nn.Cell):
    """Convolution, batch norm, activation, pooling, a dense layer."""

    def __init__(self, how: str, wrong: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn = nn.BatchNorm2d(4, momentum=0.9) if how == "norm" else None
        self.pool = nn.AvgPool2d(2, 2) if (how == "average") != (wrong == "pool") else nn.MaxPool2d(2, 2)
        self.flat, self.fc = nn.Flatten(), nn.Dense(4 * 3 * 8, WIDTH)

    def construct(self, x: Any) -> Any:
        x = self.conv(x.expand_dims(1))
        x = x if self.bn is None else self.bn(x)
        return self.fc(self.flat(self.pool(ops.relu(x))))


class Tokens(nn.Cell):
    """An embedding, a mean over positions, scores."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.wrong = wrong

    def construct(self, x: Any) -> Any:
        x = self.table(x)
        return self.head(ops.sum(x, 1) if self.wrong == "sum" else ops.mean(x, 1))


class Gates(nn.Cell):
    """A gated layer; halves of one product, or two products."""

    def __init__(self, how: str, wrong: str) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Dense(WIDTH, 64, has_bias=wrong != "bias"), nn.Dense(32, WIDTH)
        self.silu, self.how, self.wrong = nn.SiLU(), how, wrong

    def construct(self, x: Any) -> Any:
        gate, up = ops.split(self.wide(x), 32, axis=-1)
        if self.wrong == "order":
            gate, up = up, gate
        return self.narrow((self.silu(gate) if self.how == "silu" else ops.sigmoid(gate)) * up)


class Places(nn.Cell):
    """Rotary places, by slices and concatenation; the last position is taken."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.fc, self.head = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        angles = np.outer(np.arange(6), 1 / 100 ** (np.arange(8) / 8))
        self.cos, self.sin = (ms.Tensor(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
        self.wrong = wrong

    def construct(self, x: Any) -> Any:
        x = self.fc(x)
        one, two = x[..., :8], x[..., 8:]
        parts = (one * self.cos - two * self.sin, two * self.cos + one * self.sin)
        x = ops.cat(parts[::-1] if self.wrong == "halves" else parts, -1)
        return self.head(x[:, -2 if self.wrong == "position" else -1])


class Branches(nn.Cell):
    """Two heads of one body, one of which gives it no gradient."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.body, self.first, self.second = (nn.Dense(WIDTH, WIDTH) for _ in range(3))
        self.wrong = wrong

    def construct(self, x: Any) -> Any:
        h = ops.tanh(self.body(x))
        return self.first(h) + self.second(h if self.wrong == "detach" else ops.stop_gradient(h))


def network(name: str, wrong: str) -> Any:
    kind, _, how = name.partition("-")
    if kind == "mlp":
        return Mlp(how, wrong)
    if kind in ("gelu", "tokens", "places", "branches"):
        return {"gelu": Gelu, "tokens": Tokens, "places": Places, "branches": Branches}[kind](wrong)
    return {"attention": Attention, "norm": Norms, "images": Images, "gates": Gates}[kind](how, wrong)


def loss_of(name: str, result: Any, target: Any, wrong: str) -> Any:
    if "tokens" in name:
        return nn.CrossEntropyLoss()(result, target)
    if "places" in name:
        return nn.MSELoss("sum" if wrong == "loss" else "mean")(result, ops.zeros_like(result))
    return ops.square(result).mean()


def optimizer_of(name: str, parameters: Any, wrong: str) -> Any:
    rate = 0.02 if wrong == "rate" else 0.01
    if name.startswith("gates"):
        return nn.Momentum(parameters, rate, 0.5 if wrong == "momentum" else 0.9)
    return nn.SGD(parameters, rate, weight_decay=0.1 if wrong == "decay" else 0.0)


def record(folder: str, name: str, wrong: str, level: str, dtype: Any) -> None:
    """Two steps of a network."""
    net = network(name, wrong)
    net.set_train()
    for number, parameter in enumerate(net.trainable_params()):
        parameter.set_data(ms.Tensor(value(number + (wrong == "weight" and number == 2), tuple(parameter.shape))))
        parameter.set_dtype(dtype)
    if isinstance(net, Places):
        net.cos, net.sin = net.cos.astype(dtype), net.sin.astype(dtype)
    optimizer = optimizer_of(name, net.trainable_params(), wrong)
    gradients = ms.value_and_grad(lambda x, t: loss_of(name, net(x), t, wrong), None, optimizer.parameters)
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=folder, task="statistics", level=level)
    for step in range(2):
        x, target = (ms.Tensor(one) for one in batch(name, step + 7 * (wrong == "data")))
        x = x.astype(dtype) if x.dtype == ms.float32 else x
        debugger.start(net)
        _, grads = gradients(x, target)
        optimizer(grads)
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    chosen = asked([*NETWORKS, *(f"{name}+{wrong}" for name, wrong, _ in MISTAKES)])
    for one in chosen.names:
        network_of, _, mistake = one.partition("+")
        record(os.path.join(chosen.folder, one), network_of, mistake, chosen.level, getattr(ms, chosen.dtype))
        print(one, flush=True)
