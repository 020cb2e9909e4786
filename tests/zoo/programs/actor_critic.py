"""Actor and critic on a pole that falls: actions are drawn one by one, the update comes at the end of an episode."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

torch.manual_seed(543)
SavedAction = namedtuple("SavedAction", ["log_probability", "value"])


class Pole:
    """A pole on a cart, roughly."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4).astype(np.float32)
        self.steps = 0
        return self.state

    def step(self, action: int):
        place, speed, angle, turning = self.state
        force = 1.0 if action else -1.0
        turning = turning + 0.1 * (9.8 * np.sin(angle) - force * np.cos(angle))
        speed = speed + 0.1 * force
        self.state = np.array([place + 0.1 * speed, speed, angle + 0.1 * turning, turning], dtype=np.float32)
        self.steps += 1
        return self.state, 1.0, bool(abs(self.state[2]) > 0.3 or self.steps >= 12)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 32)
        self.action_head, self.value_head = nn.Linear(32, 2), nn.Linear(32, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
smallest = np.finfo(np.float32).eps.item()


def select_action(state):
    probabilities, value = model(torch.from_numpy(state).float())
    chosen = Categorical(probabilities)
    action = chosen.sample()
    model.saved_actions.append(SavedAction(chosen.log_prob(action), value))
    return action.item()


def finish_episode():
    discounted, returns = 0.0, []
    for reward in model.rewards[::-1]:
        discounted = reward + 0.99 * discounted
        returns.insert(0, discounted)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + smallest)
    policy_losses, value_losses = [], []
    for (log_probability, value), wanted in zip(model.saved_actions, returns, strict=True):
        policy_losses.append(-log_probability * (wanted - value.item()))
        value_losses.append(F.smooth_l1_loss(value, wanted.view(1)))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:], model.saved_actions[:]
    return loss.item()


pole = Pole(7)
for episode in range(4):
    state, done = pole.reset(), False
    while not done:
        state, reward, done = pole.step(select_action(state))
        model.rewards.append(reward)
    print(episode, pole.steps, repr(finish_episode()))

torch.save(model.state_dict(), "policy.pt")
state, done, played = pole.reset(), False, []
while not done:  # as in most programs, with gradients on
    played.append(int(model(torch.from_numpy(state))[0].argmax()))
    state, _, done = pole.step(played[-1])
print("played", played)
