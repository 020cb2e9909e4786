"""The simulated accelerator of tests/simdev is like a real one where that matters to a recorder."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from support import forked

pytestmark = pytest.mark.usefixtures("simulated_device")

BEGINNING = "import torch, simdev\nimport torch.nn.functional as F\nsim = simdev.load()\n"
PROGRAMS = {
    "kernels run later and in order": """
x = torch.ones(4).to("sim")
event = torch.sim.Event()
sim.slow_down(50_000)
y = (x + 1).mul_(3)
event.record()
assert not event.query()
assert y.tolist() == [6.0] * 4 and event.query()
""",
    "autograd, optimizers and random numbers": """
torch.manual_seed(5)
def train(device):
    torch.manual_seed(1)
    from torch import nn
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(108, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(5, 2, 8, 8).to(device)), torch.arange(4).repeat(2)[:5].to(device)).backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]
for ours, theirs in zip(train("sim"), train("cpu")):
    torch.testing.assert_close(ours, theirs)
x = torch.ones(1000, device="sim")
state = torch.sim.get_rng_state()
first = F.dropout(x, 0.5)
torch.sim.set_rng_state(state)
assert torch.equal(first, F.dropout(x, 0.5)) and not torch.equal(first, F.dropout(x, 0.5))
with torch.autocast("sim", dtype=torch.bfloat16):
    assert (torch.ones(2, 2, device="sim") @ torch.ones(2, 2, device="sim")).dtype == torch.bfloat16
""",
    "results whose sizes depend on values": """
x = torch.tensor([1.0, -2.0, 3.0]).to("sim")
with simdev.Trace() as trace:
    assert torch.nonzero(x > 0).shape == (2, 1) and x[x > 0].shape == (2,)
assert trace.number_of_waits >= 2
""",
    "streams wait for each other by events": """
side, event = torch.sim.Stream(), torch.sim.Event()
x = torch.zeros(1, device="sim")
torch.sim.synchronize()
sim.slow_down(20_000)
with torch.sim.stream(side):
    assert torch.sim.current_stream() == side
    y = x + 7
    event.record(side)
assert torch.sim.current_stream() != side
with simdev.no_waits():
    torch.sim.current_stream().wait_event(event)
    z = y + 1
assert z.item() == 8
""",
    "what is freed is overwritten unless its user is known": """
side = torch.sim.Stream()
x = torch.full((8,), 3.0).to("sim")
sim.slow_down(100_000)
with torch.sim.stream(side):
    blocked = torch.zeros(1, device="sim") + 1
    y = x * 2
x.record_stream(side)
del x
torch.sim.current_stream().wait_stream(side)
assert y.tolist() == [6.0] * 8
sim.slow_down(0)
address = torch.full((8,), 3.0, device="sim").data_ptr()
z = torch.empty(8, device="sim")
assert z.data_ptr() == address and z.isnan().all().item()
""",
    "waits are counted with their places, and may be errors": """
x = torch.ones(3, device="sim")
with simdev.Trace(with_launches=True) as trace:
    (x + 1).sum().item()
((what, frames),) = trace.waits
assert what == "aten::_local_scalar_dense" and frames[0].startswith("program.py:")
assert trace.number_of_launches == 2 and {what for what, _ in trace.launches} == {"aten::add", "aten::sum"}
for wait in (x.tolist, x.cpu, torch.sim.synchronize, lambda: torch.nonzero(x), torch.sim.current_stream().synchronize):
    try:
        with simdev.no_waits():
            wait()
    except RuntimeError as error:
        assert "synchronizing operation" in str(error)
    else:
        raise SystemExit(f"{wait} did not wait")
""",
    "pinned memory takes copies without a wait": """
x = torch.arange(4.0).to("sim")
pinned, pageable = torch.empty(4, pin_memory=True), torch.empty(4)
assert pinned.is_pinned() and not pageable.is_pinned()
sim.slow_down(50_000)
with simdev.no_waits():
    pinned.copy_(x, non_blocking=True)
    pinned.to("sim", non_blocking=True)
with simdev.Trace() as trace:
    pageable.copy_(x, non_blocking=True)
assert trace.number_of_waits == 1
torch.sim.synchronize()
assert pinned.tolist() == pageable.tolist() == [0.0, 1.0, 2.0, 3.0]
""",
    "a captured graph runs when it is replayed": """
x, total = torch.ones(3, device="sim"), torch.zeros(3, device="sim")
graph = simdev.Graph()
with graph.capture():
    assert torch.sim.is_current_stream_capturing() and torch.sim.current_stream().is_capturing()
    total.add_(x * 2)
assert not torch.sim.is_current_stream_capturing() and graph.kernels == 2
assert total.tolist() == [0.0] * 3
graph.replay()
x.add_(1)
graph.replay()
torch.sim.synchronize()
assert total.tolist() == [6.0] * 3
""",
    "a wait breaks a capture": """
x = torch.ones(3, device="sim")
try:
    with simdev.Graph().capture():
        try:
            x.sum().item()
        except RuntimeError as error:
            assert "capturing" in str(error)
except RuntimeError as error:
    assert "invalidated" in str(error)
else:
    raise SystemExit("not broken")
assert x.sum().item() == 3
""",
    "memory ends": """
before = sim.allocated()
sim.limit(before + 4096)
try:
    torch.empty(2000, device="sim")
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error)
else:
    raise SystemExit("there was memory")
torch.empty(1000, device="sim")
assert sim.allocated() == before
""",
}


def run(text: str, folder: Path) -> forked.Completed:
    (folder / "program.py").write_text(BEGINNING + text)
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    return forked.run("program.py", cwd=folder, env=environment)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_like_a_device(tmp_path: Path, name: str) -> None:
    done = run(PROGRAMS[name], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_host_cannot_read_its_memory(tmp_path: Path) -> None:
    text = """
import ctypes
x = torch.ones(3, device="sim")
torch.sim.synchronize()
ctypes.string_at(x.data_ptr(), 4)
"""
    assert run(text, tmp_path).returncode == -signal.SIGSEGV
