"""A stand-in for MSAdapter, for tests only: a package named ``torch`` whose tensors are those of MindSpore. The real
one is not on the package index. It has as much of PyTorch's interface as the tests use, and is no part of msprobe.
"""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor as Tensor
from mindspore import ops

from torch import nn as nn


def tensor(values: Any) -> Any:
    return mindspore.Tensor(np.asarray(values, np.float32))


def tanh(x: Any) -> Any:
    return ops.tanh(x)


def matmul(x: Any, y: Any) -> Any:
    return ops.matmul(x, y)
