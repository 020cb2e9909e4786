"""WGAN with gradient penalty: the critic's loss has a gradient in it, and the critic steps more often."""

from __future__ import annotations

import torch
from torch import autograd, nn

torch.manual_seed(1)
NOISE, POINTS, CRITIC_STEPS = 4, 2, 3


def network(inputs: int, outputs: int):
    return nn.Sequential(
        nn.Linear(inputs, 24), nn.LeakyReLU(0.2), nn.Linear(24, 24), nn.LeakyReLU(0.2), nn.Linear(24, outputs)
    )


def gradient_penalty(real, fake):
    mixing = torch.rand(real.size(0), 1).expand(real.size())
    mixed = (mixing * real + (1 - mixing) * fake).detach().requires_grad_(True)
    judged = critic(mixed)
    (gradients,) = autograd.grad(
        outputs=judged, inputs=mixed, grad_outputs=torch.ones_like(judged), create_graph=True, retain_graph=True
    )
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * 0.1


def real_points(count: int):
    centres = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    return centres[torch.randint(3, (count,))] + 0.05 * torch.randn(count, POINTS)


generator, critic = network(NOISE, POINTS), network(POINTS, 1)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
for iteration in range(3):
    for parameter in critic.parameters():
        parameter.requires_grad = True
    for _ in range(CRITIC_STEPS):
        critic.zero_grad()
        real = real_points(16)
        with torch.no_grad():
            noise = torch.randn(16, NOISE)
        fake = generator(noise).detach()
        distance = critic(fake).mean() - critic(real).mean()
        penalty = gradient_penalty(real, fake)
        (distance + penalty).backward()
        critic_optimizer.step()
    for parameter in critic.parameters():
        parameter.requires_grad = False
    generator.zero_grad()
    loss = -critic(generator(torch.randn(16, NOISE))).mean()
    loss.backward()
    generator_optimizer.step()
    print(iteration, repr(-distance.item()), repr(penalty.item()), repr(loss.item()))

torch.save(generator.state_dict(), "generator.pt")
drawn = generator(torch.randn(4, NOISE))
print("drawn", repr(drawn.detach().numpy().tolist()))
