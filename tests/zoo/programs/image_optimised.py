"""No weight is trained: pixels are, by features and Gram matrices of a frozen network that is cut, with L-BFGS."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(73)


def gram(x):
    batch, channels, height, width = x.size()
    flat = x.view(batch * channels, height * width)
    return flat @ flat.t() / x.numel()


class Content(nn.Module):
    def __init__(self, target) -> None:
        super().__init__()
        self.target = target.detach()

    def forward(self, x):
        self.loss = F.mse_loss(x, self.target)
        return x


class Style(nn.Module):
    def __init__(self, target) -> None:
        super().__init__()
        self.target = gram(target).detach()

    def forward(self, x):
        self.loss = F.mse_loss(gram(x), self.target)
        return x


network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU()).eval()
style, content = torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8)
model, contents, styles = nn.Sequential(), [], []
for number, layer in enumerate(network.children()):
    model.add_module(f"layer_{number}", nn.ReLU(inplace=False) if isinstance(layer, nn.ReLU) else layer)
    if isinstance(layer, nn.Conv2d):
        contents.append(Content(model(content)))
        model.add_module(f"content_{number}", contents[-1])
        styles.append(Style(model(style)))
        model.add_module(f"style_{number}", styles[-1])
model = model[:-1]
picture = content.clone().requires_grad_(True)
model.eval().requires_grad_(False)
optimizer = torch.optim.LBFGS([picture], max_iter=3)
runs = [0]


def closure():
    with torch.no_grad():
        picture.clamp_(0, 1)
    optimizer.zero_grad()
    model(picture)
    score = 100 * sum(one.loss for one in styles) + sum(one.loss for one in contents)
    score.backward()
    runs[0] += 1
    print(runs[0], repr(score.item()))
    return score


for _ in range(2):
    optimizer.step(closure)
with torch.no_grad():
    picture.clamp_(0, 1)
torch.save(picture, "picture.pt")
print("picture", repr(picture.mean().item()))
