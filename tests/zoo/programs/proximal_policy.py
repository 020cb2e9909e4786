"""Proximal policy optimisation: a rollout without gradients, then epochs of minibatches with clipped ratios."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

np.random.seed(2)
torch.manual_seed(2)


def layer(inputs: int, outputs: int, scale: float = 2**0.5):
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, scale)
    nn.init.constant_(made.bias, 0.0)
    return made


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(layer(3, 16), nn.Tanh(), layer(16, 1, 1.0))
        self.actor = nn.Sequential(layer(3, 16), nn.Tanh(), layer(16, 2, 0.01))
        self.log_deviation = nn.Parameter(torch.zeros(1, 2))

    def value(self, x):
        return self.critic(x)

    def act(self, x, action=None):
        mean = self.actor(x)
        normal = Normal(mean, self.log_deviation.expand_as(mean).exp())
        if action is None:
            action = normal.sample()
        return action, normal.log_prob(action).sum(1), normal.entropy().sum(1), self.critic(x)


agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
state = torch.randn(2, 3)
for update in range(2):
    optimizer.param_groups[0]["lr"] = 3e-3 * (1 - update / 2)
    states, actions, logs, rewards, values = ([] for _ in range(5))
    for _ in range(6):
        with torch.no_grad():
            action, log, _, value = agent.act(state)
        states.append(state)
        actions.append(action)
        logs.append(log)
        values.append(value.flatten())
        state = 0.9 * state + 0.1 * torch.randn(2, 3) + 0.1 * action.sum(1, keepdim=True)
        rewards.append(-state.pow(2).sum(1))
    with torch.no_grad():
        following, carried = agent.value(state).flatten(), 0.0
        advantages = []
        for t in reversed(range(6)):
            delta = rewards[t] + 0.99 * (values[t + 1] if t < 5 else following) - values[t]
            carried = delta + 0.99 * 0.95 * carried
            advantages.insert(0, carried)
    flat = [torch.cat(one) for one in (states, actions, logs, advantages, values)]
    for _ in range(2):
        order = np.random.permutation(12)
        for start in range(0, 12, 6):
            s, a, old, advantage, value = (one[order[start : start + 6]] for one in flat)
            _, new, entropy, now = agent.act(s, a)
            ratio = (new - old).exp()
            scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy = torch.max(-scaled * ratio, -scaled * ratio.clamp(0.8, 1.2)).mean()
            loss = policy - 0.01 * entropy.mean() + 0.5 * (now.flatten() - advantage - value).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            print(update, repr(loss.item()), repr(((ratio - 1) - ratio.log()).mean().item()))
torch.save(agent.state_dict(), "agent.pt")
print("acts", repr(agent.act(state)[0].tolist()))
