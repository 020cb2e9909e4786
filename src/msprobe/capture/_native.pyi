from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

KINDS: dict[str, int]
NUMBERS: dict[str, int]
HIGH_PRECISION: int
SCALAR: int
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
def encode(tree: Any, depth: int, /) -> bytes: ...
def put(session: Any, name: str, tree: Any, stack: Any = None, parent: Any = False, /) -> None: ...
def stand_for(put_call: Any, define_stack: Any, encode: Any, digest: Callable[[bytes, int], int], /) -> None: ...
def late_list_of(function: Any, /) -> None: ...
def alive(handles: list[Any], /) -> list[Any]: ...
def place(module: Any, before_key: int, after_key: int, /, *hooks: Any) -> None: ...
def frame_key(skip: int, /) -> bytes: ...
def write_files(directory: int, mode: int, prefix: str, files: list[tuple[Any, ...]], /) -> tuple[int, int]: ...
def crc32(address: int, size: int, /) -> int: ...
def memory(address: int, size: int, /) -> memoryview: ...
def gather(address: int, shape: tuple[int, ...], stride: tuple[int, ...], itemsize: int, /) -> bytes: ...
def pattern(shape: tuple[int, ...], stride: tuple[int, ...], /) -> tuple[int, ...]: ...
def is_dense(shape: tuple[int, ...], stride: tuple[int, ...], /) -> bool: ...
def walk(
    nodes: Iterable[Any],
    by_node: dict[Any, dict[int, int]],
    leaves: list[tuple[Any, int]],
    oldest: int,
    accumulating: type,
    slices: type,
    limit: int,
    /,
) -> tuple[list[tuple[Any, list[tuple[int, int]]]], list[Any]]: ...
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
    ) -> None: ...
    reads: int
    def describe(self, tensor: Any, /, remember: bool = True) -> Any: ...
    def copy(self, tensor: Any, buffer: memoryview, /) -> tuple[str, tuple[int, ...], int] | None: ...
    def forget(self, storage: int, /) -> None: ...
    def forget_all(self) -> None: ...
    def distrust(self, tensor: Any, for_good: bool, /) -> None: ...
    def clear(self, keep_exposed: bool = False, /) -> None: ...
    def __len__(self) -> int: ...

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

class Passes:
    def __init__(self, **partners: Any) -> None: ...
    def enter(
        self, name: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], above: int = 0, /
    ) -> None: ...
    def leave(self, name: str, module: Any, result: Any, /) -> None: ...
    def watch_single(self, node: Any, base: str, parent: Any, oldest: int, /) -> bool: ...

class Pass:
    module: Any
    name: str
    entry: str
    stack: Any
    parent: Any
    inputs: Any
    kwinputs: Any
    number: int
    order: int
    oldest: int
    recorded: bool
    watched: bool
    edges: list[Any]

class ModuleHook:
    def __init__(self, passes: Passes, name: str, after: bool, inert: Callable[[], Any], /) -> None: ...
    def __call__(self, module: Any, args: Any, *keywords_and_result: Any) -> None: ...

class ParameterHook:
    node: Any
    owners: list[tuple[str, str]]
    def __init__(self, passes: Passes, node: Any, /) -> None: ...
    def __call__(self, gradients: tuple[Any, ...], /) -> None: ...
