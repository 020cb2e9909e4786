"""Hooks of the program change outputs and gradients; weights are normalised and pruned by parametrizations."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

torch.manual_seed(29)
model = nn.Sequential(
    parametrizations.weight_norm(nn.Linear(6, 12)), nn.ReLU(), parametrizations.spectral_norm(nn.Linear(12, 12)),
    nn.ReLU(), nn.Linear(12, 2)
)  # fmt: skip
seen = []


def clipped(module, args, output):
    return output.clamp(-3, 3)


def doubled(module, args, kwargs):
    return (args[0] * 2, *args[1:]), kwargs


def halved(module, grad_input, grad_output):
    seen.append(repr(grad_output[0].abs().sum().item()))
    return tuple(None if one is None else one * 0.5 for one in grad_input)


handles = [
    model[0].register_forward_hook(clipped),
    model[2].register_forward_pre_hook(doubled, with_kwargs=True),
    model[2].register_full_backward_hook(halved),
    model[4].weight.register_hook(lambda gradient: gradient.clamp(-1, 1)),
    model[4].bias.register_post_accumulate_grad_hook(lambda parameter: seen.append(repr(parameter.grad.sum().item()))),
]
prune.l1_unstructured(model[4], "weight", amount=0.3)
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
optimizer.register_step_post_hook(lambda one, args, kwargs: seen.append("stepped"))
for step in range(3):
    x = torch.randn(5, 6, requires_grad=True)
    hidden = model[:2](x)
    hidden.retain_grad()
    hidden.register_hook(lambda gradient: gradient * 1.5)
    loss = (model[2:](hidden) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()), repr(x.grad.norm().item()), repr(hidden.grad.norm().item()))
print(seen)
for handle in handles:
    handle.remove()
prune.remove(model[4], "weight")
torch.nn.utils.parametrize.remove_parametrizations(model[0], "weight")
with torch.no_grad():
    print("eval", repr(model.eval()(torch.ones(1, 6)).tolist()))
print([len(part._forward_hooks) + len(part._backward_hooks) + len(part._forward_pre_hooks) for part in model.modules()])
torch.save(model.state_dict(), "hooked.pt")
