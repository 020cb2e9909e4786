"""The model is saved, copied, pickled, traced and walked in the middle of each step, between steps and after."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import fx, nn
from torch.func import functional_call, vmap

torch.manual_seed(52)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8))
        self.last = nn.Linear(8, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        return self.last(self.middle(self.first(x)))


def state_of(module):
    hooks = [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules()]
    return sum(hooks), [name for name, _ in module.named_modules()]


def look(where: str) -> None:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    files.append(buffer.getvalue())
    copied = copy.deepcopy(model)
    again = pickle.loads(pickle.dumps(model))
    traced = fx.symbolic_trace(model)
    outputs = [one(x) for one in (copied, again, traced)]
    outputs.append(functional_call(model, dict(copied.named_parameters()), (x,)))
    outputs.append(vmap(model)(x))
    same = [torch.equal(outputs[0], one) for one in outputs[:4]]
    print(where, same, torch.allclose(outputs[0], outputs[4]), state_of(copied), len(list(traced.graph.nodes)))


files = []
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(3, 4)
for step in range(2):
    loss = model(torch.randn(6, 4)).pow(2).mean()
    look("before backward")
    optimizer.zero_grad()
    loss.backward()
    look("before the update")
    optimizer.step()
    look("between steps")
    print(step, repr(loss.item()))
print("prediction", repr(model(x).tolist()))
look("after")
torch.jit.script(model.eval()).save("net.pt")
for number, file in enumerate(files):
    with open(f"model_{number}.pt", "wb") as opened:
        opened.write(file)
