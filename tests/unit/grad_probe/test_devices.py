"""What is computed on an accelerator and comes to the host in one piece is what the CPU would have found."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from msprobe.config.settings import GradientProbe  # noqa: E402
from msprobe.grad_probe.measure import ProbedGradient, measure  # noqa: E402
from msprobe.grad_probe.torch_devices import DeviceStep  # noqa: E402

GRADIENTS = {
    "usual": [9.3, 5.4, -1.0, -12.3],
    "bounds": [-2, -1, -0.5, -0.0, 0.0, 0.5, 1, 1.5, 2],
    "not finite": [math.nan, 1.0, math.inf, -math.inf],
    "zeros": [0.0, 0.0],
    "empty": [],
    "scalar": 3.0,
    "matrix": [[1.0, -2.0], [3.0, -4.0], [0.0, 1e-30]],
}


def same(one: Any, other: Any) -> bool:
    return one == pytest.approx(other, rel=1e-6, nan_ok=True) if isinstance(one, float) else one == other


NEEDS_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "fields",
    [
        GradientProbe("L0"),
        GradientProbe("L1"),
        GradientProbe("L2"),
        GradientProbe("L2", bounds=()),
        GradientProbe("L1", direction="ternary"),
        GradientProbe("L1", direction="packed"),
        GradientProbe("L0", checksum="md5"),
    ],
)
def test_a_step_of_gradients(fields: GradientProbe, dtype: torch.dtype, device: str) -> None:
    step = DeviceStep(torch.device(device), fields)
    entries, expected = [], []
    for name, numbers in GRADIENTS.items():
        values = torch.tensor(numbers, dtype=dtype)
        shape = tuple(values.shape)
        entries.append(step.add(name, values.to(device), shape, None))
        flat = values.numpy().reshape(-1)
        expected.append(measure(ProbedGradient(name, flat, values.data_ptr(), shape), fields))
    step.launch()
    for entry, (row, direction) in zip(entries, expected, strict=True):
        assert callable(entry)
        found, found_direction = entry()
        for field in dataclasses.fields(row):
            one, other = getattr(found, field.name), getattr(row, field.name)
            if field.name == "shares":
                assert len(one) == len(other)
                assert all(map(same, one, other)), row.name
            else:
                assert same(one, other), (row.name, field.name)
        if direction is None:
            assert found_direction is None
        else:
            assert found_direction is not None
            assert found_direction.dtype == direction.dtype
            assert np.array_equal(found_direction, direction)
