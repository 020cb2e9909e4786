"""A student learns from a frozen teacher: its logits at a temperature, and features caught by hooks of the program."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(88)
teacher = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
for parameter in teacher.parameters():
    parameter.requires_grad_(False)
features = {}
handles = [
    teacher[2].register_forward_hook(lambda module, args, output: features.__setitem__("teacher", output)),
    student[0].register_forward_hook(lambda module, args, output: features.__setitem__("student", output)),
]
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2, amsgrad=True)
data = torch.utils.data.TensorDataset(torch.randn(24, 10), torch.randint(4, (24,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
for epoch in range(2):
    for x, labels in loader:
        with torch.no_grad():
            wanted = teacher(x)
        made = student(x)
        soft = F.kl_div(F.log_softmax(made / 3, 1), F.softmax(wanted / 3, 1), reduction="batchmean") * 9
        loss = soft + 0.5 * F.cross_entropy(made, labels) + 0.1 * F.mse_loss(features["student"], features["teacher"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, repr(loss.item()))
for handle in handles:
    handle.remove()
student.eval()
print("agree", int((student(data.tensors[0]).argmax(1) == teacher(data.tensors[0]).argmax(1)).sum()))
scripted = torch.jit.script(student)
scripted.save("student.pt")
print(scripted.code)
