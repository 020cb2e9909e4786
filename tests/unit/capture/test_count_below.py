"""How many elements the C extension finds below a bound, against torch in double."""

from __future__ import annotations

import math

import pytest
import torch

from msprobe.capture import native

pytestmark = pytest.mark.skipif(native.count_below is None, reason="the C extension is not in use")


BOUNDS = (1e-8, 6e-8, 5e-4, 1e-3, 1e30, 1e-50, 1e300, 0.0, -1.0)


@pytest.mark.parametrize("kernels", ["baseline", "avx2"])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_as_torch_counts(kind: str, kernels: str) -> None:
    from msprobe.capture import _native

    if not _native.choose_kernels(kernels):
        pytest.skip(f"this machine has no {kernels}")
    assert native.count_below is not None
    try:
        for count in (0, 1, 17, 100_003):
            torch.manual_seed(count)
            values = (torch.randn(count) * 1e-3).to(getattr(torch, kind))
            if count > 10:
                special = torch.tensor([1e-8, 0.0, float("nan"), float("inf"), -0.0, -float("inf"), -1e-8])
                values[3:10] = special.to(values.dtype)
            sizes = values.double().abs()
            found = [native.count_below(values.data_ptr(), count, native.KINDS[kind], bound) for bound in BOUNDS]
            assert found == [int((sizes < bound).sum()) for bound in BOUNDS]
    finally:
        for best in ("baseline", "avx2", "avx512"):
            _native.choose_kernels(best)


def test_the_bound_itself_is_not_below() -> None:
    assert native.count_below is not None
    value = torch.tensor([1e-8])  # as float32 a little below 1e-8 as a double
    assert native.count_below(value.data_ptr(), 1, native.KINDS["float32"], value.double().item()) == 0
    assert native.count_below(value.data_ptr(), 1, native.KINDS["float32"], 1e-8) == 1


def test_kinds_without_magnitudes_are_refused() -> None:
    assert native.count_below is not None
    with pytest.raises(ValueError, match="of kind"):
        native.count_below(0, 0, native.KINDS["int32"], 1.0)


@pytest.mark.parametrize("kernels", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16"])
def test_the_norm_alone_is_that_of_all_numbers(kind: str, kernels: str) -> None:
    from msprobe.capture import _native

    if not _native.choose_kernels(kernels):
        pytest.skip(f"this machine has no {kernels}")
    assert native.norm is not None
    assert native.numbers is not None
    number = native.KINDS[kind]
    torch.manual_seed(0)
    try:
        for values in (
            *(torch.randn(count) for count in (0, 1, 15, 16, 17, 1000, 100_003)),
            torch.randn(40) * 1e-41,
            torch.full((5,), float("inf")),
            torch.ones(30) / 0,
        ):
            values = values.to(getattr(torch, kind))
            norm = native.norm(values.data_ptr(), values.numel(), number)
            expected = native.numbers(values.data_ptr(), values.numel(), number, native.UNROUNDED, 0).get("norm", 0.0)
            squares = [value * value for value in values.double().tolist()]
            assert norm == expected == pytest.approx(math.sqrt(math.fsum(squares)), rel=1e-14)
        for count in (2, 33):
            values = torch.ones(count).to(getattr(torch, kind))
            values[1] = float("nan")
            assert math.isnan(native.norm(values.data_ptr(), count, number))
    finally:
        for best in ("baseline", "avx2", "avx512"):
            _native.choose_kernels(best)


def test_the_norm_of_whole_numbers_is_refused() -> None:
    assert native.norm is not None
    with pytest.raises(ValueError, match="of kind"):
        native.norm(0, 0, native.KINDS["int64"])
