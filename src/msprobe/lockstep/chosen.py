"""Which records are put right: all, or those that are named."""

from __future__ import annotations

from collections.abc import Collection

from msprobe.compare.entry_names import without_call_number


class Chosen:
    """``names``: of records; with ``*`` in place of its number, of each call of that API. Empty: all are chosen."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def __bool__(self) -> bool:
        """True if some are named."""
        return bool(self._names)

    def has(self, name: str) -> bool:
        """Whether a record is one of them; one of a backward is if its forward is."""
        if not self._names:
            return True
        return any(
            entry in self._names for word in (name, without_call_number(name)) for entry in (word, _forward(word))
        )


def _forward(name: str) -> str:
    return name.replace(".backward", ".forward")
