"""The parts of the recorder that are written in C, or their equals in Python where they were not built.

``MSPROBE_NATIVE=0`` in the environment chooses the Python versions. ``encode``, ``pattern`` and ``is_dense``,
``memory``, ``copy_memory`` and ``crc32`` exist in both, with identical results. ``numbers``, ``norm``,
``count_below``, ``gather``, ``write_files``, ``RowTable`` and ``Memo`` are None without the extension: the framework's
own operations and Python's take their place.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import zlib
from collections.abc import Callable, Set
from typing import Any

from msprobe import log
from msprobe.messages import both, said
from msprobe.store.encode import LINES
from msprobe.store.encode import encode as encode_python

# Whether elements are not finite.
HAS_NAN = 1
HAS_INF = 2


def pattern_python(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Which elements of its storage a view holds, whatever their order: ``(size, stride, size, stride, ..)``.

    Dimensions of one are left out, the rest sorted by stride, and those that continue each other joined: two
    views that start at the same address and have the same pattern hold the same elements equally often. A
    block without gaps is ``(count, 1)``, nothing is ``(0, 1)``.
    """
    if len(shape) != len(stride):
        raise ValueError(said("sizes-and-strides-differ", len(shape), len(stride)))
    if any(number < 0 for number in (*shape, *stride)):
        raise ValueError(said("sizes-negative"))
    if 0 in shape:
        return (0, 1)
    joined: list[int] = []
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if joined and joined[-1] * joined[-2] == step:
            joined[-2] *= size
        else:
            joined += (size, step)
    return tuple(joined) or (1, 1)


def is_dense_python(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the elements of a view fill one block of memory, each once, in whatever order."""
    known_pattern = pattern_python(shape, stride)
    return len(known_pattern) == 2 and known_pattern[1] == 1


def memory_python(address: int, size: int) -> memoryview:
    """The ``size`` bytes at ``address``, read-only and not copied: valid only while their owner lives."""
    if size < 0 or (address == 0 and size > 0):
        raise ValueError(said("memory-of-no-address", size, address))
    if size == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B").toreadonly()


def crc32_python(address: int, size: int) -> int:
    """The CRC-32 of the ``size`` bytes at ``address``."""
    return zlib.crc32(memory_python(address, size))


def copy_memory(address: int, size: int) -> bytes:
    """The ``size`` bytes at ``address``, copied."""
    return bytes(memory(address, size))


KINDS: dict[str, int] = {}
# The numbers of msprobe.statistics_table that `numbers` can answer, and which further pass over the elements each
# takes, as a bit.
NUMBERS: dict[str, int] = {}
Memo: Any = None
# The rows of a step; without the extension numpy makes them.
RowTable: Any = None
# See around.py.
Around: Any = None
Info: Any = None
HIGH_PRECISION = 1
SCALAR = 2
UNROUNDED = 4
# What a memo says of the elements.
STATISTICS = 0
XOR = 1
STRUCTURE = 2
numbers: Callable[..., dict[str, Any]] | None = None
count_below: Callable[[int, int, int, float], int] | None = None
norm: Callable[[int, int, int], float] | None = None
memory: Callable[[int, int], memoryview] = memory_python
crc32: Callable[[int, int], int] = crc32_python
write_files: Callable[[int, int, str, list[tuple[Any, ...]]], tuple[int, int]] | None = None
gather: Callable[[int, tuple[int, ...], tuple[int, ...], int], bytes] | None = None
encode: Callable[[Any, int], bytes] = encode_python
pattern: Callable[[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = pattern_python
is_dense: Callable[[tuple[int, ...], tuple[int, ...]], bool] = is_dense_python
built = False
# Why the extension is not in use; empty where it is.
unused_because: str = ""

# What is there without the extension, by name.
PYTHON: dict[str, Any] = {
    name: globals()[name]
    for name in (
        "Around Info Memo RowTable count_below crc32 encode gather is_dense memory norm numbers pattern write_files"
    ).split()
}

if os.environ.get("MSPROBE_NATIVE", "1") == "0":
    unused_because = both("switched off by MSPROBE_NATIVE=0", "由 MSPROBE_NATIVE=0 关闭")
else:
    try:
        from msprobe.capture import _native
    except Exception as error:
        is_there = importlib.util.find_spec("msprobe.capture._native") is not None
        unused_because = (
            both("could not be loaded: {}", "无法加载：{0}", error) if is_there else both("not built", "没有编译")
        )
    else:
        # What an earlier version built may lie there still, as an editable installation leaves it.
        _missing = [name for name in ("KINDS", "NUMBERS", *PYTHON) if not hasattr(_native, name)]
        if _missing and _missing != ["write_files"]:  # which Windows does not have
            unused_because = both(
                "built by a different version, without {}: install msprobe again",
                "由其他版本编译，缺少 {0}：请重新安装 msprobe",
                ", ".join(_missing),
            )
        else:
            built = True
            KINDS = _native.KINDS
            NUMBERS = _native.NUMBERS
            Memo = _native.Memo
            RowTable = _native.RowTable
            Around = _native.Around
            Info = _native.Info
            numbers = _native.numbers
            count_below = _native.count_below
            norm = _native.norm
            memory = _native.memory
            crc32 = _native.crc32
            gather = _native.gather
            write_files = getattr(_native, "write_files", None)
            encode = _native.encode
            pattern = _native.pattern
            is_dense = _native.is_dense


def in_one_line(tree: Any) -> bytes:
    """The text of a tree in one line, as it stands inside of a record: a finished piece for other trees."""
    return encode(tree, LINES)


# Errors of the memo that no tensor explains; after so many Python does its work, until the process ends.
_MOST_FAULTS = 3
_faults: list[str] = []


def fault_of_memo(error: BaseException) -> bool:
    """Called by a `Memo` of an error of its own; True: it is to leave everything to Python. Python has taken over for
    the tensor at hand in any case.
    """
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    _faults.append(text)
    if len(_faults) == _MOST_FAULTS:
        log.warning(said("native-code-failed", _MOST_FAULTS, text))
    return is_memo_off()


def is_memo_off() -> bool:
    """Whether a `Memo` failed too often in this process to be used."""
    return len(_faults) >= _MOST_FAULTS


def further_passes(needs: Set[str]) -> int:
    """What `numbers` must be text to answer all that ``needs`` names and it knows."""
    passes = 0
    for name in needs:
        passes |= NUMBERS.get(name, 0)
    return passes


def status() -> str:
    """Whether the extension is in use, and why not, in one line."""
    return f"C extension: {unused_because or 'in use'}"
