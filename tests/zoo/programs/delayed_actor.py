"""Twin critics that are trained in each iteration, and their actor in every second or third (TD3)."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

STATES, ACTIONS = 3, 2


class Critics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q1, self.q2 = (
            nn.Sequential(nn.Linear(STATES + ACTIONS, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2)
        )

    def forward(self, state, action):
        both = torch.cat([state, action], dim=1)
        return self.q1(both), self.q2(both)

    def first(self, state, action):
        return self.q1(torch.cat([state, action], dim=1))


def train(delay):
    torch.manual_seed(delay)
    actor = nn.Sequential(nn.Linear(STATES, 16), nn.ReLU(), nn.Linear(16, ACTIONS), nn.Tanh())
    critics = Critics()
    slow_actor, slow_critics = copy.deepcopy(actor), copy.deepcopy(critics)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-2)
    of_critics = torch.optim.Adam(critics.parameters(), lr=1e-2)
    for count in range(3 * delay):
        state, following, reward = torch.randn(8, STATES), torch.randn(8, STATES), torch.randn(8, 1)
        with torch.no_grad():
            action = actor(state) + 0.1 * torch.randn(8, ACTIONS)
            wanted = reward + 0.9 * torch.min(*slow_critics(following, slow_actor(following)))
        q1, q2 = critics(state, action)
        loss = F.mse_loss(q1, wanted) + F.mse_loss(q2, wanted)
        of_critics.zero_grad()
        loss.backward()
        of_critics.step()
        if count % delay == 0:
            actor_loss = -critics.first(state, actor(state)).mean()
            of_actor.zero_grad()
            actor_loss.backward()
            of_actor.step()
            with torch.no_grad():
                for slow, fast in ((slow_actor, actor), (slow_critics, critics)):
                    for kept, new in zip(slow.parameters(), fast.parameters(), strict=True):
                        kept.mul_(0.95).add_(new, alpha=0.05)
        print(count, repr(loss.item()), repr(actor_loss.item()))
    return actor, critics


for delay in (2, 3):
    actor, critics = train(delay)
torch.save({"actor": actor.state_dict(), "critics": critics.state_dict()}, "delayed.pt")
print(repr(actor(torch.ones(1, STATES)).sum().item()))
