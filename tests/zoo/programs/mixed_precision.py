"""Autocast to half precision and a gradient scaler whose first scale is too large: it leaves steps out."""

from __future__ import annotations

import torch
from torch import nn

torch.manual_seed(55)
model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(48, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for step in range(6):
    x, labels = torch.randn(6, 3, 8), torch.randint(10, (6,))
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(x)
        loss = nn.functional.cross_entropy(output, labels)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    before = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
    print(step, output.dtype, repr(loss.item()), repr(norm.item()), scaler.get_scale())

torch.save({"model": model.state_dict(), "scaler": scaler.state_dict(), "optimizer": optimizer.state_dict()}, "amp.pt")
model.eval()
with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
    print("eval", repr(model(torch.ones(1, 3, 8)).float().tolist()))
