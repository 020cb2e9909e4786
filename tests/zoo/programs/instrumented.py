"""A training that watches itself: profiler, flop counter, saved tensors on disk, anomaly mode, hooks on all modules."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_full_backward_hook
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(90)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
folder = tempfile.TemporaryDirectory()
calls, counts, kept = [], [], [0]


def pack(tensor):
    path = Path(folder.name) / f"{kept[0]}.pt"
    kept[0] += 1
    torch.save(tensor, path)
    return path


handles = [
    register_module_forward_hook(lambda module, args, output: calls.append(f"f {type(module).__name__}")),
    register_module_full_backward_hook(lambda module, given, taken: calls.append(f"b {type(module).__name__}")),
]


def ready(profiler):
    events = {event.key: event.count for event in profiler.key_averages()}
    counts.append([events.get(name) for name in ("aten::linear", "aten::gelu", "forward", "AddmmBackward0")])


x = torch.randn(6, 8)
with profile(
    activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready
) as p:
    for step in range(4):
        with record_function("forward"), saved_tensors_hooks(pack, torch.load):
            loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        p.step()
        print(step, repr(loss.item()), kept[0])
with FlopCounterMode(display=False) as counter, torch.autograd.detect_anomaly(check_nan=True):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("flops", counter.get_total_flops(), counts)
for handle in handles:
    handle.remove()
with torch.random.fork_rng():
    torch.manual_seed(1)
    print("noise", repr(torch.rand(1).item()))
print(len(calls), calls[:8], calls[-4:])
torch.save(model.state_dict(), "instrumented.pt")
folder.cleanup()
del p
