"""What goes wrong on a (simulated) accelerator while a step is recorded: kills, no memory, errors, long steps."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from support import forked

from msprobe.store.reader import open_dump

pytestmark = pytest.mark.usefixtures("simulated_device")

BEGINNING = """
import os, sys
import torch, simdev
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
sim = simdev.load()
def debugger(**settings):
    return PrecisionDebugger(dump_path="dump", **{"task": "statistics", "level": "L1", **settings})
"""


def run(text: str, folder: Path, native: str = "1") -> forked.Completed:
    (folder / "program.py").write_text(BEGINNING + text)
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "MSPROBE_NATIVE": native}
    return forked.run("program.py", cwd=folder, env=environment)


def data_of(folder: Path, step: int = 0) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / f"dump/step{step}/rank/dump.json").read_text())["data"]
    return data


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("mode", ["statistics", "md5"])
def test_a_step_that_is_killed_keeps_its_records(tmp_path: Path, mode: str, native: str) -> None:
    text = f"""
x = torch.randn(8, 8).to("sim").requires_grad_()
it = debugger(summary_mode="{mode}")
it.start()
for _ in range(52):
    x = F.gelu(x @ x)
os.kill(os.getpid(), 9)
"""
    assert run(text, tmp_path, native).returncode == -signal.SIGKILL
    dump = open_dump(tmp_path / "dump")
    step = dump.steps[0]
    part = dump.part(step, dump.ranks(step)[0])
    assert len(part) >= 103, "of 104 records"


def test_numbers_reach_the_journal_while_the_step_runs(tmp_path: Path) -> None:
    text = """
x = torch.randn(8, 8).to("sim").requires_grad_()
it = debugger()
it.start()
for _ in range(100):
    x = F.gelu(x @ x)
    if _ == 60:
        torch.sim.synchronize()
os.kill(os.getpid(), 9)
"""
    assert run(text, tmp_path).returncode == -signal.SIGKILL
    dump = open_dump(tmp_path / "dump")
    step = dump.steps[0]
    part = dump.part(step, dump.ranks(step)[0])
    records = {name: part.record(name) for name in part.names()[:100]}
    assert sum(record["output"][0]["Max"] is not None for record in records.values()) >= 80


def test_no_memory_is_called_so_and_the_training_goes_on(tmp_path: Path) -> None:
    text = """
x = torch.ones(1 << 16, dtype=torch.bfloat16, device="sim")
it = debugger()
it.start()
out = torch.empty_like(x)
torch.relu(x[:8])
sim.limit(sim.allocated() + 8192)
torch.relu(x, out=out) if False else torch.neg_(x)
sim.limit(0)
torch.relu(x[:8])
it.stop()
it.step()
assert x.sum().item() == -(1 << 16)
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    data = data_of(tmp_path)
    (said,) = data["Torch.neg_.0.forward"]["output"]
    assert said["Max"] is None
    assert said["unsupported"].startswith("out of memory")
    assert data["Torch.relu.1.forward"]["output"][0]["Max"] == 0.0
    assert "no memory" in done.stdout + done.stderr


def test_an_error_in_the_middle_costs_its_chunk_and_no_later_step(tmp_path: Path) -> None:
    text = """
it = debugger()
x = torch.randn(128, 128).to("sim")
for step in range(2):
    it.start()
    for number in range(60):
        x = torch.tanh(x @ x)
        if step == 0 and number == 20:
            sim.break_next("aten::cat")
    it.stop()
    it.step()
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = data_of(tmp_path, 0), data_of(tmp_path, 1)
    assert len(first) == len(second) == 120
    lost = [name for name, record in first.items() if record["output"][0]["Max"] is None]
    assert 0 < len(lost) <= 64, "more than a chunk"
    assert all("device failed" in first[name]["output"][0]["unsupported"] for name in lost)
    assert all(record["output"][0]["Max"] is not None for record in second.values())


def test_what_waits_for_a_slow_device_is_bounded(tmp_path: Path) -> None:
    text = """
from msprobe.capture.torch.devices import late_descriptions
late_descriptions.MOST_CHUNKS = 1
it = debugger()
x = torch.randn(4, 4).to("sim")
torch.sim.synchronize()
sim.slow_down(30)
peaks = []
it.start()
for _ in range(8):
    sim.reset_peak()
    before = sim.allocated()
    for _ in range(40):
        torch.tanh(x + 1)
    peaks.append(sim.peak())
it.stop()
print(peaks)
assert peaks[-1] < 2 * peaks[2], peaks
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("task", ["overflow_check", "nan_check"])
def test_a_check_for_overflow_ends_after_so_many(tmp_path: Path, task: str) -> None:
    text = f"""
it = debugger(task="{task}", overflow_nums=2)
x = torch.tensor([1.0, 0.0]).to("sim")
it.start()
for _ in range(5):
    torch.relu(x)
    torch.log(x)
it.stop()
it.step()
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(data_of(tmp_path)) == ["Torch.log.0.forward", "Torch.log.1.forward"]
    assert (done.stdout + done.stderr).count("Overflow detected") == 2
    files = {file.name for file in tmp_path.rglob("*.pt")}
    expected = {f"Torch.log.{n}.forward.{part}.0.pt" for n in range(2) for part in ("input", "output")}
    assert files == (expected if task == "overflow_check" else set())


@pytest.mark.parametrize("task", ["statistics", "tensor", "overflow_check"])
def test_a_capture_of_the_program_is_what_it_is_without_recorder(tmp_path: Path, task: str) -> None:
    text = f"""
x = torch.ones(3, device="sim")
def capture():
    graph = simdev.Graph()
    with graph.capture():
        y = F.gelu(x * 2).to(torch.int32).abs()
    return graph.kernels
without = capture()
it = debugger(task="{task}")
it.start()
for _ in range(40):
    torch.relu(x - 1)
with simdev.no_waits():
    recorded = capture()
torch.log(x - 1)
it.stop()
it.step()
assert recorded == without
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = data_of(tmp_path)
    if task == "overflow_check":
        assert list(said) == ["Torch.log.0.forward"]
    else:
        assert said["Functional.gelu.0.forward"]["output"][0]["Max"] is None
        assert "captures" in said["Functional.gelu.0.forward"]["output"][0]["unsupported"]
        assert said["Torch.relu.39.forward"]["output"][0]["Max"] == 0.0
    assert "captures" in done.stdout + done.stderr


@pytest.mark.parametrize("is_dropped", [False, True])
@pytest.mark.parametrize("level", ["L0", "mix", "L2"])
def test_a_training_step_is_captured_as_without_recorder(tmp_path: Path, level: str, is_dropped: bool) -> None:
    """Its backward, too, after steps that were recorded on another stream."""
    text = f"""
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()).to("sim")
x = torch.randn(4, 8).to("sim")
def work():
    y = model(x)
    torch.empty(4, 8, device="sim").copy_(y)
    y.sum().backward()
def capture():
    graph = simdev.Graph()
    with graph.capture():
        work()
    return graph
work()
model.zero_grad(set_to_none=False)
without = capture().kernels
it = debugger(level="{level}")
it.start(model)
if {is_dropped}:
    model(x)  # whose backward never comes
else:
    work()
torch.sim.synchronize()
with simdev.no_waits():
    graph = capture()
for _ in range(2):
    graph.replay()
work()
it.stop()
it.step()
assert graph.kernels == without, (graph.kernels, without)
expected = sum(parameter.grad.sum() for parameter in model.parameters())
assert expected.isfinite()
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "captures a graph" in done.stdout + done.stderr
    said = [json.dumps(record) for record in data_of(tmp_path).values()]
    inside = [record for record in said if "inside of a graph that the program captures" in record]
    assert inside
    assert len(inside) < len(said)
    # What is recorded after it has its gradients again.
    names = list(data_of(tmp_path))
    assert any(".backward." in name or "_backward" in name for name in names[-12:]), names


@pytest.mark.parametrize("mode", ["statistics", "xxh3"])
def test_a_device_without_streams_is_read_when_the_step_ends(tmp_path: Path, mode: str) -> None:
    text = f"""
del torch.sim.Stream
it = debugger(summary_mode="{mode}")
x = torch.ones(3).to("sim")
it.start()
with simdev.no_waits():
    for _ in range(100):
        x = x + 1
it.stop()
it.step()
"""
    done = run(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    tops = [record["output"][0]["Max"] for record in data_of(tmp_path).values()]
    assert tops == [float(number + 2) for number in range(100)]
