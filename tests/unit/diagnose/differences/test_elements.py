"""How pieces of two tensors differ: in C as with numpy, on each kind of processor, whatever the elements are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.diagnose.differences import elements
from msprobe.diagnose.differences.elements import Difference, compare_with_numpy

SPECIAL = [0.0, -0.0, 1.0, -1.5, float("nan"), float("inf"), -float("inf"), 1e-42, 3e38]


@pytest.fixture(params=["numpy", "baseline", "avx2", "avx512"])
def compare(request: pytest.FixtureRequest) -> Iterator[Callable[[Any, Any], Difference]]:
    """The comparison with numpy, and that in C with the instructions of each processor."""
    if request.param == "numpy":
        yield compare_with_numpy
        return
    native = pytest.importorskip("msprobe.diagnose.differences._elements")
    if not native.choose_kernels(request.param):
        pytest.skip(f"this machine has no {request.param}")
    try:
        yield native.compare
    finally:
        for best in ("baseline", "avx2", "avx512"):
            native.choose_kernels(best)


def _expected(left: Any, right: Any) -> tuple[Any, ...]:
    """All but the sums, element by element."""
    places = [place for place, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True)) if a != b]
    zeros = tuple(bool(((side == 0) & np.signbit(side)).any()) for side in (left, right))
    is_zero = all(left[place] == 0 for place in places)
    return len(places), places[0] if places else -1, places[-1] if places else -1, zeros, is_zero


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_each_element_counts_once(compare: Callable[[Any, Any], Difference], dtype: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(size=st.sampled_from([0, 1, 15, 16, 17, 1023, 1024, 1025, 9000]), data=st.data())
    def check(size: int, data: st.DataObject) -> None:
        random = np.random.default_rng(data.draw(st.integers(0, 1000)))
        left = random.standard_normal(size).astype(dtype)
        right = left.copy()
        for _ in range(data.draw(st.integers(0, 4)) if size else 0):
            place = data.draw(st.integers(0, size - 1))
            left[place] = data.draw(st.sampled_from(SPECIAL))
            right[place] = data.draw(st.sampled_from([left[place], *SPECIAL]))
        with np.errstate(all="ignore"):
            *places, squares = compare(left, right)
            sides = left, right, left - right
            assert tuple(places) == _expected(left, right)
            if all(np.isfinite(side.astype("f4")).all() and np.abs(side).max(initial=0) < 1e18 for side in sides):
                expected = [float(np.square(side.astype("f8")).sum()) for side in sides]
                assert squares == pytest.approx(expected, rel=1e-5, abs=1e-30)

    check()


def test_sums_are_those_of_large_pieces(compare: Callable[[Any, Any], Difference]) -> None:
    left = np.random.default_rng(0).standard_normal(1 << 17).astype("f4") * 100
    right = left * np.float32(1 + 1e-6)
    expected = [float(np.square(side.astype("f8")).sum()) for side in (left, right)]
    apart = float(np.square(left.astype("f8") - right.astype("f8")).sum())
    assert compare(left, right)[-1] == pytest.approx([*expected, apart], rel=1e-5)


def test_what_is_no_pair_of_floats_is_refused_by_the_extension() -> None:
    native = pytest.importorskip("msprobe.diagnose.differences._elements")
    floats = np.zeros(8, "f4")
    for left, right, error in (
        (floats, np.zeros(9, "f4"), ValueError),
        (floats, np.zeros(4, "f8"), ValueError),
        (floats, np.zeros(8, "i4"), TypeError),
        (np.zeros(8, "f2"), np.zeros(8, "f2"), TypeError),
        (floats, np.zeros(8, ">f4"), TypeError),
        (floats, np.zeros(16, "f4")[::2], (ValueError, BufferError)),
        (floats, None, TypeError),
    ):
        with pytest.raises(error):
            native.compare(left, right)
    with pytest.raises(TypeError):
        native.compare(floats)
    assert not native.choose_kernels("of tomorrow")


def test_the_extension_is_used_where_it_was_built() -> None:
    native = pytest.importorskip("msprobe.diagnose.differences._elements")
    assert elements.compare in (native.compare, compare_with_numpy)
    assert (elements.compare is native.compare) == elements.is_in_c
