"""Quantisation-aware training: weights and activations are rounded in forward, gradients pass straight through."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(99)


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        ctx.save_for_backward(x / scale)
        ctx.bounds = low, high
        return torch.clamp(torch.round(x / scale), low, high) * scale

    @staticmethod
    def backward(ctx, gradient):
        (scaled,) = ctx.saved_tensors
        low, high = ctx.bounds
        inside = (scaled >= low) & (scaled <= high)
        return gradient * inside, None, None, None


class Observer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.tensor(0.0))
        self.on = True

    def forward(self, x):
        if self.training and self.on:
            self.largest.copy_(torch.maximum(self.largest * 0.9, x.detach().abs().max()))
        return Rounded.apply(x, self.largest.clamp_min(1e-6) / 127, -127, 127)


class QuantisedLinear(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.activations = Observer()

    def forward(self, x):
        scale = self.weight.detach().abs().amax(1, keepdim=True) / 127
        return nn.functional.linear(self.activations(x), Rounded.apply(self.weight, scale, -127, 127), self.bias)


model = nn.Sequential(QuantisedLinear(8, 16), nn.ReLU(), QuantisedLinear(16, 3))
fake = torch.ao.quantization.FakeQuantize() if hasattr(torch, "ao") else nn.Identity()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step == 3:
        for module in model.modules():
            if isinstance(module, Observer):
                module.on = False
    x, labels = torch.randn(8, 8), torch.randint(3, (8,))
    loss = nn.functional.cross_entropy(fake(model(x)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()), repr(model[0].activations.largest.item()))

model.eval()
whole = {}
for name, module in model.named_modules():
    if isinstance(module, QuantisedLinear):
        scale = module.weight.detach().abs().amax(1, keepdim=True) / 127
        whole[name] = (module.weight.detach() / scale).round().to(torch.int8), scale
torch.save(whole, "int8.pt")
print({name: int(weight.sum()) for name, (weight, _) in whole.items()})
print("output", repr(model(torch.ones(1, 8)).tolist()))
