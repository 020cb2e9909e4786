"""Every decompression is bounded by what is needed of it, and every tensor by what its file holds."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hostile.limits import Called
from hostile.made import pt, tensor_pickle, two_dumps

LARGE = 3 << 29
MANY = b"(J\x00\x00\x00\x10t"  # a shape of 2**28


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .pt file whose values unpack to one and a half gibibytes."""
    return pt(tmp_path_factory.mktemp("packed") / "packed.pt", packed="a/data/0")


def dumps_with(folder: Path, data: bytes) -> tuple[object, ...]:
    """The words of a comparison of two dumps; the file of values of the second is this."""
    words = two_dumps(folder)
    (folder / "B" / "step0" / "rank" / "dump_tensor_data" / "relu.pt").write_bytes(data)
    return words


def checkpoints(folder: Path, name: str, data: bytes) -> tuple[object, ...]:
    """The words of a comparison of two checkpoints that are this file."""
    for side in ("one", "two"):
        (folder / f"{side}.{name}").write_bytes(data)
    return "config_check", "-c", folder / f"one.{name}", folder / f"two.{name}", "-o", folder / "out.json"


def archive(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as out:
        for name, data in entries.items():
            out.writestr(name, data)
    return file.getvalue()


def of_torch(pickled: bytes = b"", values: bytes = bytes(16), method: int = zipfile.ZIP_STORED) -> bytes:
    entries = {"a/data.pkl": pickled or tensor_pickle(), "a/byteorder": b"little", "a/data/0": values}
    return archive(entries, method)


def test_plain_values_are_read(tmp_path: Path) -> None:
    answer = Called(*two_dumps(tmp_path), cwd=tmp_path)
    answer.demand_quick()
    assert answer.status in (0, 1), answer.text


def test_values_that_are_deflated_are_read(tmp_path: Path) -> None:
    answer = Called(*dumps_with(tmp_path, of_torch(method=zipfile.ZIP_DEFLATED)), cwd=tmp_path)
    answer.demand_quick()
    assert answer.status in (0, 1), answer.text


def test_values_that_unpack_to_more_than_they_are_described_with(tmp_path: Path, packed: Path) -> None:
    Called(*dumps_with(tmp_path, packed.read_bytes()), cwd=tmp_path).demand_quick(mebibytes=512)


def test_weights_that_are_packed(tmp_path: Path, packed: Path) -> None:
    Called(*checkpoints(tmp_path, "pt", packed.read_bytes()), cwd=tmp_path).demand_refused()


def test_a_description_or_an_order_of_bytes_that_is_packed(tmp_path: Path) -> None:
    for number, name in enumerate(("a/data.pkl", "a/byteorder")):
        entries = {"a/data.pkl": tensor_pickle(), "a/byteorder": b"little", "a/data/0": bytes(16), name: bytes(1 << 28)}
        folder = tmp_path / str(number)
        folder.mkdir()
        words = dumps_with(folder, archive(entries, zipfile.ZIP_DEFLATED))
        Called(*words, cwd=folder).demand_quick(mebibytes=512)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packings_that_give_much_at_a_time(tmp_path: Path, method: int) -> None:
    described = tensor_pickle(count=1 << 26, shape=b"(J\x00\x00\x00\x04t")
    words = dumps_with(tmp_path, of_torch(described, bytes(1 << 28), method))
    Called(*words, cwd=tmp_path).demand_quick(mebibytes=512)


def _directory(data: bytes, change: Callable[[bytearray, int], None]) -> bytes:
    """The archive with changes where entries of its directory begin."""
    changed = bytearray(data)
    at = changed.find(b"PK\1\2")
    while at >= 0:
        change(changed, at)
        at = changed.find(b"PK\1\2", at + 4)
    return bytes(changed)


def _same_place(data: bytearray, at: int) -> None:
    data[at + 42 : at + 46] = struct.pack("<I", 0)


def _small_size(data: bytearray, at: int) -> None:
    data[at + 24 : at + 28] = struct.pack("<I", 16)


def _large_size(data: bytearray, at: int) -> None:
    data[at + 24 : at + 28] = struct.pack("<I", LARGE)


@pytest.mark.parametrize("change", [_same_place, _small_size, _large_size])
def test_directories_that_lie(tmp_path: Path, change: Callable[[bytearray, int], None]) -> None:
    data = _directory(of_torch(values=bytes(1 << 20), method=zipfile.ZIP_DEFLATED), change)
    Called(*dumps_with(tmp_path, data), cwd=tmp_path).demand_quick(mebibytes=512)
    (tmp_path / "c").mkdir()
    Called(*checkpoints(tmp_path / "c", "pt", data), cwd=tmp_path).demand_refused()


def test_arrays_of_zeros_that_are_packed(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros(1 << 27, np.uint8), b=np.zeros(1 << 27, np.uint8))
    answer = Called(*checkpoints(tmp_path, "npz", file.getvalue()), cwd=tmp_path)
    answer.demand_refused()
    assert "--limit" in answer.text
    (tmp_path / "d").mkdir()
    words = checkpoints(tmp_path / "d", "npz", file.getvalue())
    allowed = Called(*words, "--limit", 10, cwd=tmp_path)
    assert allowed.status == 0, allowed.text


def test_packed_arrays_of_a_training_are_read(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, w=np.arange(100_000, dtype=np.float32), zero=np.zeros(1 << 20, np.float32))
    assert Called(*checkpoints(tmp_path, "npz", file.getvalue()), cwd=tmp_path).status == 0


def test_packs_of_a_configuration_check(tmp_path: Path) -> None:
    for side in ("one", "two"):
        entries = {"env": b'{"a":"' + bytes([65]) * (60 << 20) + b'"}', "pip": b"x=1"}
        (tmp_path / f"{side}.zip").write_bytes(archive(entries, zipfile.ZIP_DEFLATED))
    words = "config_check", "-c", tmp_path / "one.zip", tmp_path / "two.zip", "-o", tmp_path / "out"
    Called(*words, cwd=tmp_path).demand_refused()


def test_an_archive_within_an_archive(tmp_path: Path) -> None:
    inner = of_torch(values=bytes(1 << 20), method=zipfile.ZIP_DEFLATED)
    Called(*dumps_with(tmp_path, of_torch(inner)), cwd=tmp_path).demand_quick()
    (tmp_path / "c").mkdir()
    Called(*checkpoints(tmp_path / "c", "pt", of_torch(inner)), cwd=tmp_path).demand_refused()


REPEATED = {
    "stride of zero": tensor_pickle(shape=MANY, strides=b"(K\x00t"),
    "stride of zero, bfloat16": tensor_pickle(shape=MANY, strides=b"(K\x00t", kind="BFloat16Storage"),
    "two axes": tensor_pickle(shape=b"(J\x00\x40\x00\x00J\x00\x40\x00\x00t", strides=b"(K\x00K\x00t"),
    "beside one that is none": tensor_pickle(shape=b"(K\x04J\x00\x00\x00\x04t", strides=b"(K\x01K\x00t"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_few_elements_that_stand_for_many(tmp_path: Path, name: str) -> None:
    Called(*dumps_with(tmp_path, of_torch(REPEATED[name])), cwd=tmp_path).demand_quick(mebibytes=512)
    (tmp_path / "c").mkdir()
    Called(*checkpoints(tmp_path / "c", "pt", of_torch(REPEATED[name])), cwd=tmp_path).demand_refused()


def test_windows_that_overlap(tmp_path: Path) -> None:
    """Strides of one on both axes: 32 KB are said to be a matrix of 2**26 elements."""
    described = tensor_pickle(
        count=1 << 14, shape=b"(J\x00\x20\x00\x00J\x00\x20\x00\x00t", strides=b"(K\x01K\x01t", kind="HalfStorage"
    )
    words = dumps_with(tmp_path, of_torch(described, bytes(1 << 15)))
    Called(*words, cwd=tmp_path).demand_quick(mebibytes=512)


def _number(value: int) -> bytes:
    data = value.to_bytes(9, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


ODD = {
    "no element of a large shape": tensor_pickle(shape=b"(K\x00" + _number(1 << 62) + b"t", strides=b"(K\x01K\x01t"),
    "beyond 64 bits": tensor_pickle(shape=b"(" + _number(1 << 40) * 2 + b"t", strides=b"(K\x01K\x01t"),
    "below zero": tensor_pickle(strides=b"(J\xff\xff\xff\xfft"),
    "unknown type": tensor_pickle(kind="ComplexQuarterStorage"),
    "a storage of 2**60": tensor_pickle().replace(b"J\x04\x00\x00\x00tQ", _number(1 << 60) + b"tQ"),
    "an offset outside": tensor_pickle().replace(b"QK\x00", b"Q" + _number(1 << 60)),
    "shape of truths": tensor_pickle(shape=b"(\x88t"),
    "shape of texts": tensor_pickle(shape=b"(X\x01\x00\x00\x00at"),
}


@pytest.mark.parametrize("name", ODD)
def test_shapes_that_no_tensor_has(tmp_path: Path, name: str) -> None:
    Called(*dumps_with(tmp_path, of_torch(ODD[name])), cwd=tmp_path).demand_quick(mebibytes=512)
    (tmp_path / "c").mkdir()
    Called(*checkpoints(tmp_path / "c", "pt", of_torch(ODD[name])), cwd=tmp_path).demand_quick(mebibytes=512)


def _npy(shape: str, descr: str = "<f4") -> bytes:
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(64)


@pytest.mark.parametrize(
    "data",
    [
        _npy("(1073741824,)"),
        _npy("(1073741824, 1073741824, 1073741824)"),
        _npy("(1099511627776,)", "|V0"),
        _npy("(-1,)"),
        _npy("(0, 9223372036854775807, 9223372036854775807)"),
        _npy("(" * 1000),
        _npy("(4,)", "|O"),
        b"\x93NUMPY\x02\x00" + struct.pack("<I", (1 << 32) - 1),
    ],
    ids=["4 GiB", "beyond 64 bits", "no bytes", "below zero", "no element", "brackets", "objects", "long header"],
)
def test_arrays_whose_header_lies(tmp_path: Path, data: bytes) -> None:
    Called(*checkpoints(tmp_path, "npy", data), cwd=tmp_path).demand_quick(mebibytes=512)
    (tmp_path / "z").mkdir()
    words = checkpoints(tmp_path / "z", "npz", archive({"a.npy": data}, zipfile.ZIP_DEFLATED))
    Called(*words, cwd=tmp_path).demand_quick(mebibytes=512)


def _safetensors(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + bytes(16)


@pytest.mark.parametrize(
    "data",
    [
        _safetensors(b"{}", (1 << 63) + 5),
        _safetensors(json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 16]}}).encode()),
        _safetensors(json.dumps({"w": {"dtype": "F32", "shape": [1 << 80, 0], "data_offsets": [0, 0]}}).encode()),
        _safetensors(b'{"w":' * 100_000),
        _safetensors(b'{"w":' + b"9" * 5000 + b"}"),
        _safetensors(b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b',"99999":2}'),
    ],
    ids=["length", "shape", "large shape", "deep", "digits", "one name twice"],
)
def test_headers_of_safetensors(tmp_path: Path, data: bytes) -> None:
    Called(*checkpoints(tmp_path, "safetensors", data), cwd=tmp_path).demand_refused()


def test_a_folder_of_zarr_with_few_files_for_many_chunks(tmp_path: Path) -> None:
    for side in ("one", "two"):
        place = tmp_path / side / "model.weight"
        place.mkdir(parents=True)
        about = {"zarr_format": 2, "shape": [1 << 20], "chunks": [1], "dtype": "<f4", "order": "C", "fill_value": 0.0}
        (place / ".zarray").write_text(json.dumps({**about, "compressor": None, "filters": None}))
        (place / "0").write_bytes(bytes(4))
        (tmp_path / side / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    words = "config_check", "-c", tmp_path / "one", tmp_path / "two", "-o", tmp_path / "out.json"
    Called(*words, cwd=tmp_path).demand_refused()
