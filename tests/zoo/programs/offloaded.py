"""Updates run in backward: each parameter has an optimizer of its own that steps in a hook, and frees its gradient."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(27)


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.grow = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
        self.norm, self.out = nn.BatchNorm2d(6), nn.Conv2d(6, 1, 3, padding=1)

    def forward(self, noise):
        return torch.tanh(self.out(F.leaky_relu(self.norm(self.grow(noise)), 0.2)))


def initialised(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)


def step_in_backward(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


generator = Generator().apply(initialised)
critic = nn.Sequential(nn.Conv2d(1, 4, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1))
critic.apply(initialised)
optimizers = {p: torch.optim.SGD([p], lr=0.05, momentum=0.5) for p in generator.parameters()}
for parameter in generator.parameters():
    parameter.register_post_accumulate_grad_hook(step_in_backward)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=False, foreach=True)
fixed = torch.randn(1, 4, 4, 4)
for step in range(3):
    critic.zero_grad()
    real = torch.rand(4, 1, 8, 8)
    loss_real = F.binary_cross_entropy_with_logits(critic(real).view(-1), torch.ones(4))
    loss_real.backward()
    fake = generator(torch.randn(4, 4, 4, 4))
    loss_fake = F.binary_cross_entropy_with_logits(critic(fake.detach()).view(-1), torch.zeros(4))
    loss_fake.backward()
    critic_optimizer.step()
    critic.requires_grad_(False)
    loss = F.binary_cross_entropy_with_logits(critic(fake).view(-1), torch.ones(4))
    loss.backward()
    critic.requires_grad_(True)
    print(step, repr(loss_real.item()), repr(loss_fake.item()), repr(loss.item()))
    with torch.no_grad():
        print("picture", repr(generator(fixed).mean().item()))
print([p.grad is None for p in generator.parameters()])
torch.save({"generator": generator.state_dict(), "critic": critic}, "gan.pt")
