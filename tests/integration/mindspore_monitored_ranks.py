"""One rank of a MindSpore training that reduces its gradients itself; `msrun` starts several. Arguments: the folder of
results, and the configuration of a monitor if one is to watch.
"""

from __future__ import annotations

import sys

import mindspore as ms
import numpy as np
from mindspore import communication, mint, nn

from msprobe.mindspore import TrainerMon

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
communication.init()
rank = communication.get_rank()
ms.set_seed(1)
np.random.seed(1)
model = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh())
adam = nn.Adam(model.trainable_params(), 0.01)
monitor = None
if len(sys.argv) > 2:
    monitor = TrainerMon(sys.argv[2])
    monitor.set_monitor(model, optimizer=adam)
gradients = ms.value_and_grad(lambda x: (model(x) ** 2).sum(), None, model.trainable_params())
found = []
for step in range(2):
    loss, grads = gradients(ms.Tensor(np.full((2, 4), 1.0 + rank + step, np.float32)))
    for one in grads:
        mint.distributed.all_reduce(one)
    adam(tuple(one / 2 for one in grads))
    found.append(loss.asnumpy())
if monitor is not None:
    monitor.stop()
np.savez(f"{sys.argv[1]}/rank{rank}.npz", *found, *(one.asnumpy() for one in adam.get_parameters()))
