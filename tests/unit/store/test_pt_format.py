from __future__ import annotations

import io
import time
import zipfile
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.store import pt_format, values
from msprobe.store.dtypes import ELEMENT_TYPES, ElementType

shapes = (
    st.lists(st.integers(0, 5) | st.sampled_from([1, 130, 300]), max_size=4)
    .filter(lambda lengths: prod(lengths) < 100_000)
    .map(tuple)
)
dtypes = st.sampled_from(sorted(ELEMENT_TYPES))
tmp_path_is_fine = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

# Loading complex32 and some others, torch says that it does so experimentally.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def random_bytes(kind: ElementType, shape: tuple[int, ...], seed: int) -> bytes:
    high = 2 if kind.name == "bool" else 256
    return np.random.default_rng(seed).integers(0, high, prod(shape) * kind.bytes, np.uint8).tobytes()


def write(path: Path, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
    path.write_bytes(b"".join(pt_format.pieces(dtype, shape, memoryview(data))))


@given(dtype=dtypes, shape=shapes, seed=st.integers(0, 1000))
@tmp_path_is_fine
def test_torch_loads_exactly_these_bytes(tmp_path: Path, dtype: str, shape: tuple[int, ...], seed: int) -> None:
    data = random_bytes(ELEMENT_TYPES[dtype], shape, seed)
    write(tmp_path / "x.pt", dtype, shape, data)
    for mapped in (False, True):
        found = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mapped)
        assert type(found) is torch.Tensor
        assert found.dtype == getattr(torch, dtype)
        assert tuple(found.shape) == shape
        assert found.stride() == torch.empty(shape, dtype=torch.uint8).stride()
        assert found.device.type == "cpu"
        assert not found.requires_grad
        assert found.reshape(-1).view(torch.uint8).numpy().tobytes() == data if data else found.numel() == 0


@given(dtype=dtypes, shape=shapes, seed=st.integers(0, 1000))
@tmp_path_is_fine
def test_the_archive_is_sound_and_its_values_aligned(dtype: str, shape: tuple[int, ...], seed: int) -> None:
    data = random_bytes(ELEMENT_TYPES[dtype], shape, seed)
    archive = zipfile.ZipFile(io.BytesIO(b"".join(pt_format.pieces(dtype, shape, memoryview(data)))))
    assert archive.testzip() is None
    assert archive.read("archive/data/0") == data
    assert archive.read("archive/byteorder") == b"little"
    assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    entry = archive.getinfo("archive/data/0")
    with archive.open(entry):
        name_and_extra = len(entry.filename) + (-(entry.header_offset + 30 + len(entry.filename)) % 64)
        assert (entry.header_offset + 30 + name_and_extra) % 64 == 0


def test_the_same_tensor_gives_the_same_file() -> None:
    data = memoryview(np.arange(6, dtype=np.float32))
    assert pt_format.pieces("float32", (2, 3), data) == pt_format.pieces("float32", (2, 3), data)


def test_every_type_that_torch_can_save_can_be_written() -> None:
    """A new type of a new torch shows here."""
    missing = []
    for name in sorted(name for name, value in vars(torch).items() if isinstance(value, torch.dtype)):
        kind = getattr(torch, name)
        tensor = torch.zeros(16, dtype=torch.uint8)
        try:
            torch.save(tensor.view(kind), io.BytesIO())
        except (RuntimeError, KeyError, ValueError):
            continue
        if not pt_format.can_hold(str(kind).removeprefix("torch.")):
            missing.append(name)
    # Quantised tensors are more than their bytes: they are written dequantised.
    assert [name for name in missing if not name.startswith(("qint", "quint"))] == []


def test_sizes_beyond_32_bits_have_their_fields(tmp_path: Path) -> None:
    """5 GiB of zeros, of which the disk holds only the ends."""
    count = 5 * (1 << 30) // 4
    template = pt_format._build("float32", (count,))
    head = template.head_before + bytes(4) + template.head_after
    tail = template.tail_before + bytes(4) + template.tail_after
    with open(tmp_path / "x.pt", "wb") as file:
        file.write(head)
        file.seek(len(head) + count * 4)
        file.write(tail)
    entry = zipfile.ZipFile(tmp_path / "x.pt").getinfo("archive/data/0")
    assert entry.file_size == count * 4
    found = torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)
    assert found.shape == (count,)
    assert found[-1] == 0
    assert values.read_pt(tmp_path / "x.pt").array.shape == (count,)


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "message"),
    [
        ("float32", (2, 3), 23, "float32 tensor of shape \\[2, 3\\] has 24 bytes, found 23"),
        ("quint8", (2,), 2, "cannot hold elements of type quint8"),
    ],
)
def test_what_cannot_be_written_is_an_error(dtype: str, shape: tuple[int, ...], size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pt_format.pieces(dtype, shape, memoryview(bytes(size)))


def test_a_small_tensor_costs_a_fraction_of_what_torch_takes() -> None:
    data = memoryview(np.zeros(64, np.float32))
    tensor = torch.zeros(64)

    def cost(work: object, count: int) -> float:
        start = time.process_time()
        for _ in range(count):
            work()  # type: ignore[operator]
        return (time.process_time() - start) / count

    ours = min(cost(lambda: pt_format.pieces("float32", (8, 8), data), 2000) for _ in range(3))
    theirs = min(cost(lambda: torch.save(tensor, io.BytesIO()), 200) for _ in range(3))
    assert ours < theirs / 5, f"{ours * 1e6:.1f} µs, torch {theirs * 1e6:.1f} µs"
