"""A training whose records are sent to be checked: `online_training.py CONFIG [wrong]`. Prints the sum of its weights.

``wrong``: what GELU gives is a thousandth too large in step 2, as a wrong kernel would have it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from msprobe.listeners import Cadence, Changer, Changes, Result, Wants
from msprobe.pytorch import PrecisionDebugger


class WrongKernel(Changer):
    """Changes what GELU gives."""

    wants = Wants(names=("Functional.gelu",))
    changes = Changes(names=("Functional.gelu",), results=True)
    cadence = Cadence(steps=(2,))

    def after(self, event: Any, result: Any) -> Result:
        return Result(result.detach() * 1.001)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
adam = torch.optim.Adam(model.parameters())
debugger = PrecisionDebugger(sys.argv[1])
if len(sys.argv) > 2:
    debugger.add(WrongKernel())
for _ in range(4):
    debugger.start(model)
    left, right = torch.split(torch.cat([(out := model(torch.randn(3, 4))), out * 2], 1), 2, 1)
    loss = (left * right).softmax(-1).square().sum()
    loss.backward()
    debugger.stop()
    adam.step()
    adam.zero_grad()
    debugger.step()
print(sum(one.sum().item() for one in model.parameters()))
