"""Zstandard: Python's own from 3.14 on, else the package ``zstandard``, which is an extra.

A stranger's file says nothing of how much it becomes, so it is unpacked piece by piece within a budget, with a window
of at most 128 MiB, and to no more than records can be packed from.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.foreign.budget import Budget, factor
from msprobe.messages import said

#: What packs a dump in a tenth of the time of higher levels, to nearly as little.
_LEVEL = 1
_WINDOW_BITS = 27
# So many bytes may become 128 MiB, before the budget is asked.
_PIECE_BYTES = 1 << 12
# Records that are all alike come to a hundredth; blanks, or a letter that is repeated, to less than a ten-thousandth.
_MOST_RATIO = 1000
_FREE_BYTES = 64 << 20


class MissingPackageError(MsprobeError):
    """Nothing here reads or writes zstandard: install the package."""


def _module() -> tuple[Any, bool]:
    """Who does it, and whether it is Python's own."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return importlib.import_module(name), name != "zstandard"
        except ImportError:
            continue
    raise MissingPackageError("")


def is_available() -> bool:
    """Whether files can be packed and unpacked here."""
    try:
        return bool(_module())
    except MissingPackageError:
        return False


def packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces as one frame of zstandard. Raises MissingPackageError."""
    module, is_own = _module()
    packer = module.ZstdCompressor(level=_LEVEL) if is_own else module.ZstdCompressor(level=_LEVEL).compressobj()
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def unpacked(file: BinaryIO, name: object, budget: Budget | None = None) -> bytes:
    """The content of an open file within a budget; ``name``: what it is called in messages.

    Raises BudgetError, InvalidInputError for what is no such file, is cut off or becomes far larger than packed records
    do, MissingPackageError.
    """
    spent = Budget(name) if budget is None else budget
    try:
        module, is_own = _module()
    except MissingPackageError:
        raise MissingPackageError(said("zstd-package-missing", name)) from None
    if is_own:
        unpacker = module.ZstdDecompressor(options={module.DecompressionParameter.window_log_max: _WINDOW_BITS})
    else:
        unpacker = module.ZstdDecompressor(max_window_size=1 << _WINDOW_BITS).decompressobj()
    pieces: list[bytes] = []
    read = unpacked_bytes = 0
    free = int(_FREE_BYTES * factor())
    try:
        while not unpacker.eof:
            piece = file.read(_PIECE_BYTES)
            if not piece:
                raise InvalidInputError(said("zstd-cut-off", name))
            read += len(piece)
            pieces.append(unpacker.decompress(piece))
            spent.spend_bytes(len(pieces[-1]))
            if (unpacked_bytes := unpacked_bytes + len(pieces[-1])) > max(free, _MOST_RATIO * read):
                raise InvalidInputError(said("zstd-unpacks-too-large", name, read, unpacked_bytes))
            spent.check_time()
    except module.ZstdError as problem:
        raise InvalidInputError(said("zstd-unreadable", name, str(problem)[:200])) from problem
    if unpacker.unused_data or file.read(1):
        raise InvalidInputError(said("zstd-trailing", name))
    return b"".join(pieces)
