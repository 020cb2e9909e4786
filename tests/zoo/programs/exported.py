"""A convolution network that ends as many do: a prediction, deep copy, pickle, fx trace, export, script and fusing."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import fx, nn

torch.manual_seed(50)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


model = nn.Sequential(nn.Conv2d(1, 4, 3), Residual(4), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.randint(5, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))

picture = torch.ones(1, 1, 8, 8)
print("prediction", repr(model(picture).tolist()))
model.eval()
wanted = model(picture)
copied = copy.deepcopy(model)
print("copied", torch.equal(copied(picture), wanted))
print("pickled", torch.equal(pickle.loads(pickle.dumps(model))(picture), wanted))
traced = fx.symbolic_trace(model)
print(traced.code)
print("traced", torch.equal(traced(picture), wanted))
exported = torch.export.export(model, (picture,))
torch.export.save(exported, "exported.pt2")
print([node.target for node in exported.graph.nodes if node.op == "call_function"].__len__())
print("exported", torch.equal(exported.module()(picture), wanted))
scripted = torch.jit.script(model)
buffer = io.BytesIO()
torch.jit.save(scripted, buffer)
print("scripted", torch.equal(scripted(picture), wanted), len(buffer.getvalue()))
fused = torch.nn.utils.fuse_conv_bn_eval(copied[1].conv, copied[1].norm)
print("fused", repr(fused.weight.sum().item()))
torch.save(model, "model.pt")
