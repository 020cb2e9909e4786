"""Stochastic weight averaging with torch's own AveragedModel, SWALR and update_bn, and an exponential one beside."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
data = TensorDataset(torch.randn(24, 6), torch.randint(3, (24,)))
loader = DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
averaged = AveragedModel(model)
moving = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=6)
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    for x, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), labels)
        loss.backward()
        optimizer.step()
        moving.update_parameters(model)
        if epoch < 2:
            scheduler.step()
        print(epoch, repr(loss.item()))
    if epoch >= 1:
        averaged.update_parameters(model)
        swa_scheduler.step()
update_bn(loader, averaged)
averaged.eval()
with torch.no_grad():
    print("averaged", repr(sum(criterion(averaged(x), labels).item() for x, labels in loader)))
print("moving", repr(moving.eval()(data.tensors[0]).sum().item()), int(averaged.n_averaged))
torch.save(averaged, "averaged.pt")
torch.save(moving.module.state_dict(), "moving.pt")
