"""Places that are told in a row: the first of them, and how many there are besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe.diagnose.wording import Wording, joined

_SHOWN = 5


@dataclass
class Places:
    """The first of many places in words, and how many they are."""

    first: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, place: str) -> None:
        """One place more."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(place)

    def __str__(self) -> str:
        more = self.count - len(self.first)
        return joined("; ", self.first) + (Wording(" and {} more", more) if more else "")
