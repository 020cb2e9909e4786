"""The product with random signs: the same in every process, and told apart where norms are not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support import forked

from msprobe.monitor.operators import Operators
from msprobe.monitor.torch.meter import Meter
from msprobe.monitor.torch.projection import BLOCK, projection, signs_on

OPERATORS = Operators(("norm", "projection"), 1e-8)


def _measured(values: torch.Tensor, defer: bool = False) -> tuple[float, float]:
    meter = Meter(OPERATORS, defer)
    cells = meter.measure(values)
    meter.collect()()
    assert cells.values is not None
    norm, product = cells.values
    return float(norm or 0), float(math.nan if product is None else product)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32])
def test_it_is_the_sum_of_element_times_sign(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values = (torch.randn(7, 11) * 10).to(dtype)
    signs = signs_on(values.device)[:77].double()
    assert set(signs.tolist()) == {-1.0, 1.0}
    expected = float((values.flatten().double() * signs).sum())
    for defer in (False, True):
        assert _measured(values, defer)[1] == pytest.approx(expected, rel=1e-5, abs=1e-4)
        assert _measured(values.t(), defer)[1] == pytest.approx(
            float((values.t().flatten().double() * signs).sum()), rel=1e-4
        )


def test_elements_that_change_places_change_it_and_no_norm() -> None:
    torch.manual_seed(0)
    values = torch.randn(1000)
    (norm, product), (norm_of_other, other) = _measured(values), _measured(values.flip(0))
    assert norm == pytest.approx(norm_of_other, rel=1e-12)
    assert abs(product - other) > 1


def test_signs_begin_again_behind_a_block() -> None:
    values = torch.zeros(BLOCK + 3)
    values[1], values[BLOCK + 1] = 2.0, 3.0
    assert _measured(values)[1] == pytest.approx(5.0 * float(signs_on(values.device)[1]))


def test_what_has_no_product_is_nan() -> None:
    for values in (torch.zeros(0), torch.zeros(3, dtype=torch.complex64)):
        assert math.isnan(_measured(values)[1])
    assert projection(torch.zeros(0), torch.float64) is None


def test_another_process_has_the_same_signs_and_random_numbers_stay(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    here = "".join("+" if sign > 0 else "-" for sign in signs_on(torch.device("cpu"))[:64].tolist())
    assert torch.equal(torch.get_rng_state(), state)
    (tmp_path / "other.py").write_text(
        "import torch; torch.manual_seed(5); from msprobe.monitor.torch.projection import signs_on\n"
        "print(''.join('+' if s > 0 else '-' for s in signs_on(torch.device('cpu'))[:64].tolist()))"
    )
    assert forked.run("other.py", cwd=tmp_path).stdout.strip() == here
