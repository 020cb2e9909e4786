"""A MindSpore training that ends itself in the middle of a step: `mindspore_kill.py FOLDER`.

Its clock goes on by a tenth of a second with each tensor. Printed: how many records of the step were handed over.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from types import SimpleNamespace

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from msprobe.capture.mindspore import tensors
from msprobe.mindspore import PrecisionDebugger


def main(folder: str) -> None:
    """Record a whole step, and thirty passes of a second one."""
    ticks = itertools.count()
    tensors.time = SimpleNamespace(monotonic=lambda: next(ticks) / 10)  # type: ignore[attr-defined]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    model = nn.SequentialCell(nn.Dense(4, 4), nn.ReLU())
    x = ms.Tensor(np.ones((2, 4), np.float32))
    debugger = PrecisionDebugger(dump_path=folder, level="mix", task="tensor")
    debugger.start(model)
    model(x)
    debugger.stop()
    debugger.step()
    debugger.start(model)
    for _ in range(30):
        x = ops.tanh(model(x))
    print(debugger.recorder.session.records_in_step, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
