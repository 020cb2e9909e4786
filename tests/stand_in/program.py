"""A program for MSAdapter, here with the stand-in. Arguments: the folder of the dump, and whether to record."""

from __future__ import annotations

import sys

import mindspore
import torch
import torch.nn.functional as F
from torch import nn

from msprobe.mindspore import PrecisionDebugger


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.inner(x)) + 1


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.block(x)).sum()


model = Model()
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="mix") if len(sys.argv) > 2 else None
gradients = mindspore.value_and_grad(lambda x: model(x), None, model.parameters())
for step in range(2):
    if debugger is not None:
        debugger.start(model)
    loss, grads = gradients(torch.tensor([[1.0, 2.0, 3.0, step]]))
    if debugger is not None:
        debugger.stop()
        debugger.step()
    print("result", loss.asnumpy().tobytes().hex(), grads[0].asnumpy().tobytes().hex())
