"""Sharpness-aware minimisation: two passes for each step, batch statistics frozen in the second."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(42)


class SAM(torch.optim.Optimizer):
    def __init__(self, parameters, base, rho: float = 0.05, **settings) -> None:
        super().__init__(parameters, {"rho": rho, **settings})
        self.base_optimizer = base(self.param_groups, **settings)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False):
        norm = torch.norm(torch.stack([p.grad.norm(2) for group in self.param_groups for p in group["params"]]), 2)
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for parameter in group["params"]:
                self.state[parameter]["old"] = parameter.data.clone()
                parameter.add_(parameter.grad * scale)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = self.state[parameter]["old"]
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("first_step and second_step")


def batch_statistics(model, on: bool):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            if on:
                module.momentum = getattr(module, "kept_momentum", module.momentum)
            else:
                module.kept_momentum, module.momentum = module.momentum, 0


model = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=5e-4)
for step in range(4):
    pictures, labels = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
    batch_statistics(model, on=True)
    loss = F.cross_entropy(model(pictures), labels, label_smoothing=0.1)
    loss.mean().backward()
    optimizer.first_step(zero_grad=True)
    batch_statistics(model, on=False)
    F.cross_entropy(model(pictures), labels, label_smoothing=0.1).mean().backward()
    optimizer.second_step(zero_grad=True)
    print(step, repr(loss.item()))

model.eval()
with torch.no_grad():
    print("eval", repr(model(torch.ones(1, 1, 8, 8)).tolist()))
torch.save({"model": model.state_dict(), "optimizer": optimizer.base_optimizer.state_dict()}, "sam.pt")
model.load_state_dict(torch.load("sam.pt")["model"])
print("train", repr(model.train()(pictures).sum().item()))
