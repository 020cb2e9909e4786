"""Rows of tensors: what the C extension and numpy make of the same elements, against sums without rounding."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.row_by_row import for_each

torch = pytest.importorskip("torch")

from msprobe.capture import native  # noqa: E402
from msprobe.capture.tensor_rows import PIECE, TensorRows, pieces_of, row_of, row_of_memory  # noqa: E402
from msprobe.capture.torch.devices import device_rows  # noqa: E402
from msprobe.capture.torch.tensors.statistics import TensorStatistics  # noqa: E402
from msprobe.store import row_format, row_signs  # noqa: E402
from msprobe.store.rows import StoredRows, TensorRow, distance  # noqa: E402

FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "bool")


def read(data: bytes, folder: Path) -> list[TensorRow]:
    """The rows as a reader of the file finds them."""
    path = folder / "dump_rows.bin"
    path.write_bytes(row_format.header() + data)
    rows = StoredRows(path)
    try:
        found = [rows.row(number) for number in range(len(rows))]
    finally:
        rows.close()
    assert None not in found
    return [row for row in found if row is not None]


# What of the extension is not there.
WAYS: dict[str, tuple[str, ...]] = {
    "all of it": (),
    "without the memo": ("Memo",),
    "without the extension": ("Memo", "RowTable", "numbers", "gather"),
}


def rows_of(tensor: torch.Tensor, folder: Path) -> Iterator[tuple[str, TensorRow]]:
    """The row of a tensor by each way in which it can be made."""
    for way, lacking in WAYS.items():
        with mock.patch.multiple(native, **dict.fromkeys(lacking)) if lacking else nullcontext():
            statistics = TensorStatistics()
            assert statistics.rows is not None
            statistics.rows.on = True
            assert b'"row":0' in statistics.describe(tensor, False).text
            first, data = statistics.rows.take()
        assert first == 0
        yield way, read(data, folder)[0]


def expected(tensor: torch.Tensor) -> tuple[TensorRow, float]:
    """The row by sums without rounding, and the norm of all that is in the sums."""
    elements = [float(value) for value in tensor.detach().reshape(-1).to(torch.float64).tolist()]
    kept = [value if abs(value) <= 1e18 else 0.0 for value in elements]
    chosen = [value for value in elements if abs(value) <= 1e18]
    block = row_format.block_of(len(kept))
    squares = [math.fsum(value * value for value in kept[n * block : (n + 1) * block]) for n in range(8)]
    signs = row_signs.signs(len(kept)).astype(float)
    row = TensorRow(
        max=float(np.float32(max(chosen))) if chosen else math.nan,
        min=float(np.float32(min(chosen))) if chosen else math.nan,
        sum=math.fsum(kept),
        squares=math.fsum(squares),
        blocks=tuple(math.sqrt(one) for one in squares),
        signed=tuple(math.fsum(sign * value for sign, value in zip(of_sum, kept, strict=True)) for of_sum in signs),
        zero=elements.count(0.0),
        left_out=len(elements) - len(chosen),
    )
    return row, math.fsum(abs(value) for value in kept)


def assert_is(row: TensorRow, right: TensorRow, size: float, way: str) -> None:
    near = 1e-13 * size + 1e-300
    assert row.sum == pytest.approx(right.sum, rel=1e-12, abs=near), way
    assert row.squares == pytest.approx(right.squares, rel=1e-12), way
    # The smallest block is known as exactly as a double of all squares.
    assert row.blocks == pytest.approx(right.blocks, rel=2e-7, abs=3e-8 * right.norm), way
    assert row.signed == pytest.approx(right.signed, rel=1e-12, abs=near), way
    assert (row.zero, row.left_out) == (right.zero, right.left_out), way
    assert (row.max, row.min) == pytest.approx((right.max, right.min), nan_ok=True, rel=0), way


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = getattr(torch, draw(st.sampled_from(FLOATS + WHOLE)))
    shape = draw(st.lists(st.integers(1, 9), max_size=4))
    if draw(st.integers(0, 9)) == 0:
        shape = [draw(st.integers(500, 6000))]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * draw(st.sampled_from((1e-3, 1.0, 90.0)))
    for special in draw(st.lists(st.sampled_from((0.0, math.nan, math.inf, -math.inf, -3e38, 1e18)), max_size=4)):
        if dtype.is_floating_point and values.numel():
            values.reshape(-1)[draw(st.integers(0, values.numel() - 1))] = special
    found = values.to(dtype)
    form = draw(st.sampled_from(("as it is", "permuted", "every second", "expanded")))
    if form == "permuted" and found.dim() > 1:
        found = found.permute(draw(st.permutations(range(found.dim()))))
    elif form == "every second" and found.dim():
        found = found[..., ::2]
    elif form == "expanded":
        found = found.expand(3, *found.shape)
    return found


@settings(max_examples=150, deadline=None)
@given(tensors())
def test_all_ways_agree_with_sums_without_rounding(tmp_path_factory: pytest.TempPathFactory, tensor: object) -> None:
    assert isinstance(tensor, torch.Tensor)
    folder = tmp_path_factory.getbasetemp()
    right, size = expected(tensor)
    for way, row in rows_of(tensor, folder):
        assert_is(row, right, size, way)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 2047, 2048, 2049, 5000])
def test_every_count_around_the_pieces_of_the_kernels(tmp_path: Path, count: int) -> None:
    tensor = torch.linspace(-3, 5, count, dtype=torch.float32)
    right, size = expected(tensor)
    for way, row in rows_of(tensor, tmp_path):
        assert_is(row, right, size, way)


def test_pieces_of_numpy_are_the_whole(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(PIECE + 777)
    tensor = torch.from_numpy(values)
    statistics = TensorStatistics()
    assert statistics.rows is not None
    statistics.rows.on = True
    statistics.describe(tensor, False)
    _, data = statistics.rows.take()
    one, other = read(data + row_of(pieces_of(values, lambda piece: piece), len(values)), tmp_path)
    assert one.signed == pytest.approx(other.signed, rel=1e-11, abs=1e-9)
    assert (one.sum, one.squares) == pytest.approx((other.sum, other.squares), rel=1e-12)
    assert one.blocks == pytest.approx(other.blocks, rel=4e-7)


@pytest.mark.skipif(native.RowTable is None, reason="the C extension is not built")
@pytest.mark.parametrize("kernels", ["baseline", "avx2", "avx512"])
def test_all_instruction_sets_make_the_same_row(kernels: str) -> None:
    from msprobe.capture import _native

    generator = torch.Generator().manual_seed(0)
    tensor = torch.randn(3001, generator=generator)
    found = []
    for name in ("baseline", kernels):
        if not _native.choose_kernels(name):
            pytest.skip(f"this machine has no {name}")
        table = TensorRows()
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
            values = (10 * tensor).to(dtype)
            kind = native.KINDS[str(dtype).removeprefix("torch.")]
            table.add(row_of_memory(values.data_ptr(), values.shape, values.stride(), kind, None))
        found.append(table.take())
    for best in ("avx512", "avx2", "baseline"):
        if _native.choose_kernels(best):
            break
    assert found[0] == found[1]


def test_differences_of_one_part_in_ten_million_are_measured(tmp_path: Path) -> None:
    """The estimate of the distance is unbiased and good to about a quarter, however small the difference."""
    generator = torch.Generator().manual_seed(3)
    one = torch.randn(100_000, generator=generator)
    other = one + 1e-7 * torch.randn(100_000, generator=generator)
    rows = TensorRows()
    for tensor in (one, other):
        rows.add(row_of(pieces_of(tensor.double().numpy(), lambda piece: piece), tensor.numel()))
    _, data = rows.take()
    true = float((one.double() - other.double()).norm())
    assert distance(*read(data, tmp_path)) == pytest.approx(true, rel=0.8)


@pytest.mark.parametrize("form", ["spread", "one column", "one row", "a corner"])
def test_the_estimate_is_unbiased_wherever_the_difference_lies(form: str) -> None:
    """The squares of the sums' differences, on average over many differences, are the squared distance."""
    generator = np.random.default_rng(5)
    signs = row_signs.signs(64 * 128).astype(float)
    ratios = []
    for _ in range(300):
        difference = np.zeros((64, 128))
        place = {
            "spread": np.s_[:],
            "one column": np.s_[:, generator.integers(128)],
            "one row": np.s_[generator.integers(64)],
            "a corner": np.s_[:8, :8],
        }[form]
        difference[place] = generator.standard_normal(difference[place].shape)
        sums = signs @ difference.reshape(-1)
        ratios.append((sums**2).mean() / (difference**2).sum())
    assert np.mean(ratios) == pytest.approx(1, abs=0.2)
    # At most one in thirty is below a third of the true distance.
    assert np.mean(np.array(ratios) < 1 / 9) < 1 / 30


@pytest.mark.parametrize("defer", [False, True], ids=["cpu", "device"])
@pytest.mark.parametrize("lacking", WAYS.values(), ids=WAYS)
def test_the_same_elements_have_one_row(lacking: tuple[str, ...], defer: bool) -> None:
    """Views in the same order share it; another order has its own, and so have elements that were written."""
    with mock.patch.multiple(native, **dict.fromkeys(lacking)) if lacking else nullcontext():
        statistics = TensorStatistics(defer=defer)
        rows = statistics.rows
        assert rows is not None
        tensor = torch.arange(12.0).reshape(3, 4) + 0
        silent = statistics.describe(tensor)
        rows.on = True
        fresh = torch.arange(12.0).reshape(3, 4) + 0
        found = [statistics.describe(view) for view in (fresh, fresh, fresh.view(12), fresh.t(), fresh.reshape(2, 6))]
        fresh.add_(1)
        found.append(statistics.describe(fresh))
        found.append(statistics.describe(torch.empty(0)))
        statistics.flush()
        numbers = [json.loads(info.text).get("row") for info in (silent, *found)]
        assert numbers == [None, 0, 0, 0, 1, 0, 2, None]
        statistics.reset()
        again = statistics.describe(fresh)
        statistics.flush()
        assert json.loads(again.text)["row"] == 0


SPECIAL = {
    "complex": lambda: torch.tensor([[3 + 4j, 0], [1j, 2]]).conj(),
    "negated": lambda: torch.tensor([1 - 2j, 3 + 5j]).conj().imag,
    "quantised": lambda: torch.quantize_per_tensor(torch.tensor([1.0, -2.0, 3.0]), 0.5, 3, torch.qint8),
    "float8": lambda: torch.tensor([1.0, -2.0, 448.0]).to(torch.float8_e4m3fn),
    "a subclass": lambda: torch.nn.Buffer(torch.tensor([1.0, 2.0])),
    "unsigned": lambda: torch.tensor([1, 2, 60000], dtype=torch.int32).to(torch.uint16),
    "inference": lambda: _inferred(torch.tensor([1.0, 2.0])),
}


def _inferred(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return tensor * 2


@pytest.mark.parametrize("lacking", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", SPECIAL)
def test_rare_tensors_have_rows_of_the_numbers_they_stand_for(
    tmp_path: Path, lacking: tuple[str, ...], kind: str
) -> None:
    tensor = SPECIAL[kind]()
    plain = tensor.dequantize() if tensor.is_quantized else tensor.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    right, size = expected(plain if plain.dtype.itemsize > 1 else plain.to(torch.float32))
    with mock.patch.multiple(native, **dict.fromkeys(lacking)) if lacking else nullcontext():
        statistics = TensorStatistics()
        assert statistics.rows is not None
        statistics.rows.on = True
        statistics.describe(tensor)
        _, data = statistics.rows.take()
    assert_is(read(data, tmp_path)[0], right, size, kind)


@for_each(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.empty(3, device="meta"),
        lambda: torch.empty(0, 4),
        lambda: torch.eye(3).to_sparse_csr(),
    ],
)
@for_each("mode", ["statistics", "md5", "xxh3"])
def test_what_has_no_elements_in_order_has_no_row(make: Callable[[], torch.Tensor], mode: Any) -> None:
    statistics = TensorStatistics(mode)
    assert statistics.rows is not None
    statistics.rows.on = True
    assert b'"row"' not in statistics.describe(make()).text
    assert not statistics.rows.pending


@pytest.mark.parametrize("mode", ["xor", "structure"])
def test_modes_without_statistics_have_no_rows(mode: Any) -> None:
    statistics = TensorStatistics(mode)
    assert statistics.rows is None
    assert b'"row"' not in statistics.describe(torch.ones(3)).text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_rows_of_a_device_are_those_of_the_cpu(tmp_path: Path, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    found = []
    for defer in (False, True):
        statistics = TensorStatistics(defer=defer)
        assert statistics.rows is not None
        statistics.rows.on = True
        for shape in ((), (3,), (40, 50), (3000,)):
            tensor = (3 * torch.randn(shape, generator=generator.manual_seed(1))).to(dtype)
            if dtype.is_floating_point and tensor.dim():
                tensor[-1] = float("-inf")
            statistics.describe(tensor.t() if tensor.dim() == 2 else tensor)
        statistics.flush()
        found.append(read(statistics.rows.take()[1], tmp_path))
    for one, other in zip(*found, strict=True):
        size = one.norm + 1
        assert (one.sum, *one.signed) == pytest.approx((other.sum, *other.signed), abs=1e-11 * size * 100)
        assert (one.squares, one.zero, one.left_out) == pytest.approx((other.squares, other.zero, other.left_out))
        assert one.blocks == pytest.approx(other.blocks, rel=1e-6, abs=1e-6 * size)


def test_large_tensors_of_a_device_have_the_rows_of_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one product, by lanes, and segment by segment; of elements in their order, and of others."""
    generator = torch.Generator().manual_seed(2)
    monkeypatch.setattr(device_rows, "SEGMENT", 1 << 18)
    tensors = [
        torch.randn(count, generator=generator).to(dtype)
        for count, dtype in (
            (10_000, torch.float64),
            (131_072, torch.float32),
            (131_073, torch.float32),
            (200_001, torch.bfloat16),
            (3_000_017, torch.float16),
        )
    ]
    tensors += [torch.randn(500, 900, generator=generator).t(), torch.randn(20_000, generator=generator)[::2]]
    tensors[1][7], tensors[2][9], tensors[4][11] = math.inf, math.nan, -math.inf
    tensors[6][12] = -3e38
    found = []
    for defer in (False, True):
        statistics = TensorStatistics(defer=defer)
        assert statistics.rows is not None
        statistics.rows.on = True
        infos = [statistics.describe(tensor) for tensor in tensors]
        statistics.flush()
        texts = [json.loads(info.text) for info in infos]
        found.append((texts, read(statistics.rows.take()[1], tmp_path)))
    (texts, rows), (late_texts, late_rows) = found
    for one, other in zip(rows, late_rows, strict=True):
        size = one.norm * math.sqrt(3e6)
        assert (other.sum, *other.signed) == pytest.approx((one.sum, *one.signed), abs=1e-11 * size)
        assert (one.zero, one.left_out) == (other.zero, other.left_out)
        assert other.squares == pytest.approx(one.squares)
        assert other.blocks == pytest.approx(one.blocks, rel=1e-6)
    # Without the extension what is known now is summed by the framework, in single precision.
    close = 1e-6 if native.numbers is not None else 1e-5
    for text, late in zip(texts, late_texts, strict=True):
        for key, value in text.items():
            wanted = pytest.approx(value, rel=close, nan_ok=True) if isinstance(value, float) else value
            assert late[key] == wanted, key
