"""One rank of a MindSpore program; `msrun` starts several. Arguments: the folder of results, and that of the dump if
the program is to be recorded.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import communication, mint, nn, ops

from msprobe.mindspore import PrecisionDebugger

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
communication.init()
rank = communication.get_rank()
ms.set_seed(1)
np.random.seed(1)
model = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh())
debugger = None
if len(sys.argv) > 2:
    debugger = PrecisionDebugger(dump_path=sys.argv[2], level="mix", task="tensor", summary_mode="md5")
found = []
gradients = ms.value_and_grad(lambda x: (model(x) ** 2).sum(), None, model.trainable_params())
for step in range(2):
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
