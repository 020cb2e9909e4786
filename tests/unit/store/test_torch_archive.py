"""Tensors and messages that are described wrongly: all readers of a format take and refuse the same."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.coded_texts import raising

from msprobe.environment.checkpoint.array_files import read_mindspore
from msprobe.environment.checkpoint.mindspore_ranks import is_mindspore_ranks, read_mindspore_ranks
from msprobe.environment.checkpoint.tensors import CheckpointTensor
from msprobe.environment.checkpoint.torch_files import read_torch
from msprobe.errors import InvalidInputError
from msprobe.foreign.protobuf import WireError, placed_fields
from msprobe.store.kernel_files.acl_dump import read_acl_dump
from msprobe.store.values import read_pt


def _text(letters: str) -> bytes:
    return b"X" + struct.pack("<I", len(letters)) + letters.encode()


def _pickled(
    shape: bytes = b"K\2K\3\x86",
    strides: bytes = b"K\3K\1\x86",
    offset: bytes = b"K\0",
    count: bytes = b"K\6",
    kind: bytes = b"ctorch\nFloatStorage\n",
    behind: bytes = b"",
    key: str = "0",
    call: bytes = b"ctorch._utils\n_rebuild_tensor_v2\n",
    last: bytes = b"",
) -> bytes:
    """The pickle of one tensor. ``behind``: more fields of its storage; ``last``: more arguments."""
    storage = b"(" + _text("storage") + kind + _text(key) + _text("cpu") + count + behind + b"tQ"
    return (
        b"\x80\x02"
        + call
        + b"("
        + storage
        + offset
        + shape
        + strides
        + b"\x89ccollections\nOrderedDict\n)R"
        + last
        + b"tR."
    )


def _archive(path: Path, pickled: bytes, order: bytes | None = b"little", values: bytes = bytes(range(24))) -> Path:
    entries = {"a/data.pkl": pickled, "a/byteorder": order, "a/data/0": values}
    with zipfile.ZipFile(path, "w") as out:
        for name, data in entries.items():
            if data is not None:
                out.writestr(name, data)
    return path


_V3 = b"ctorch._utils\n_rebuild_tensor_v3\n"
_UNTYPED = b"ctorch.storage\nUntypedStorage\n"
TAKEN: dict[str, Callable[[Path], Path]] = {
    "as torch writes it": lambda p: _archive(p, _pickled()),
    "no byte order": lambda p: _archive(p, _pickled(), None),
    "the other byte order": lambda p: _archive(p, _pickled(), b"big"),
    "no element": lambda p: _archive(p, _pickled(b"K\0\x85", b"K\1\x85", count=b"K\0"), values=b""),
    "a number": lambda p: _archive(p, _pickled(b")", b")", b"K\5")),
    "transposed": lambda p: _archive(p, _pickled(b"K\3K\2\x86", b"K\1K\3\x86")),
    "repeated": lambda p: _archive(p, _pickled(b"K\5K\6\x86", b"K\0K\1\x86")),
    "a sixth field that says nothing": lambda p: _archive(p, _pickled(behind=b"N")),
    "by bytes": lambda p: _archive(
        p, _pickled(count=b"K\x18", kind=_UNTYPED, call=_V3, last=b"ctorch\nfloat32\n")
    ),
    "a device's": lambda p: _archive(p, _pickled(call=b"ctorch_npu.utils.storage\n_rebuild_npu_tensor\n")),
}  # fmt: skip
REFUSED: dict[str, Callable[[Path], Path]] = {
    "reaches out": lambda p: _archive(p, _pickled(strides=b"K\4K\1\x86")),
    "begins outside": lambda p: _archive(p, _pickled(offset=b"K\1")),
    "begins before": lambda p: _archive(p, _pickled(offset=b"J\xff\xff\xff\xff")),
    "a stride below zero": lambda p: _archive(p, _pickled(strides=b"J\xff\xff\xff\xffK\1\x86")),
    "a size that is a truth": lambda p: _archive(p, _pickled(b"\x88K\3\x86")),
    "a shape that is a list": lambda p: _archive(p, _pickled(b"](K\2K\3e")),
    "a shape of another length": lambda p: _archive(p, _pickled(b"K\2\x85")),
    "sizes beyond any file": lambda p: _archive(p, _pickled(b"\x8a\7\0\0\0\0\0\0\x10\x85", b"K\0\x85")),
    "more values than there are": lambda p: _archive(p, _pickled(count=b"K\7")),
    "fewer than no values": lambda p: _archive(p, _pickled(count=b"J\xff\xff\xff\xff")),
    "a number that is a text": lambda p: _archive(p, _pickled(count=_text("6"))),
    "values elsewhere": lambda p: _archive(p, _pickled(key="../../a")),
    "a view of another storage": lambda p: _archive(p, _pickled(behind=b"K\1")),
    "a type that nobody knows": lambda p: _archive(p, _pickled(kind=b"cevil\nEvil\n")),
    "bytes of no type": lambda p: _archive(p, _pickled(count=b"K\x18", kind=_UNTYPED)),
    "no type behind bytes": lambda p: _archive(p, _pickled(count=b"K\x18", kind=_UNTYPED, call=_V3, last=_text("f"))),
    "no such byte order": lambda p: _archive(p, _pickled(), b"middle"),
    "a byte order without end": lambda p: _archive(p, _pickled(), b"little" * 100),
    "no pickle": lambda p: _archive(p, b""),
    "an order": lambda p: _archive(p, b"cos\nsystem\n(" + _text(f"touch {p}.evil") + b"tR."),
}  # fmt: skip


@pytest.mark.parametrize("case", [*TAKEN, *REFUSED])
def test_both_readers_of_archives_take_and_refuse_the_same(tmp_path: Path, case: str) -> None:
    path = (TAKEN | REFUSED)[case](tmp_path / "x.pt")
    answers = []
    for read in (lambda: read_pt(path).array, lambda: _tensor(read_torch(str(path)))):
        try:
            answers.append(read())
        except InvalidInputError as problem:
            answers.append(problem)
    if case in TAKEN:
        np.testing.assert_array_equal(*answers, strict=True)
    else:
        assert [type(one) for one in answers] == [InvalidInputError] * 2
    assert list(tmp_path.iterdir()) == [path]


def _tensor(found: object) -> np.ndarray:
    if not isinstance(found, CheckpointTensor):
        raise InvalidInputError("it holds no tensor.")
    return found.read()


_BROKEN = {
    "a number of 65 bits": b"\x08" + b"\xff" * 9 + b"\x02",
    "a number without end": b"\x08" + b"\xff" * 100,
    "the number of no field": b"\x00\x01",
    "a group": b"\x0b\x08\x01\x0c",
    "a text that reaches out": b"\x0a\x7fabc",
    "a length of 2**63": b"\x0a" + b"\x80" * 9 + b"\x01",
    "four bytes of which three are there": b"\x0dabc",
}


@pytest.mark.parametrize("case", _BROKEN)
def test_all_readers_of_messages_refuse_the_same(tmp_path: Path, case: str) -> None:
    data = _BROKEN[case]
    with pytest.raises(WireError):
        list(placed_fields(memoryview(data)))
    (tmp_path / "rank_0").mkdir()
    (tmp_path / "rank_0" / "net-1_1.ckpt").write_bytes(b"\n\x15\n\x01a\x12\x10\x08\x01\x12\x07Float32\x1a\x04abcd")
    names = ["x.ckpt", "strategy_0.ckpt", "kernel.0"]
    (tmp_path / names[0]).write_bytes(data)
    (tmp_path / names[1]).write_bytes(data)
    (tmp_path / names[2]).write_bytes(struct.pack("<Q", len(data)) + data)
    assert is_mindspore_ranks(["rank_0"])
    for read in (
        lambda: read_mindspore(str(tmp_path / names[0])),
        lambda: read_mindspore_ranks(str(tmp_path), lambda name: ("weights", name)),
        lambda: read_acl_dump(tmp_path / names[2]),
    ):
        with pytest.raises(InvalidInputError):
            read()


def test_a_pickle_of_python_is_never_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> object:
            return Path.touch, (tmp_path / "evil",)

    path = _archive(tmp_path / "x.pt", pickle.dumps(Evil()))
    with raising(InvalidInputError, "pt-holds-no-tensor", path=str(path), what="pathlib.Path.touch"):
        read_pt(path)
    with pytest.raises(InvalidInputError):
        _tensor(read_torch(str(path)))
    assert list(tmp_path.iterdir()) == [path]
