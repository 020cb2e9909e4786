"""Records whose numbers are on their way from a device: what is done with them once the numbers are here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

# (entry, record) -> whether the record is kept
Check = Callable[[str, dict[str, Any]], bool]


class LateNumbers(Protocol):
    """The descriptions of a framework whose numbers come later; they come in the order in which they were made."""

    @property
    def made(self) -> int:
        """How many such descriptions there were."""

    @property
    def known(self) -> int:
        """Of how many of them the numbers have come."""

    def receive(self) -> None:
        """Fill in the numbers that have come. Waits for nothing."""


class LateRecord(NamedTuple):
    """A record that waits. ``stack``: its call stack; with ``check`` None the number that this has in the dump.

    ``check``: decides with the numbers whether the record is kept. ``made``: how many late descriptions there were when
    it was put.
    """

    name: str
    tree: Any
    stack: Any
    parent: Any
    check: Check | None
    made: int


class LateRecords:
    """Waiting records, in the order in which they were put."""

    def __init__(self) -> None:
        self.waiting: deque[LateRecord] = deque()
        # None: the numbers of all records come at once (`has_late` of the session says when).
        self.numbers: LateNumbers | None = None

    def add(self, name: str, tree: Any, stack: Any, parent: Any, check: Check | None) -> None:
        """A record that waits from now on."""
        made = 0 if self.numbers is None else self.numbers.made
        self.waiting.append(LateRecord(name, tree, stack, parent, check, made))

    def ready(self, all_of_them: bool) -> Iterator[LateRecord]:
        """Take those out whose numbers have come, or all."""
        numbers, waiting = self.numbers, self.waiting
        while waiting and (all_of_them or (numbers is not None and waiting[0].made <= numbers.known)):
            yield waiting.popleft()

    def clear(self) -> None:
        """Forget them."""
        self.waiting.clear()


def leaves_of(tree: Any) -> Iterator[Any]:
    """The descriptions in a record."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves_of(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves_of(value)
    elif tree is not None and not isinstance(tree, (bytes, str, int, float)):
        yield tree


def is_late(tree: Any) -> bool:
    """Whether a number of the record is not known yet."""
    return any(getattr(leaf, "late", False) for leaf in leaves_of(tree))
