"""Click prediction with sparse embedding bags: sparse gradients, SparseAdam for the bags and Adagrad for the rest."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

np.random.seed(123)
torch.manual_seed(123)
SIZES, WIDTH = (30, 20, 12), 8


class Clicks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(size, WIDTH, mode="sum", sparse=True) for size in SIZES])
        self.user = nn.Embedding(15, WIDTH, sparse=True)
        self.bottom = nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(WIDTH + 10, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, indices, offsets, users):
        x = self.bottom(dense)
        features = [x, self.user(users)]
        features += [bag(i, o) for bag, i, o in zip(self.bags, indices, offsets, strict=True)]
        stacked = torch.stack(features, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        rows, columns = torch.tril_indices(len(features), len(features), offset=-1)
        return self.top(torch.cat([x, products[:, rows, columns]], dim=1)).squeeze(1)


def batch_of(count: int):
    indices, offsets = [], []
    for size in SIZES:
        lengths = np.random.randint(1, 4, count)
        offsets.append(torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)[:-1]])))
        indices.append(torch.from_numpy(np.random.randint(0, size, lengths.sum())))
    dense, clicked = torch.rand(count, 4), torch.from_numpy(np.random.randint(0, 2, count)).float()
    return dense, indices, offsets, torch.randint(15, (count,)), clicked


model = Clicks()
sparse = [*model.bags.parameters(), *model.user.parameters()]
dense = [*model.bottom.parameters(), *model.top.parameters()]
optimizers = [torch.optim.SparseAdam(sparse, lr=0.01), torch.optim.Adagrad(dense, lr=0.05)]
criterion = nn.BCEWithLogitsLoss()
for step in range(4):
    *inputs, clicked = batch_of(8)
    loss = criterion(model(*inputs), clicked)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    kinds = {parameter.grad.layout for parameter in model.parameters()}
    for optimizer in optimizers:
        optimizer.step()
    print(step, repr(loss.item()), len(kinds))

torch.save(model.state_dict(), "clicks.pt")
model.eval()
*inputs, clicked = batch_of(6)
with torch.no_grad():
    print("eval", repr(torch.sigmoid(model(*inputs)).tolist()))
print("train", repr(criterion(model(*inputs), clicked).item()))
