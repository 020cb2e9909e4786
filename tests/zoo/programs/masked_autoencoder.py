"""A masked autoencoder: patches are shuffled, most are left out, the decoder fills them in; then a linear probe."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(23)
PATCHES, SIZE, WIDTH = 16, 16, 24


class MAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, WIDTH, 4, stride=4)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.missing = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, PATCHES + 1, WIDTH) * 0.02, requires_grad=False)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(WIDTH, 2, 48, batch_first=True, dropout=0.0)])
        self.decoder = nn.TransformerEncoderLayer(WIDTH, 2, 48, batch_first=True, dropout=0.0)
        self.out = nn.Linear(WIDTH, 16)

    def patches(self, pictures):
        return nn.functional.unfold(pictures, 4, stride=4).transpose(1, 2)

    def encode(self, pictures, kept: int):
        x = self.embed(pictures).flatten(2).transpose(1, 2) + self.places[:, 1:]
        shuffled = torch.argsort(torch.rand(x.shape[:2]), dim=1)
        restored = torch.argsort(shuffled, dim=1)
        x = torch.gather(x, 1, shuffled[:, :kept, None].repeat(1, 1, WIDTH))
        mask = torch.ones(x.shape[0], PATCHES)
        mask[:, :kept] = 0
        x = torch.cat([(self.first + self.places[:, :1]).expand(x.shape[0], -1, -1), x], dim=1)
        for layer in self.encoder:
            x = layer(x)
        return x, torch.gather(mask, 1, restored), restored

    def forward(self, pictures):
        x, mask, restored = self.encode(pictures, 4)
        missing = self.missing.repeat(x.shape[0], PATCHES + 1 - x.shape[1], 1)
        whole = torch.cat([x[:, 1:], missing], dim=1)
        whole = torch.gather(whole, 1, restored[..., None].repeat(1, 1, WIDTH))
        made = self.out(self.decoder(torch.cat([x[:, :1], whole], dim=1) + self.places))[:, 1:]
        wanted = self.patches(pictures)
        wanted = (wanted - wanted.mean(-1, keepdim=True)) / (wanted.var(-1, keepdim=True) + 1e-6) ** 0.5
        return ((made - wanted).pow(2).mean(-1) * mask).sum() / mask.sum(), made


model = MAE()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.95))
pictures, labels = torch.rand(8, 1, SIZE, SIZE), torch.randint(2, (8,))
for step in range(3):
    loss, _ = model(pictures)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, repr(loss.item()))

torch.save(model.state_dict(), "mae.pt")
probe = nn.Linear(WIDTH, 2)
probe_optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
model.eval()
for step in range(2):
    with torch.no_grad():
        features = model.encode(pictures, PATCHES)[0][:, 0]
    loss = nn.functional.cross_entropy(probe(features), labels)
    probe_optimizer.zero_grad()
    loss.backward()
    probe_optimizer.step()
    print("probe", step, repr(loss.item()))
print("picture", repr(model(pictures[:1])[1].mean().item()))
