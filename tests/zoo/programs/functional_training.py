"""Training without a stateful model: torch.func gradients, an ensemble under vmap, gradients for each sample."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.func import functional_call, grad, grad_and_value, stack_module_state, vmap

torch.manual_seed(70)


def network():
    return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))


def loss_of(weights, buffers, x, labels):
    return nn.functional.cross_entropy(functional_call(skeleton, (weights, buffers), (x,)), labels)


models = [network() for _ in range(3)]
skeleton = copy.deepcopy(models[0]).to("meta")
weights, buffers = stack_module_state(models)
x, labels = torch.randn(10, 4), torch.randint(3, (10,))
for step in range(3):
    gradients, losses = vmap(grad_and_value(loss_of), in_dims=(0, 0, None, None))(weights, buffers, x, labels)
    weights = {name: (value - 0.5 * gradients[name]).detach() for name, value in weights.items()}
    print(step, repr(losses.tolist()))

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)


def one_loss(weights, x, label):
    return nn.functional.cross_entropy(functional_call(model, weights, (x.unsqueeze(0),)), label.unsqueeze(0))


for step in range(3):
    now = {name: value.detach() for name, value in model.named_parameters()}
    each = vmap(grad(one_loss), in_dims=(None, 0, 0))(now, x, labels)
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in each.values()]).norm(dim=0)
    scales = (1.0 / norms).clamp(max=1.0)
    for name, parameter in model.named_parameters():
        noise = 0.01 * torch.randn_like(parameter)
        parameter.grad = torch.einsum("n,n...->...", scales, each[name]) / len(x) + noise
    optimizer.step()
    loss = nn.functional.cross_entropy(model(x), labels)
    print(step, repr(loss.item()), repr(norms.max().item()))

chosen = {name: value[0] for name, value in weights.items()}
models[0].load_state_dict(chosen)
torch.save(models[0], "first.pt")
print("first", repr(models[0](x[:1]).tolist()))
