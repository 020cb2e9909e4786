"""Errors that go one way are known by their slope and bias; rounding, which has no direction, is not taken for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msprobe.precheck.side.elements import unit_in_last_place
from msprobe.precheck.slopes import SlopePool
from msprobe.signed_errors import CheckedResult, SignedErrors, judge_signed

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _from_the_beginning() -> None:
    """Each test draws the same numbers, whichever ran before it."""
    RANDOM.bit_generator.state = np.random.default_rng(0).bit_generator.state


EPSILON = {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23}


def rounded(values: Any, dtype: str) -> Any:
    """Numbers rounded to the nearest of a type."""
    unit = unit_in_last_place(values, dtype, np)
    return np.rint(values / unit) * unit


def judged(reference: Any, candidate: Any, dtype: str = "bfloat16", own: Any = None) -> SignedErrors:
    unit = unit_in_last_place(reference, dtype, np)
    scale = np.maximum(unit, np.sqrt(np.mean(reference**2)) * EPSILON[dtype] / 8)
    errors = None if own is None else own - reference
    return judge_signed(CheckedResult(reference, candidate - reference, unit, scale, EPSILON[dtype], errors))


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("shape", [(4096,), (64, 128), (2, 4, 32, 16), (4, 16, 8, 8), (40,), (1, 300)])
def test_rounding_passes_whatever_the_shape(dtype: str, shape: tuple[int, ...]) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).standard_normal(shape)
        assert judged(values, rounded(values, dtype), dtype).status == "pass"


@pytest.mark.parametrize(
    ("what", "values"),
    [
        ("one number again and again", np.full((64, 64), 1.2345)),
        ("few numbers", RANDOM.choice([0.3, 0.7, 1.1], (64, 64))),
        ("many sizes", np.exp(RANDOM.uniform(-20, 20, (64, 64)))),
        ("one large element", np.append(RANDOM.standard_normal(4095), 1e6).reshape(64, 64)),
        ("zeros", np.zeros((64, 64))),
        ("a probability", RANDOM.dirichlet(np.ones(64), 64)),
        ("whole numbers", RANDOM.integers(-300, 300, (64, 64)).astype(float)),
        ("a column of one size", np.outer(np.ones(64), np.geomspace(1e-6, 1e6, 64)) * RANDOM.standard_normal((64, 64))),
    ],
)
@pytest.mark.parametrize("dtype", EPSILON)
def test_rounding_passes_whatever_the_numbers(what: str, values: Any, dtype: str) -> None:
    assert judged(values, rounded(values, dtype), dtype).status == "pass", what


@pytest.mark.parametrize("seed", range(4))
def test_a_rounding_that_a_row_shares_passes(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.standard_normal((64, 128))
    norms = np.sqrt((values**2).mean(-1, keepdims=True))
    rough = rounded(rounded(values, "bfloat16") / rounded(norms, "bfloat16"), "bfloat16")
    assert judged(values / norms, rough).status == "pass"


@pytest.mark.parametrize(("dtype", "seen", "error"), [("bfloat16", 0.01, 0.03), ("float16", 0.01 / 8, 0.03 / 8)])
@pytest.mark.parametrize("way", [1, -1])
def test_a_factor_is_seen_from_a_unit_on_and_an_error_from_four_on(
    dtype: str, seen: float, error: float, way: int
) -> None:
    values = RANDOM.standard_normal((64, 128))
    found = judged(values, rounded(values * (1 + way * seen), dtype), dtype)
    assert found.status == "Warning"
    assert found.slope * way == pytest.approx(seen, rel=0.1)
    assert judged(values, rounded(values * (1 + way * error), dtype), dtype).status == "error"


@pytest.mark.parametrize(("factor", "status"), [(1e-7, "pass"), (1e-6, "Warning"), (4e-6, "error")])
def test_a_factor_in_single_precision_is_several_units(factor: float, status: str) -> None:
    values = RANDOM.standard_normal((64, 128))
    assert judged(values, rounded(values * (1 + factor), "float32"), "float32").status == status


@pytest.mark.parametrize(
    "part",
    [
        (slice(None), 5),
        (3,),
        (slice(16, 24),),
        (slice(None), slice(None), slice(4, 6)),
        (2, 7),
        (slice(None), slice(8, 16), slice(None), slice(0, 4)),
    ],
)
def test_a_part_that_is_off_is_found_and_named(part: tuple[Any, ...]) -> None:
    values = RANDOM.standard_normal((32, 16, 8, 8))
    factors = np.ones(values.shape)
    factors[part] = 1.05
    found = judged(values, rounded(values * factors, "bfloat16"))
    assert found.status == "error"
    assert "[" in found.message


def test_neighbours_that_are_off_are_found_in_a_result_of_one_dimension() -> None:
    values = RANDOM.standard_normal(4096)
    factors = np.ones(4096)
    factors[1024:1280] = 0.95
    assert judged(values, rounded(values * factors, "bfloat16")).status == "error"


@pytest.mark.parametrize("sign", [1, -1])
def test_elements_of_one_sign_that_are_off_are_found(sign: int) -> None:
    values = RANDOM.standard_normal(4096)
    assert judged(values, rounded(values * np.where(values * sign > 0, 1.04, 1.0), "bfloat16")).status == "error"


@pytest.mark.parametrize(("share", "status"), [(0.002, "pass"), (0.01, "Warning"), (0.03, "error")])
def test_a_constant_that_is_added_is_found(share: float, status: str) -> None:
    values = RANDOM.standard_normal((64, 128))
    assert judged(values, rounded(values + share, "bfloat16")).status == status


def test_a_constant_for_each_channel_is_found_though_their_mean_is_none() -> None:
    values = RANDOM.standard_normal((16, 8, 12, 12))
    added = np.resize([0.05, -0.05], 8)[:, None, None]
    assert judged(values, rounded(values + added, "bfloat16")).status == "error"


def test_what_an_ordinary_kernel_is_off_by_is_allowed() -> None:
    values = RANDOM.standard_normal((64, 128))
    rough = rounded(values * 1.02, "bfloat16")
    assert judged(values, rough, own=rough).status == "pass"
    assert judged(values, rounded(values * 1.06, "bfloat16"), own=rough).status == "error"


def test_a_single_number_says_less_than_many() -> None:
    one = np.array([1.3])
    assert judged(one, one * (1 + 2**-8)).status == "pass"
    assert judged(one, one * 1.2).status == "error"


def test_arrays_of_torch_and_of_numpy_are_judged_alike() -> None:
    torch = pytest.importorskip("torch")
    values = RANDOM.standard_normal((16, 8, 12, 12))
    for candidate in (values * 1.01, values + 0.05, np.where(np.arange(12) == 3, values * 1.1, values)):
        candidate = rounded(candidate, "bfloat16")
        unit = unit_in_last_place(values, "bfloat16", np)
        arrays = values, candidate - values, unit, unit
        ours = judge_signed(CheckedResult(*arrays, 2.0**-7))
        theirs = judge_signed(CheckedResult(*map(torch.tensor, arrays), 2.0**-7))
        assert ours[:2] == theirs[:2]
        assert ours[2:] == pytest.approx(theirs[2:])


def test_calls_of_one_api_are_surer_together_than_each() -> None:
    off, healthy = SlopePool(), SlopePool()
    for _ in range(40):
        loss = RANDOM.uniform(1, 2, 1)
        for pool, factor in ((off, 1.01), (healthy, 1.0)):
            found = judged(loss, rounded(loss * factor, "bfloat16"))
            pool.add(found.slope, found.standard_error)
    assert off.status(2.0**-7) == "Warning"
    assert off.fit.size == pytest.approx(0.01, rel=0.3)
    assert healthy.status(2.0**-7) == "pass"


def test_a_pool_of_nothing_says_nothing() -> None:
    pool = SlopePool()
    pool.add(0.5, float("inf"))
    assert (pool.count, pool.status(2.0**-7)) == (0, "pass")


WAYS = {
    "toward zero": np.trunc,
    "down": np.floor,
    "up": np.ceil,
    "away from zero": lambda x: np.sign(x) * np.ceil(abs(x)),
}


@pytest.mark.parametrize("way", [*WAYS, "to nearest", "a factor of half a unit", "equal numbers"])
def test_numbers_that_are_all_rounded_one_way_are_a_warning(way: str) -> None:
    """Numbers between 1 and 2 in units of 1/128, of both signs."""
    drawn = np.random.default_rng(0)
    reference = drawn.uniform(128, 256, (40, 30)) * drawn.choice([-1, 1], (40, 30))
    if way == "equal numbers":
        reference = np.full((40, 30), 131.7)
    steps = WAYS.get(way, np.trunc if way == "equal numbers" else np.rint)
    given = reference * (1 - 0.5 / 192) if way.startswith("a factor") else reference
    errors, units = steps(given) - reference, np.ones_like(reference)
    found = judge_signed(CheckedResult(reference, errors, units, units, 2.0**-7))
    if way in WAYS:
        assert found.status == "Warning"
        assert found.strength < 1
        assert way in found.message
    else:
        assert "are rounded" not in found.message


#: Factors below the limit of a whole result, and what every element has in common where none is.
SMALL = {
    "a variance by n - 1 of 256": lambda x: x * (255 / 256) ** 0.5,
    "a factor of 0.15 %": lambda x: x * 1.0015,
    "no factor": lambda x: x,
    "one that rows share": lambda x: x * (1 + 0.002 * np.where(np.arange(len(x)) % 2, 1, -1))[:, None],
    "one of the large numbers": lambda x: np.where(abs(x) > 1, x * 1.0025, x),
    "one of the first rows": lambda x: np.where((np.arange(len(x)) < 16)[:, None], x * 1.003, x),
}


@pytest.mark.parametrize("what", SMALL)
@pytest.mark.parametrize("seed", range(3))
def test_a_small_factor_is_a_warning_where_all_elements_have_it(what: str, seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((64, 256))
    found = judged(values, rounded(SMALL[what](values), "bfloat16"), own=rounded(values, "bfloat16"))
    assert (found.status == "Warning") == what.startswith("a ")
    assert found.strength < 1


@pytest.mark.parametrize("own", [True, False])
def test_a_small_factor_that_an_ordinary_kernel_has_too_passes(own: bool) -> None:
    values = RANDOM.standard_normal((64, 256))
    rough = rounded(values * 1.002, "bfloat16")
    assert judged(values, rough, own=rough if own else None).status == "pass"
