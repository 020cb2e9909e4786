"""One rank of a MindSpore program; `msrun` starts several. Arguments: the folder of results, and that of the dump if
the program is to be recorded: its first two steps, and what a listener is told of collectives in all three.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import communication, mint, nn, ops

from msprobe.listeners import Observer, Wants
from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
communication.init()
rank = communication.get_rank()
ms.set_seed(1)
np.random.seed(1)
model = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh())
debugger = None
told: list[Any] = []
zeros = mint.zeros


class Communication(Observer):
    wants = Wants(kinds=("collective",))

    def before(self, event: Any) -> None:
        told.append(["before", event.step, event.name, event.order, mint.zeros is zeros])

    def after(self, event: Any, result: Any) -> None:
        parts = result[0] if isinstance(result[0], list) else result[:1]
        told.append(["after", event.step, event.name, [part.asnumpy().tolist() for part in parts], event.source])


if len(sys.argv) > 2:
    debugger = PrecisionDebugger(dump_path=sys.argv[2], level="mix", task="tensor", summary_mode="md5", step=[0, 1])
    debugger.add(Communication())
found = []
gradients = ms.value_and_grad(lambda x: (model(x) ** 2).sum(), None, model.trainable_params())
for step in range(3):
    x = ms.Tensor(np.full((2, 4), 1.0 + rank + step, np.float32))
    if debugger is not None:
        debugger.start(model)
    loss, grads = gradients(x)
    summed = grads[0].copy()
    mint.distributed.all_reduce(summed)
    total = ops.AllReduce()(loss)
    parts = [mint.zeros((2,)) for _ in range(2)]
    mint.distributed.all_gather(parts, ms.Tensor(np.array([rank, step], np.float32)))
    if debugger is not None:
        debugger.stop()
        debugger.step()
    found += [value.asnumpy() for value in (loss, total, summed, *parts, *grads)]
np.savez(f"{sys.argv[1]}/rank{rank}.npz", *found)
with open(f"{sys.argv[1]}/rank{rank}.json", "w") as file:
    json.dump(told, file)
