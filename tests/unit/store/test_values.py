from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.coded_texts import raising

from msprobe.errors import InvalidInputError, PathError
from msprobe.store import values
from msprobe.store.dtypes import ELEMENT_TYPES
from msprobe.store.values import read_npy, read_pt, read_values

tmp_path_is_fine = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

CALCULABLE = sorted(kind.name for kind in ELEMENT_TYPES.values() if not kind.name.startswith(("bits", "float4")))


def as_numpy(tensor: torch.Tensor) -> Any:
    """The same numbers in a type that numpy has."""
    if tensor.dtype == torch.complex32:
        return tensor.to(torch.complex64).numpy()
    kind = ELEMENT_TYPES[str(tensor.dtype).removeprefix("torch.")]
    return (tensor.float() if kind.stored != kind.meant else tensor).numpy()


@given(
    dtype=st.sampled_from(CALCULABLE),
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    seed=st.integers(0, 100),
    transposed=st.booleans(),
)
@tmp_path_is_fine
def test_a_file_of_torch_gives_the_numbers_that_torch_sees(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], seed: int, transposed: bool
) -> None:
    kind = ELEMENT_TYPES[dtype]
    high = 2 if dtype == "bool" else 256
    raw = np.random.default_rng(seed).integers(0, high, prod(shape) * kind.bytes, np.uint8)
    tensor = (
        torch.from_numpy(raw).view(getattr(torch, dtype)) if len(raw) else torch.empty(0, dtype=getattr(torch, dtype))
    )
    tensor = tensor.reshape(shape)
    if transposed:
        tensor = tensor.permute(tuple(reversed(range(len(shape)))))
    torch.save(tensor, tmp_path / "x.pt")
    found = read_pt(tmp_path / "x.pt")
    assert found.dtype == dtype
    assert found.converted == (kind.stored != kind.meant)
    assert found.array.shape == tuple(tensor.shape)
    assert found.array.dtype == np.dtype(kind.meant)
    np.testing.assert_array_equal(found.array, as_numpy(tensor))


@pytest.mark.parametrize("name", [name for name in CALCULABLE if name.startswith("float8")])
def test_every_code_of_an_8_bit_float_is_read_as_torch_reads_it(tmp_path: Path, name: str) -> None:
    tensor = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    torch.save(tensor, tmp_path / "x.pt")
    np.testing.assert_array_equal(read_pt(tmp_path / "x.pt").array, tensor.float().numpy())


def test_views_parameters_and_expanded_tensors(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    for tensor in (base[1:3, ::2], base.t(), base[0].expand(3, 6), torch.nn.Parameter(base), base[2, 3]):
        torch.save(tensor, tmp_path / "x.pt")
        np.testing.assert_array_equal(read_pt(tmp_path / "x.pt").array, tensor.detach().numpy())


def test_a_large_file_is_mapped_and_not_read(tmp_path: Path) -> None:
    tensor = torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024)
    torch.save(tensor, tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", tensor.numpy())
    for found in (read_values(tmp_path / "x.pt"), read_values(tmp_path / "x.npy")):
        assert not found.array.flags.owndata
        assert not found.array.flags.writeable
        np.testing.assert_array_equal(found.array, tensor.numpy())


def test_bare_bytes_have_neither_type_nor_shape(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(8))
    with pytest.raises(InvalidInputError, match="must be given"):
        read_values(tmp_path / "x.bin")


class Runs:
    """What a stranger would like to happen when his file is opened."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, ("touch executed",)


@pytest.mark.parametrize(
    "content",
    [Runs(), {"a": torch.ones(2)}, [1, 2], torch.nn.Linear(2, 2), "text", np.float64(3)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_plain_tensor_is_refused_and_not_executed(
    tmp_path: Path, content: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(InvalidInputError, match=r"x\.pt"):
        read_pt(tmp_path / "x.pt")
    assert not (tmp_path / "executed").exists()


def archive(path: Path, description: bytes, data: bytes, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", description)
        file.writestr("x/data/0", data)
        for name, content in more.items():
            file.writestr(f"x/{name}", content)
    return path


def description(offset: int, shape: tuple[Any, ...], strides: tuple[Any, ...], count: int) -> bytes:
    """The pickle of a tensor that says of itself what it is told to."""

    class Storage:
        pass

    class Tensor:
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (Storage(), offset, shape, strides, False, {})

    class Pickler(pickle.Pickler):
        def persistent_id(self, found: object) -> object:
            return ("storage", torch.FloatStorage, "0", "cpu", count) if type(found) is Storage else None

    out = io.BytesIO()
    Pickler(out, protocol=2).dump(Tensor())
    return out.getvalue()


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "count", "message"),
    [
        (0, (3,), (1,), 2, "reaches to element 2 of a storage of 2"),
        (1, (2,), (1,), 2, "reaches to element 2"),
        (0, (2,), (5,), 2, "reaches to element 5"),
        (-1, (2,), (1,), 2, "no whole number"),
        (0, (-2,), (1,), 2, "no whole number"),
        (0, (2.0,), (1,), 2, "no whole number"),
        (0, (2,), (-1,), 2, "no whole number"),
        (0, (2,), (1, 1), 2, "2 strides"),
        (0, (1 << 40,), (0,), 2, "repeats its elements too often"),
        (0, (1,) * 65, (1,) * 65, 2, "65 dimensions"),
        (0, (2,), (1,), 1000, "have 8 bytes, the description says 4000"),
    ],
)
def test_a_description_that_reaches_beyond_the_values_is_refused(
    tmp_path: Path, offset: int, shape: tuple[Any, ...], strides: tuple[Any, ...], count: int, message: str
) -> None:
    path = archive(tmp_path / "x.pt", description(offset, shape, strides, count), bytes(8))
    with pytest.raises(InvalidInputError, match=message):
        read_pt(path)


def test_a_big_endian_file_is_turned_round(tmp_path: Path) -> None:
    values_there = np.array([1.5, -2.0], ">f4").tobytes()
    path = archive(tmp_path / "x.pt", description(0, (2,), (1,), 2), values_there, byteorder=b"big")
    assert read_pt(path).array.tolist() == [1.5, -2.0]


@given(data=st.data())
@tmp_path_is_fine
def test_a_broken_file_is_a_clear_error_or_other_numbers_and_nothing_else(tmp_path: Path, data: st.DataObject) -> None:
    torch.save(torch.arange(6.0).reshape(2, 3), tmp_path / "whole.pt")
    content = bytearray((tmp_path / "whole.pt").read_bytes())
    if data.draw(st.booleans(), "cut"):
        del content[data.draw(st.integers(0, len(content) - 1), "at") :]
    else:
        for _ in range(data.draw(st.integers(1, 4), "flips")):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (tmp_path / "x.pt").write_bytes(content)
    with contextlib.suppress(InvalidInputError):
        values.read_pt(tmp_path / "x.pt")


def test_other_files_are_reported_by_what_they_are(tmp_path: Path) -> None:
    torch.save(torch.ones(2), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with raising(InvalidInputError, "pt-of-old-torch"):
        read_pt(tmp_path / "old.pt")
    np.save(tmp_path / "objects.npy", np.array([Runs()], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidInputError, match=r"objects\.npy"):
        read_npy(tmp_path / "objects.npy")
    np.savez(tmp_path / "several.npz", a=np.ones(2))
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    with pytest.raises(InvalidInputError, match="archive of arrays"):
        read_npy(tmp_path / "several.npy")
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InvalidInputError, match=r"short\.npy"):
        read_npy(tmp_path / "short.npy")
    with pytest.raises(PathError, match="does not exist"):
        read_values(tmp_path / "nothing.pt")
    with raising(PathError, "special-file"):
        read_pt(tmp_path)
    with pytest.raises(InvalidInputError, match=r"must be \.pt, \.npy or \.bin"):
        read_values(tmp_path / "x.txt")
