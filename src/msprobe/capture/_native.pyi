from __future__ import annotations

from collections.abc import Callable
from typing import Any

KINDS: dict[str, int]
NUMBERS: dict[str, int]
HIGH_PRECISION: int
SCALAR: int
UNROUNDED: int
STATISTICS: int
XOR: int
STRUCTURE: int

def numbers(
    address: int,
    count_or_pattern: int | tuple[int, ...],
    kind: int,
    flags: int,
    further: int,
    table: bytes | None = None,
    /,
) -> dict[str, Any]: ...
def norm(address: int, count: int, kind: int, /) -> float: ...
def count_below(address: int, count: int, kind: int, bound: float, /) -> int: ...
def encode(tree: Any, depth: int, /) -> bytes: ...
def write_files(directory: int, mode: int, prefix: str, files: list[tuple[Any, ...]], /) -> tuple[int, int]: ...
def crc32(address: int, size: int, /) -> int: ...
def memory(address: int, size: int, /) -> memoryview: ...
def gather(address: int, shape: tuple[int, ...], stride: tuple[int, ...], itemsize: int, /) -> bytes: ...
def pattern(shape: tuple[int, ...], stride: tuple[int, ...], /) -> tuple[int, ...]: ...
def is_dense(shape: tuple[int, ...], stride: tuple[int, ...], /) -> bool: ...
def choose_kernels(name: str, /) -> bool: ...

class Memo:
    def __init__(
        self,
        *,
        ordinary: tuple[type, ...],
        types: dict[Any, tuple[str, int, bool, bytes | None]],
        info_class: type,
        address_of: Callable[[Any], int],
        digest: Callable[..., bytes],
        otherwise: Callable[[Any, bool], Any],
        free_weak: Callable[[int], None],
        is_expired: Callable[[int], bool] | None,
        parameter: type,
        storage_of: Callable[[Any], int] | None,
        in_backward: Callable[[], int],
        is_lazy: Callable[[Any], bool] | None,
        exchange: Any,
        flags: int,
        render: Callable[[dict[str, Any]], tuple[bytes, bytes, int]] | None,
        further: int,
        mode: int,
        crc: bool,
        exact: bool,
        limit: int,
        fault: Callable[[BaseException], bool],
        rows: RowTable | None,
    ) -> None: ...
    reads: int
    def describe(self, tensor: Any, /, remember: bool = True) -> Any: ...
    def copy(self, tensor: Any, buffer: memoryview, /) -> tuple[str, tuple[int, ...], int] | None: ...
    def forget(self, storage: int, /) -> None: ...
    def forget_all(self) -> None: ...
    def distrust(self, tensor: Any, for_good: bool, /) -> None: ...
    def clear(self, keep_exposed: bool = False, /) -> None: ...
    def __len__(self) -> int: ...

class RowTable:
    pending: int
    made: int
    on: int
    def add(
        self, address: int, shape: tuple[int, ...], stride: tuple[int, ...], kind: int, table: bytes | None, /
    ) -> int: ...
    def put(self, row: bytes, /) -> int: ...
    def take(self) -> bytes: ...
    def clear(self) -> None: ...

class Around:
    def __init__(
        self,
        before: Callable[..., tuple[Any, Any, dict[str, Any] | None, Any]],
        after: Callable[[Any, Any, Any], None],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Info:
    text: bytes
    cut: int
    nonfinite: bool | None
    def __init__(self, text: bytes, cut: int, nonfinite: bool | None, /) -> None: ...
