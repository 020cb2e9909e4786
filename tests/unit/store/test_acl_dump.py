"""Dump files of kernels: what they hold is read exactly, and what is broken told in one sentence, in bounded memory."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from support.acl_files import EXAMPLE, NAME, Tensor, block, number, of, shape, varint, write
from support.coded_texts import mentions
from support.row_by_row import for_each

from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import said
from msprobe.store.kernel_files.acl_dump import read_acl_dump
from msprobe.store.kernel_files.convert import convert_file, values_of
from msprobe.store.kernel_files.device_formats import converted
from msprobe.store.values import read_values


def one(path: Path, tensor: Tensor, **more: bool) -> np.ndarray:
    (found,) = read_acl_dump(write(path / NAME, tensor, **more)).tensors
    return values_of(found, "raw")


def test_the_example_of_the_specification(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(EXAMPLE)
    files, remarks = convert_file(tmp_path / NAME, tmp_path / "out")
    assert [file.name for file in files] == [f"{NAME}.input.0.npy", f"{NAME}.input.1.npy", f"{NAME}.output.0.npy"]
    assert remarks == []
    first, second, third = (np.load(file) for file in files)
    assert (first.dtype, first.tolist()) == (np.float32, [[0, 1, 2], [3, 4, 5]])
    assert (second.dtype, second.tolist()) == (np.float16, [0, 1, 2, 3])
    assert (third.dtype, third.tolist()) == (np.float32, [0, 1, 2, 3])
    assert all(file.stat().st_mode & 0o777 == 0o640 for file in files)


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        *((1, "f4"), (2, "f2"), (3, "i1"), (4, "u1"), (5, "i2"), (6, "u2"), (7, "i4"), (8, "i8"), (9, "u4")),
        *((10, "u8"), (11, "?"), (12, "f8"), (16, "c8"), (17, "c16"), (18, "i1"), (20, "i4"), (22, "u2"), (23, "i8")),
    ],
)
def test_types_that_numpy_has_come_back_bit_for_bit(tmp_path: Path, code: int, dtype: str) -> None:
    values = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    found = one(tmp_path, of(values, code))
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("code", "data", "dims", "expected"),
    [
        (27, struct.pack("<2H", 0x3F80, 0xC040), (2,), [1.0, -3.0]),
        (28, bytes([0x21, 0xF8]), (4,), [1, 2, -8, -1]),
        (29, bytes([0b101]), (3,), [1, 0, 1]),
        (30, bytes([0b11_10_01_00]), (4,), [0, 1, -2, -1]),
        (31, bytes([0b11_10_01_00]), (4,), [0, 1, 2, 3]),
        (32, np.array([1, 2], np.float16).tobytes(), (1,), [1 + 2j]),
        (34, bytes([0x3C, 0xBC]), (2,), [1.0, -1.0]),
        (35, bytes([0x38, 0x7E]), (2,), [1.0, 448.0]),
        (33, bytes([0x08, 0x00, 0x01, 0x6E, 0x6F, 0xEF]), (6,), [1.0, 0.0, 2.0**-22, 2.0**15, np.inf, -np.inf]),
        (36, bytes([1, 2, 3]), (3,), [1, 2, 3]),
        (13, b"abc", (1,), list(b"abc")),
        (0, bytes([1, 255]), (), [1, -1]),
        (999, bytes([7, 8]), (2,), [7, 8]),
    ],
)
def test_types_that_numpy_has_not_are_decoded(
    tmp_path: Path, code: int, data: bytes, dims: tuple[int, ...], expected: list[object]
) -> None:
    assert one(tmp_path, Tensor(data, code, dims)).tolist() == expected


def test_scalars_empty_tensors_and_padding(tmp_path: Path) -> None:
    assert one(tmp_path, Tensor(struct.pack("<f", 2.5))).shape == ()
    assert one(tmp_path, Tensor(struct.pack("<2f", 1, 2))).tolist() == [1, 2]
    assert one(tmp_path, Tensor(b"", dims=(0, 4))).shape == (0, 4)
    assert one(tmp_path, Tensor(struct.pack("<4f", 1, 2, 0, 0), dims=(2,))).tolist() == [1, 2]
    assert one(tmp_path, Tensor(struct.pack("<4f", 1, 2, 3, 4), dims=(2, 2), is_packed=False)).shape == (2, 2)


def test_the_older_form_has_its_data_in_the_message(tmp_path: Path) -> None:
    found = one(tmp_path, Tensor(struct.pack("<2f", 1, 2), dims=(2,), output=True), whole=True)
    assert found.tolist() == [1, 2]


def test_bytes_behind_the_tensors_are_reported_and_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / NAME, Tensor(struct.pack("<f", 1), dims=(1,)), behind=b"12345")
    assert read_acl_dump(file).notes == (said("acl-bytes-left", 5),)


def test_an_input_without_data_is_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / NAME, Tensor(b"", dims=(3,), size=0), Tensor(struct.pack("<f", 1), dims=(1,), output=True))
    files, remarks = convert_file(file, tmp_path / "out")
    assert [one.name for one in files] == [f"{NAME}.output.0.npy"]
    assert "input.0 has no data" in remarks[0]


@pytest.mark.parametrize("code", [1, 27, 35, 28])
def test_pt_files_keep_the_type_where_torch_has_it(tmp_path: Path, code: int) -> None:
    file = write(tmp_path / NAME, Tensor(bytes(range(8)), code, (2,)))
    (found,), _ = convert_file(file, tmp_path / "out", file_type="pt")
    expected = {1: "float32", 27: "bfloat16", 35: "float8_e4m3fn", 28: "int8"}[code]
    assert read_values(found).dtype == expected
    assert read_values(found).array.shape == (2,)


def _malformed() -> dict[str, bytes]:
    tensor = Tensor(struct.pack("<6f", *range(6)), dims=(2, 3)).message()

    def framed(message: bytes, data: bytes = b"\0" * 24) -> bytes:
        return struct.pack("<Q", len(message)) + message + data

    def sized(size: int) -> bytes:
        return framed(Tensor(b"", dims=(2, 3), size=size).message())

    return {
        "empty": b"",
        "seven bytes": b"\1\0\0\0\0\0\0",
        "length alone": struct.pack("<Q", 4),
        "length zero": struct.pack("<Q", 0) + tensor,
        "length beyond the file": struct.pack("<Q", 1 << 20) + tensor,
        "length of 64 bits": b"\xff" * 8 + tensor,
        "text": b"Op Type,Op Name,Max Value\nAdd,trans,1.0\n",
        "small device": b"\x5a" * 4 + b"\0" * 40,
        "random": random.Random(0).randbytes(4000),
        "zeros": b"\0" * 1000,
        "ones": b"\xff" * 1000,
        "cut off in the data": framed(tensor, b"\0" * 23),
        "cut off in the header": framed(tensor)[:20],
        "field beyond the end": framed(b"\x22\xff\x01\x08"),
        "number without end": framed(b"\x10" + b"\x80" * 9),
        "number of 70 bits": framed(b"\x10" + b"\xff" * 10 + b"\x01"),
        "unknown wire type": framed(b"\x0f\x01"),
        "group": framed(b"\x0b\x0c"),
        "field zero": framed(b"\x02\x01a"),
        "size of 2**63": sized(1 << 63),
        "size of a terabyte": sized(1 << 40),
        "shape of more than any file": framed(block(4, number(1, 1) + shape(3, [1 << 40, 1 << 40]) + number(5, 24))),
        "a hundred dimensions": framed(block(4, number(1, 1) + shape(3, [1] * 100) + number(5, 24))),
        "shape that is cut off": framed(block(4, block(3, b"\x0a\x05\x01"))),
        "twenty thousand tensors": framed(block(4, b"") * 20_000),
        "packed list of half a number": framed(block(4, block(3, block(1, b"\x80")))),
        "nested in itself": framed(block(4, block(4, block(4, varint(1 << 60))))[:-1]),
    }


@pytest.mark.parametrize("case", _malformed())
def test_a_broken_file_is_reported_in_one_sentence_and_costs_no_memory(tmp_path: Path, case: str) -> None:
    file = tmp_path / NAME
    file.write_bytes(_malformed()[case])
    tracemalloc.start()
    try:
        with pytest.raises(MsprobeError) as error:
            convert_file(file, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in error.value.message
    assert NAME in error.value.message
    assert not (tmp_path / "out").exists()


def test_less_data_than_the_shape_says_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path / NAME, Tensor(b"\0" * 8, dims=(1 << 20, 1 << 20)))
    with pytest.raises(InvalidInputError, match=r"input 0 has 8 bytes; float32 .* needs 4398046511104"):
        convert_file(file, tmp_path / "out")


def test_any_byte_changed_is_read_or_refused_but_never_raises_otherwise(tmp_path: Path) -> None:
    file = tmp_path / NAME
    chance = random.Random(1)
    for _ in range(400):
        data = bytearray(EXAMPLE)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(91)] = chance.randrange(256)
        file.write_bytes(data)
        with contextlib.suppress(MsprobeError):
            convert_file(file, tmp_path / "out")


# ---------------------------------------------------------------- formats


def fractal_z(array: np.ndarray) -> np.ndarray:
    n, c, h, w = array.shape
    padded = np.zeros((-(-n // 16) * 16, -(-c // 16) * 16, h, w), array.dtype)
    padded[:n, :c] = array
    split = padded.reshape(padded.shape[0] // 16, 16, padded.shape[1] // 16, 16, h, w)
    return split.transpose(2, 4, 5, 0, 1, 3).reshape(-1, padded.shape[0] // 16, 16, 16)


def test_nc1hwc0_is_cut_to_its_channels(tmp_path: Path) -> None:
    logical = np.arange(320, dtype=np.float32).reshape(1, 20, 4, 4)
    padded = np.zeros((1, 32, 4, 4), np.float32)
    padded[:, :20] = logical
    device = padded.reshape(1, 2, 16, 4, 4).transpose(0, 1, 3, 4, 2)
    file = write(tmp_path / NAME, of(np.ascontiguousarray(device), 1, form=3, original=(1, 20, 4, 4)))
    (found,), _ = convert_file(file, tmp_path / "auto")
    assert np.array_equal(np.load(found), logical)
    (found,), _ = convert_file(file, tmp_path / "raw", "raw")
    assert np.array_equal(np.load(found), device)
    (found,), _ = convert_file(file, tmp_path / "nhwc", "NHWC")
    assert np.array_equal(np.load(found), logical.transpose(0, 2, 3, 1))
    (found,), remarks = convert_file(file, tmp_path / "odd", "NCDHW")
    assert mentions(remarks[0], "format-not-convertible", source="NC1HWC0", wanted="NCDHW")
    file = write(tmp_path / NAME, of(np.ascontiguousarray(device), 1, form=3, original=(1, 4, 4, 20)))
    (found,), _ = convert_file(file, tmp_path / "last")
    assert np.array_equal(np.load(found), logical.transpose(0, 2, 3, 1))


def test_fractal_nz_is_cut_to_rows_and_columns(tmp_path: Path) -> None:
    logical = np.arange(300, dtype=np.float16).reshape(3, 5, 20)
    padded = np.zeros((3, 16, 32), np.float16)
    padded[:, :5, :20] = logical
    device = np.ascontiguousarray(padded.reshape(3, 1, 16, 2, 16).transpose(0, 3, 1, 2, 4))
    file = write(tmp_path / NAME, of(device, 2, form=29, original=(3, 5, 20)))
    (found,), _ = convert_file(file, tmp_path / "out")
    assert np.array_equal(np.load(found), logical)


def test_fractal_z_goes_there_and_back(tmp_path: Path) -> None:
    logical = np.arange(20 * 20 * 9, dtype=np.float32).reshape(20, 20, 3, 3)
    device = fractal_z(logical)
    file = write(tmp_path / NAME, of(device, 1, form=4, original=logical.shape))
    (found,), _ = convert_file(file, tmp_path / "out")
    assert np.array_equal(np.load(found), logical)
    for source, axes in (("NCHW", (0, 1, 2, 3)), ("NHWC", (0, 2, 3, 1)), ("HWCN", (2, 3, 1, 0))):
        made, remark = converted(logical.transpose(axes), source, "FRACTAL_Z")
        assert remark == ""
        assert np.array_equal(made, device)


def test_three_dimensional_blocks(tmp_path: Path) -> None:
    logical = np.arange(2 * 5 * 3 * 2 * 2, dtype=np.int32).reshape(2, 5, 3, 2, 2)
    padded = np.zeros((2, 16, 3, 2, 2), np.int32)
    padded[:, :5] = logical
    device = np.ascontiguousarray(padded.reshape(2, 1, 16, 3, 2, 2).transpose(0, 3, 1, 4, 5, 2))
    file = write(tmp_path / NAME, of(device, 7, form=32, original=logical.shape))
    (found,), _ = convert_file(file, tmp_path / "out")
    assert np.array_equal(np.load(found), logical)


@for_each("source", ["NC1HWC0", "FRACTAL_NZ", "FRACTAL_Z", "NDC1HWC0"])
@for_each("dims", [(), (4,), (2, 3), (1, 2, 3, 4, 5), (0, 1, 2, 3)])
def test_a_shape_that_does_not_fit_its_format_is_left_as_it_is(source: str, dims: tuple[int, ...]) -> None:
    array = np.zeros(dims, np.float32)
    found, remark = converted(array, source, "auto", (7, 7, 7, 7))
    assert remark == "" or found is array


def test_a_large_file_is_converted_piece_by_piece(tmp_path: Path) -> None:
    values = np.zeros(16 << 20, np.uint16)
    file = write(tmp_path / NAME, of(values, 27))
    tracemalloc.start()
    try:
        convert_file(file, tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < values.nbytes
