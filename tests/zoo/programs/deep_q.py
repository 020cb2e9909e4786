"""Deep Q-learning with a target network that is copied now and then, and an exploration that fades."""

from __future__ import annotations

import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

random.seed(1)
torch.manual_seed(1)


def network():
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))


policy, target = network(), network()
target.load_state_dict(policy.state_dict())
target.eval()
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
memory: deque = deque(maxlen=50)
state, updates = torch.rand(1, 3), 0
for count in range(16):
    if random.random() < 0.5:
        with torch.no_grad():
            action = policy(state).max(1).indices.view(1, 1)
    else:
        action = torch.tensor([[random.randrange(2)]])
    following = None if count % 6 == 5 else (state + 0.1 * (2 * action - 1)).clamp(-1, 1)
    memory.append((state, action, following, torch.tensor([float(state.sum())])))
    state = torch.rand(1, 3) if following is None else following
    if len(memory) < 8:
        continue
    states, actions, followings, rewards = zip(*random.sample(memory, 8), strict=True)
    alive = torch.tensor([one is not None for one in followings])
    values = policy(torch.cat(states)).gather(1, torch.cat(actions))
    following_values = torch.zeros(8)
    with torch.no_grad():
        if alive.any():
            following_values[alive] = target(torch.cat([one for one in followings if one is not None])).max(1).values
    loss = F.smooth_l1_loss(values, (following_values * 0.9 + torch.cat(rewards)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    updates += 1
    if updates % 3 == 0:
        target.load_state_dict(policy.state_dict())
    print(count, repr(loss.item()))
torch.save(policy.state_dict(), "policy.pt")
print("values", repr(policy(torch.eye(3)).tolist()))
