"""The training in MindSpore: ``python train_mindspore.py OUTPUT [--mistake NAME]``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from setting import (
    BETAS,
    BLOCKS,
    HEADS,
    LEARNING_RATE,
    LENGTH,
    WEIGHT_DECAY,
    WIDTH,
    WORDS,
    arguments,
    batch,
    configuration,
    weights,
)

from msprobe.mindspore import PrecisionDebugger


class Attention(nn.Cell):
    def __init__(self, mistake: str | None) -> None:
        super().__init__()
        self.query, self.key = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.value, self.merge = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.mistake = mistake
        self.scale = (WIDTH if mistake == "scale" else WIDTH // HEADS) ** -0.5
        self.future = ms.Tensor(np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1))

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        keys = ops.stop_gradient(self.key(x)) if self.mistake == "stopped" else self.key(x)
        q, k, v = (self.heads(part) for part in (self.query(x), keys, self.value(x)))
        scores = ops.matmul(q, k.swapaxes(-2, -1)) * self.scale
        if self.mistake != "mask":
            scores = scores + self.future
        mixed = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.merge(mixed.swapaxes(1, 2).reshape(x.shape))

    def heads(self, x: ms.Tensor) -> ms.Tensor:
        return x.view(-1, LENGTH, HEADS, WIDTH // HEADS).swapaxes(1, 2)


class Halve(nn.Cell):
    """Hands its input on, and half of the gradient back."""

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return x

    def bprop(self, x: ms.Tensor, out: ms.Tensor, dout: ms.Tensor) -> tuple[ms.Tensor]:
        return (0.5 * dout,)


class Block(nn.Cell):
    def __init__(self, mistake: str | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((WIDTH,), epsilon=1e-5), nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.attention = Attention(mistake)
        self.wide, self.narrow = nn.Dense(WIDTH, 4 * WIDTH), nn.Dense(4 * WIDTH, WIDTH)
        self.gelu = nn.GELU(approximate=mistake == "gelu")
        self.mistake = mistake
        if mistake == "gradient":
            self.halve = Halve()

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        if self.mistake == "gradient":
            x = self.halve(x)
        attended = self.attention(self.norm1(x))
        x = attended if self.mistake == "residual" else x + attended
        return x + self.narrow(self.gelu(self.wide(self.norm2(x))))


class Model(nn.Cell):
    def __init__(self, mistake: str | None) -> None:
        super().__init__()
        first = mistake if mistake in ("gelu", "stopped") else None
        second = mistake if mistake in ("scale", "mask", "residual", "gradient") else None
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.SequentialCell(*(Block((first, second)[number]) for number in range(BLOCKS)))
        self.norm = nn.LayerNorm((WIDTH,), epsilon=1e-3 if mistake == "epsilon" else 1e-5)
        self.head = nn.Dense(WIDTH, WORDS)

    def construct(self, words: ms.Tensor) -> ms.Tensor:
        x = self.words(words) + self.places(ops.arange(LENGTH))
        return self.head(self.norm(self.blocks(x)))


#: Layers of MindSpore have other names for their parameters.
NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


def load(model: nn.Cell, mistake: str | None) -> None:
    """Give the model the weights of the other framework."""
    values = weights()
    if mistake == "not_loaded":
        del values["blocks.1.narrow.weight"]
    if mistake == "weight":
        values["blocks.0.wide.weight"][3, 5] += 0.05
    for name, parameter in model.parameters_and_names():
        path, _, own = name.rpartition(".")
        name = f"{path}.{NAMES.get(own, own)}"
        if name in values:
            parameter.set_data(ms.Tensor(values[name]))


def main() -> None:
    asked = arguments()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(0)
    model = Model(asked.mistake)
    load(model, asked.mistake)
    optimizer = nn.Adam(
        model.trainable_params(),
        learning_rate=LEARNING_RATE / 2 if asked.mistake == "learning_rate" else LEARNING_RATE,
        beta1=BETAS[0],
        beta2=0.99 if asked.mistake == "betas" else BETAS[1],
        weight_decay=1e-2 if asked.mistake == "weight_decay" else WEIGHT_DECAY,
    )

    def loss_of(words: ms.Tensor, following: ms.Tensor) -> ms.Tensor:
        return ops.cross_entropy(model(words).reshape(-1, WORDS), following.reshape(-1))

    gradients_of = ms.value_and_grad(loss_of, None, model.trainable_params())
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(configuration(asked), file)
    debugger = PrecisionDebugger(config_path=file.name)
    Path(file.name).unlink()
    for step in range(asked.steps):
        words, following = (ms.Tensor(part.astype(np.int32)) for part in batch(step))
        debugger.start(model)
        loss, gradients = gradients_of(words, following)
        debugger.stop()
        optimizer(gradients)
        debugger.step()
        print(f"step {step}: loss {float(loss):.6f}")


if __name__ == "__main__":
    main()
