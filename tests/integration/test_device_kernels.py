"""A kernel by which a (simulated) accelerator measures a tensor in one launch: proven first, without waiting."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from support import forked

from msprobe.store.reader import open_dump

pytestmark = pytest.mark.usefixtures("simulated_device")

PROGRAM = """
import math, sys
import torch, simdev
from msprobe.pytorch import PrecisionDebugger
device, offer = sys.argv[1:]
sim = simdev.load()
if offer != "nothing":
    sim.offer_rows(offer == "right")
torch.manual_seed(0)
# More than what is copied.
tensors = [torch.randn(60, 700).to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)]
tensors[0][3, 4], tensors[1][5, 6], tensors[2][7, 8], tensors[3][9, 1] = math.nan, math.inf, -math.inf, -1e150
tensors = [tensor.to(device) for tensor in tensors] + [torch.randn(300, 500).to(device).t()]
it = PrecisionDebugger(dump_path=device, level="L1", task="statistics")
launched = []
for step in range(2):
    it.start()
    trace = simdev.Trace()
    with trace:
        for tensor in tensors:
            tensor.neg()
    it.stop()
    it.step()
    assert trace.number_of_waits == 0, trace.waits
    launched.append(trace.number_of_launches)
print(launched[-1])
"""


def run(folder: Path, device: str, offer: str) -> int:
    """Record; how many kernels the second step launched, the five of the program among them."""
    (folder / "program.py").write_text(PROGRAM)
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = forked.run("program.py", device, offer, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(next(line for line in done.stdout.splitlines() if line.isdigit()))


# Of ten tensors two are not contiguous, and larger than what the signs of reductions are one matrix for.
@pytest.mark.parametrize(("offer", "most"), [("right", 10 + 2), ("wrong", 8 * 9 + 2 * 17), ("nothing", 8 * 9 + 2 * 17)])
def test_a_kernel_of_the_device_is_used_if_it_is_right(tmp_path: Path, offer: str, most: int) -> None:
    own = run(tmp_path, "sim", offer) - 5
    assert own <= most
    assert offer == "right" or own > 50
    run(tmp_path, "cpu", "nothing")
    found = []
    for device in ("sim", "cpu"):
        part = open_dump(tmp_path / device).part(1)
        tensors = part.tensors()
        found.append((tensors, part.rows.take(tensors.row)))
        part.close()
    (ours, our_rows), (theirs, their_rows) = found
    assert len(ours) == len(theirs) == 10
    for name in ("max", "min", "mean", "norm"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-6, err_msg=name)
    size = np.sqrt(their_rows["squares"])[:, None] * 300
    assert (np.abs(our_rows["signed"] - their_rows["signed"]) <= 1e-12 * size).all()
    np.testing.assert_allclose(our_rows["squares"], their_rows["squares"], rtol=1e-12)
    assert (our_rows["left_out"] == their_rows["left_out"]).all()
    assert (our_rows["zero"] == their_rows["zero"]).all()


def test_constants_on_the_device_serve_every_stream(tmp_path: Path) -> None:
    """Another stream than the one on which they were put there waits for them."""
    (tmp_path / "program.py").write_text("""
import json, torch, simdev
from msprobe.capture.torch.tensors.statistics import TensorStatistics
sim = simdev.load()
torch.manual_seed(0)
# By a matrix of signs, and by words of them.
tensors = [torch.randn(20_000), torch.randn(300_000)] * 2
on_device = [tensor.to("sim") for tensor in tensors]
torch.sim.synchronize()
found = []
for device, given in (("cpu", tensors), ("sim", on_device)):
    statistics = TensorStatistics()
    statistics.rows.on = True
    streams = [torch.sim.Stream(), torch.sim.Stream()]
    for number, tensor in enumerate(given):
        with torch.sim.stream(streams[number // 2]):
            sim.slow_down(2000 if number < 2 else 0)
            statistics.describe(tensor)
    statistics.flush()
    found.append(torch.frombuffer(bytearray(statistics.rows.take()[1]), dtype=torch.float64).view(-1, 16)[:, :10])
cpu, device = found
for row in device:
    assert (row - cpu).abs().max(dim=1).values.min() < 1e-6, (row, cpu)
""")
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = forked.run("program.py", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
