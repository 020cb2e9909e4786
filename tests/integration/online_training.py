"""A training whose records are sent to be checked: `online_training.py CONFIG [wrong] [wait] [die]`.

``wrong``: what GELU gives is a thousandth too large in step 2, as a wrong kernel would have it. ``wait``: before step 2
until there is a file `go` beside CONFIG. ``die``: the process is killed in the middle of step 2. With RANK and so on
in the environment these are ranks, whose first loss is summed up with gloo.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
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


config, *words = sys.argv[1:]
if "RANK" in os.environ:
    dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
adam = torch.optim.Adam(model.parameters())
debugger = PrecisionDebugger(config)
if "wrong" in words:
    debugger.add(WrongKernel())
for step in range(4):
    while step == 2 and "wait" in words and not Path(config).with_name("go").exists():
        time.sleep(0.05)
    debugger.start(model)
    left, right = torch.split(torch.cat([(out := model(torch.randn(3, 4))), out * 2], 1), 2, 1)
    loss = (left * right).softmax(-1).square().sum()
    if step == 0 and dist.is_initialized():
        dist.all_reduce(loss.detach())
    if step == 2 and "die" in words:
        while not debugger._sending._stream._background.flush(1.0):  # what was recorded is on its way
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    debugger.stop()
    adam.step()
    adam.zero_grad()
    debugger.step()
print(sum(one.sum().item() for one in model.parameters()))
