"""Hooks on objects of the user (modules, cells)."""

from __future__ import annotations

from typing import Any, TypeVar

_Own = TypeVar("_Own", bound="PassHook")


class PassHook:
    """A hook that notifies ``passes`` of passes under ``name``.

    A copy of the object it hangs on (deepcopy, pickle) gets one that does nothing.
    """

    __slots__ = ("name", "passes")

    def __init__(self, passes: Any = None, name: str = "") -> None:
        self.passes = passes
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), ())

    def __deepcopy__(self: _Own, memo: dict[int, Any]) -> _Own:
        return type(self)()
