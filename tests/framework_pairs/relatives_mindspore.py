"""The networks of `relatives.py` in MindSpore: ``relatives_mindspore.py FOLDER [NAME ...]``."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")

import mindspore as ms
import numpy as np
from common import asked, value
from mindspore import nn, ops
from relatives import HEALTHY, IMAGES, RELATIVES, images, rows

from msprobe.mindspore import PrecisionDebugger

WIDTH = 16


class Rows(nn.Cell):
    """Two dense layers and what is between them."""

    def __init__(self, name: str, wrong: str) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.leaky = nn.LeakyReLU() if wrong == "slope" else nn.LeakyReLU(0.01)
        self.softmax = nn.Softmax(1 if wrong == "axis" else -1)
        if name == "turned":
            self.table = ms.Parameter(ms.Tensor(value(9, (WIDTH, WIDTH))), name="table")
        if name == "normed":
            self.norm = nn.LayerNorm((WIDTH,)) if wrong else nn.LayerNorm((WIDTH,), epsilon=1e-5)
        if name == "reduced":
            self.scale = ms.Parameter(ms.Tensor(value(9, (WIDTH,))), name="scale")
        self.name, self.wrong = name, wrong

    def construct(self, x: Any) -> Any:
        x = self.fc1(x)
        if self.name == "leaky":
            x = self.leaky(x)
        elif self.name == "spread":
            x = x / ops.std(x, -1, 0 if self.wrong == "count" else 1, True)
        elif self.name == "turned":
            x = ops.matmul(x, self.table if self.wrong == "layout" else self.table.swapaxes(0, 1))
        elif self.name == "scores":
            x = self.softmax(x)
        elif self.name == "normed":
            x = self.norm(x * 0.01)
        elif self.name == "reduced":
            x = ops.sum(x, -1, True) if self.wrong else ops.mean(x, -1, True)
            x = x * self.scale
        elif self.name == "centred":
            x = x - (ops.ReduceSum(True)(x, -1) if self.wrong else ops.ReduceMean(True)(x, -1))
        elif self.name == "exponential":
            x = ops.elu(x) if not self.wrong else ops.celu(x, 0.5)
        elif self.name == "cumulated":
            x = ops.cumsum(x, 1 if self.wrong else 2)
        elif self.name == "clamped":
            x = ops.clamp(x, -1.0, 2.0 if self.wrong else 1.0)
        else:
            x = ops.tanh(x)
        return self.fc2(x)


class Images(nn.Cell):
    """A convolution, a dense layer, and what is between them."""

    def __init__(self, name: str, wrong: str) -> None:
        super().__init__()
        way = {"pad_mode": "same"} if wrong == "same" else {"pad_mode": "pad", "padding": 1}
        self.conv = nn.Conv2d(1, 4, 3, stride=2, has_bias=True, **way)
        self.bn = nn.BatchNorm2d(4, momentum=0.1 if wrong == "momentum" else 0.9) if name == "moving" else None
        self.flat, self.fc = nn.Flatten(), nn.Dense(64 if name != "upsampled" else 256, WIDTH)
        self.name, self.wrong = name, wrong

    def construct(self, x: Any) -> Any:
        x = self.conv(x)
        if self.bn is not None:
            x = self.bn(x)
        elif self.name == "averages":
            x = ops.avg_pool2d(x, 3, 1, 1, count_include_pad=self.wrong == "counted")
        elif self.name == "upsampled":
            corners = self.wrong == "corners"
            x = ops.interpolate(x, size=(8, 8), mode="bilinear", align_corners=corners)
        return self.fc(self.flat(ops.relu(x)))


def optimizer_of(name: str, net: Any, wrong: str) -> Any:
    parameters = net.trainable_params()
    if name == "adam":
        return (nn.AdamWeightDecay if wrong else nn.Adam)(parameters, 0.01, eps=1e-8, weight_decay=0.1)
    if name == "uncorrected":
        return (nn.AdamWeightDecay if wrong else nn.Adam)(parameters, 0.01, eps=1e-8)
    return nn.SGD(parameters, 0.01)


def loss_of(name: str, result: Any, wrong: str) -> Any:
    if name == "smooth":
        found = nn.SmoothL1Loss(reduction="none" if wrong == "sum" else "mean")(result, ops.ones_like(result))
        return found.sum() if wrong == "sum" else found
    if name == "labelled":
        labels = ms.Tensor(np.arange(64, dtype=np.int32) % WIDTH)
        smoothing, reduction = 0.1 if wrong == "smoothing" else 0.0, "sum" if wrong == "sum" else "mean"
        return nn.CrossEntropyLoss(reduction=reduction, label_smoothing=smoothing)(result.reshape(64, WIDTH), labels)
    if name == "half":
        result = ops.square(result.astype(ms.float16))
        return (result.sum() if wrong else result.mean()).astype(ms.float32)
    return ops.square(result).sum() if name == "averaged" and wrong else ops.square(result).mean()


def clipped(gradients: Any, wrong: str) -> Any:
    if wrong == "alone":
        return tuple(ops.clip_by_norm(one, 0.05) for one in gradients)
    return ops.clip_by_global_norm(gradients, 0.05)


def record(folder: str, name: str, wrong: str, level: str) -> None:
    """Three steps of a network."""
    net = (Images if name in IMAGES else Rows)(name, wrong)
    net.set_train()
    for number, parameter in enumerate(net.trainable_params()):
        parameter.set_data(ms.Tensor(value(number, tuple(parameter.shape))))
    optimizer = optimizer_of(name, net, wrong)
    gradients = ms.value_and_grad(lambda x: loss_of(name, net(x), wrong), None, net.trainable_params())
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=folder, task="statistics", level=level)
    for step in range(3):
        x = ms.Tensor(images(step) if name in IMAGES else rows(step))
        debugger.start(net)
        _, grads = gradients(x)
        optimizer(clipped(grads, wrong) if name == "clipped" else grads)
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    chosen = asked([*HEALTHY, *(f"{name}+{wrong}" for name, wrong, _ in RELATIVES)])
    for one in chosen.names:
        network_of, _, mistake = one.partition("+")
        record(os.path.join(chosen.folder, one), network_of, mistake, chosen.level)
        print(one, flush=True)
