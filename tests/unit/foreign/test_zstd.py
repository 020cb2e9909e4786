"""Files of zstandard, which a stranger may have made."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.errors import InvalidInputError
from msprobe.foreign import zstd
from msprobe.foreign.budget import Budget, BudgetError, Limits


def packed(*pieces: bytes) -> bytes:
    return b"".join(zstd.packed(pieces))


def test_what_was_packed_in_pieces_is_unpacked() -> None:
    pieces = [b"one ", b"", b"two " * 100_000, bytes(range(256)) * 99]
    assert zstd.unpacked(io.BytesIO(packed(*pieces)), "a") == b"".join(pieces)
    assert zstd.unpacked(io.BytesIO(packed()), "a") == b""


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-5],
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: b"{}" + data,
        lambda data: data * 2,
    ],
)
def test_what_is_no_whole_frame_ends_in_a_sentence(change: Any) -> None:
    with pytest.raises(InvalidInputError, match="dump"):
        zstd.unpacked(io.BytesIO(change(packed(bytes(range(256)) * 1000))), "dump")


def test_a_small_file_that_becomes_endless_stops_at_the_budget() -> None:
    bomb = packed(*[bytes(1 << 20)] * 64)
    assert len(bomb) < 1 << 16
    with pytest.raises(BudgetError):
        zstd.unpacked(io.BytesIO(bomb), "dump", Budget("dump", Limits(bytes=1 << 24)))


def test_a_small_file_of_blanks_is_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed(*[b" " * (1 << 20)] * 160)
    assert len(bomb) < 1 << 16
    with raising(InvalidInputError, "zstd-unpacks-too-large", name="dump"):
        zstd.unpacked(io.BytesIO(bomb), "dump")
    monkeypatch.setenv("MSPROBE_LIMIT", "10")
    assert len(zstd.unpacked(io.BytesIO(bomb), "dump")) == 160 << 20


def test_records_that_are_all_alike_are_unpacked() -> None:
    record = b'"Functional.relu.%d.forward": {"input_args": [{"type": "torch.Tensor", "shape": [2, 3], "Max": 1.0}]},\n'
    data = b"".join(record % number for number in range(1_000_000))
    assert len(data) > 96 << 20
    assert zstd.unpacked(io.BytesIO(packed(data)), "dump") == data


def test_without_the_package_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def nowhere(name: str, package: str | None = None) -> Any:
        if name.endswith(("zstd", "zstandard")) and not name.startswith("msprobe"):
            raise ImportError(name)
        return real(name, package)

    data = packed(b"x")
    assert zstd.is_available()
    monkeypatch.setattr(importlib, "import_module", nowhere)
    assert not zstd.is_available()
    with pytest.raises(zstd.MissingPackageError, match="pip install zstandard"):
        zstd.unpacked(io.BytesIO(data), "dump.json.zst")
