"""The kernel of Triton, run by Triton's interpreter on tensors of the CPU, beside the framework's reductions; and
compiled for GPUs, of which none is needed for that.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

BEGINNING = """
import math, warnings
import torch
from msprobe.capture.torch.devices import row_kernels
from msprobe.capture.torch.devices import row_triton
from msprobe.capture.torch.devices.device_rows import NUMBERS, Cell
warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, in the interpreter
"""

INTERPRETED = """
def numbers_of(values):
    room = torch.full((NUMBERS,), 7.0, dtype=torch.float64)
    row_triton.fill_row(values, room)
    return room.tolist()

shapes = [(63,), (64,), (65,), (511,), (512,), (513,), (3, 5, 7), (4097,), (17_000,)]
cases = [torch.randn(shape) for shape in shapes]
for dtype in row_kernels.TYPES:
    cases += [torch.full((9,), special, dtype=dtype) for special in (math.nan, math.inf, -0.0)]
    top = torch.finfo(dtype).max
    cases += [torch.tensor([top, -top, 0.5], dtype=dtype), torch.tensor([1e18, -1e18, 2e18]).to(dtype)]
    if dtype != torch.bfloat16:  # of which the interpreter makes zeros
        cases += [torch.tensor([torch.finfo(dtype).tiny / 2, 1.0], dtype=dtype)]
proof = row_kernels.probes()
# The interpreter is slow.
cases += [values for values in proof if values.numel() < 1000 or values.dtype in (torch.float32, torch.bfloat16)]
for values in cases:
    problem = row_kernels.difference(numbers_of(values), row_kernels.expected(values), values)
    assert not problem, problem

# What is wrong is noticed.
values = row_kernels.probes()[-1]
for place in range(Cell.BLOCK + 8):
    found = row_kernels.expected(values)
    found[place] += 1e-3 * (1 + abs(found[place]))
    is_unknown = place in (Cell.KEPT_MAX, Cell.KEPT_MIN, Cell.MAX, Cell.MIN)
    is_nan = math.isnan(found[place]) or math.isinf(found[place])
    assert row_kernels.difference(found, row_kernels.expected(values), values) or is_unknown or is_nan, place
"""

COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
integers = dict(count="i64", block="i32", parts="i32", words="i32")
for name in ("fp32", "bf16"):
    signature = dict(values="*" + name, lanes="*i32", room="*fp64") | integers
    source = ASTSource(fn=row_triton._parts_of, signature=signature)
    found = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 8})
    assert found.asm["cubin"]
source = ASTSource(fn=row_triton._sum_of, signature=dict(room="*fp64", numbers="*fp64", programs="i32"))
assert triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4}).asm["cubin"]
"""


@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_the_kernel_computes_what_the_framework_does(tmp_path: Path, way: str) -> None:
    (tmp_path / "program.py").write_text(BEGINNING + (INTERPRETED if way == "interpreted" else COMPILED))
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path)}
    if way == "interpreted":
        environment["TRITON_INTERPRET"] = "1"
    words = [sys.executable, "program.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
