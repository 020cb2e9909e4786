"""The program whose graphs are in this folder: a training step, and a cell with a loop, which becomes several graphs."""

import numpy as np

import mindspore as ms
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 6)
        self.fc2 = nn.Dense(6, 6)

    def construct(self, x):
        h = ops.tanh(self.fc1(x))
        h = ops.mul(
            h,
            ops.sin(h),
        )
        h = h + self.fc2(h)
        return h.sum()


class Loop(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 4)

    def construct(self, x):
        y = ops.tanh(x)
        while y.sum() > 0:
            y = self.fc(y) - 1
        return ops.tanh(self.fc(y))


ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
net, loop = Net(), Loop()
step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
x = ms.Tensor(np.linspace(0.1, 1.2, 12, dtype=np.float32).reshape(3, 4))
print(step(x), loop(x).shape)
