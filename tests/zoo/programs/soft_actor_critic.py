"""Soft actor-critic: three optimizers, two critics with slow targets, a temperature of its own, a replay buffer."""

from __future__ import annotations

import copy
import random

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F

random.seed(5)
np.random.seed(5)
torch.manual_seed(5)
STATES, ACTIONS = 3, 2


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q1, self.q2 = (
            nn.Sequential(nn.Linear(STATES + ACTIONS, 24), nn.ReLU(), nn.Linear(24, 1)) for _ in range(2)
        )

    def forward(self, state, action):
        both = torch.cat([state, action], dim=1)
        return self.q1(both), self.q2(both)


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATES, 24), nn.ReLU())
        self.mean, self.log_deviation = nn.Linear(24, ACTIONS), nn.Linear(24, ACTIONS)

    def forward(self, state):
        hidden = self.body(state)
        return self.mean(hidden), self.log_deviation(hidden).clamp(-20, 2)

    def sample(self, state):
        mean, log_deviation = self(state)
        normal = Normal(mean, log_deviation.exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        log_probability = (normal.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)
        return action, log_probability


critic, actor = Critic(), Actor()
target = copy.deepcopy(critic)
for parameter in target.parameters():
    parameter.requires_grad = False
log_temperature = torch.zeros(1, requires_grad=True)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
temperature_optimizer = torch.optim.Adam([log_temperature], lr=1e-2)
replay = []


def act(state):
    with torch.no_grad():
        action, _ = actor.sample(torch.as_tensor(state, dtype=torch.float32).unsqueeze(0))
    return action[0].numpy()


def update():
    batch = random.sample(replay, 8)
    state, action, reward, following, done = (
        torch.as_tensor(np.array(part), dtype=torch.float32) for part in zip(*batch, strict=True)
    )
    reward, done = reward.unsqueeze(1), done.unsqueeze(1)
    temperature = log_temperature.exp()
    with torch.no_grad():
        next_action, next_log = actor.sample(following)
        next_value = torch.min(*target(following, next_action)) - temperature * next_log
        wanted = reward + (1 - done) * 0.99 * next_value
    first, second = critic(state, action)
    critic_loss = F.mse_loss(first, wanted) + F.mse_loss(second, wanted)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    for parameter in critic.parameters():
        parameter.requires_grad = False
    chosen, log_probability = actor.sample(state)
    actor_loss = (temperature.detach() * log_probability - torch.min(*critic(state, chosen))).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    for parameter in critic.parameters():
        parameter.requires_grad = True

    temperature_loss = -(log_temperature * (log_probability.detach() - ACTIONS)).mean()
    temperature_optimizer.zero_grad()
    temperature_loss.backward()
    temperature_optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
            slow.mul_(0.95).add_(fast, alpha=0.05)
    return critic_loss.item(), actor_loss.item(), temperature_loss.item()


state = np.random.randn(STATES)
for count in range(14):
    action = act(state)
    following = 0.9 * state + 0.1 * np.random.randn(STATES) + 0.1 * np.append(action, action.sum())
    replay.append((state, action, -float((following**2).sum()), following, float(count % 7 == 6)))
    state = following
    if count >= 10:
        print(count, *map(repr, update()))

torch.save({"actor": actor.state_dict(), "critic": critic.state_dict(), "target": target.state_dict()}, "sac.pt")
actor.load_state_dict(torch.load("sac.pt")["actor"])
print("acts", [repr(float(number)) for number in act(state)], repr(log_temperature.exp().item()))
