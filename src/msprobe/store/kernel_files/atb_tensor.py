"""Tensor files of the ATB acceleration library: a few lines of text (``dtype=``, ``dims=``), ``$End=1``, the bytes."""

from __future__ import annotations

from pathlib import Path

from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.opening import open_regular
from msprobe.messages import said
from msprobe.store.kernel_files.acl_dump import KernelTensor, mapped

_START = b"$Version="
_END = b"$End=1\n"
_MOST_HEAD_BYTES = 4096


def is_atb(path: Path) -> bool:
    """True for a file that begins as those of ATB do."""
    try:
        with open_regular(path) as file:
            return file.read(len(_START)) == _START
    except OSError as problem:
        raise PathError(said("atb-file-unreadable", path, reason_of(problem))) from problem


def read_atb(path: Path) -> KernelTensor:
    """The tensor in a file. Raises PathError, or InvalidInputError if it is broken."""
    data = mapped(path)
    head, end, _ = bytes(data[:_MOST_HEAD_BYTES]).partition(_END)
    if not end:
        raise InvalidInputError(said("atb-file-without-end", path))
    lines = dict(line.split("=", 1) for line in head.decode("ascii", "replace").splitlines() if "=" in line)
    try:
        code = int(lines["dtype"])
        shape = tuple(int(word) for word in lines["dims"].split(",") if word)
    except (KeyError, ValueError) as problem:
        raise InvalidInputError(said("atb-file-without-dtype", path)) from problem
    if any(size < 0 for size in shape) or len(shape) > 32:
        raise InvalidInputError(said("atb-shape-wrong", path, lines["dims"]))
    # The codes of ATB are those of ACL, which begin with 0 for float32.
    codes = {0: 1, 1: 2, 2: 3, 3: 7, 4: 4, 6: 5, 7: 6, 8: 9, 9: 8, 10: 10, 11: 12, 12: 11, 27: 27}
    if code not in codes:
        raise InvalidInputError(said("atb-type-unknown", path, code))
    values = data[len(head) + len(_END) :]
    return KernelTensor("output", type_code=codes[code], shape=shape, size=len(values), data=values)
