"""A graph convolution network on a sparse adjacency matrix, trained on all nodes at once; the end is a script."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(3)
NODES, FEATURES, CLASSES = 40, 12, 4


class GraphConvolution(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        bound = 1.0 / math.sqrt(outputs)
        self.weight.data.uniform_(-bound, bound)
        self.bias.data.uniform_(-bound, bound)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        return torch.mm(adjacency, torch.mm(x, self.weight)) + self.bias


class GCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphConvolution(FEATURES, 16), GraphConvolution(16, CLASSES)
        self.rate = 0.5

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x, adjacency))
        x = F.dropout(x, self.rate, training=self.training)
        return F.log_softmax(self.second(x, adjacency), dim=1)


edges = torch.randint(NODES, (2, 90))
edges = torch.cat([edges, edges.flip(0), torch.arange(NODES).repeat(2, 1)], dim=1)
adjacency = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (NODES, NODES)).coalesce()
degrees = torch.sparse.sum(adjacency, dim=1).to_dense()
values = adjacency.values() / degrees[adjacency.indices()[0]]
adjacency = torch.sparse_coo_tensor(adjacency.indices(), values, (NODES, NODES)).coalesce()
features = torch.rand(NODES, FEATURES)
features = features / features.sum(1, keepdim=True)
labels = torch.randint(CLASSES, (NODES,))
train, valid, test = torch.arange(20), torch.arange(20, 30), torch.arange(30, 40)

model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)


def accuracy(output, wanted):
    return (output.max(1)[1] == wanted).double().mean().item()


for epoch in range(4):
    model.train()
    optimizer.zero_grad()
    output = model(features, adjacency)
    loss = F.nll_loss(output[train], labels[train])
    loss.backward()
    optimizer.step()
    model.eval()
    output = model(features, adjacency)
    print(epoch, repr(loss.item()), repr(F.nll_loss(output[valid], labels[valid]).item()))

model.eval()
output = model(features, adjacency)
print("test", repr(F.nll_loss(output[test], labels[test]).item()), accuracy(output[test], labels[test]))
scripted = torch.jit.script(model)
scripted.save("gcn.pt")
print("scripted", torch.equal(scripted(features, adjacency), output))
torch.save(model.state_dict(), "weights.pt")
