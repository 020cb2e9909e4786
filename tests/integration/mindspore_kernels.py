"""A static-graph program whose kernels are dumped. Arguments: the folder of the dump, and settings as JSON."""

from __future__ import annotations

import json
import sys

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from msprobe.mindspore import PrecisionDebugger


class Model(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.SequentialCell(nn.Dense(4, 3), nn.Tanh())

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return ops.square(self.body(x)).sum()


ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O0"})
ms.set_seed(1)
np.random.seed(1)
settings = json.loads(sys.argv[2])
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L2", **settings) if settings is not None else None
if debugger is not None:
    debugger.start()
model = Model()
gradients = ms.value_and_grad(model, None, model.trainable_params())
for step in range(3):
    if debugger is not None:
        debugger.start()
    loss, grads = gradients(ms.Tensor(np.full((2, 4), step + 1, np.float32)))
    if debugger is not None:
        debugger.stop()
        debugger.step()
    print("result", loss.asnumpy().tobytes().hex(), [grad.asnumpy().tobytes().hex() for grad in grads], flush=True)
