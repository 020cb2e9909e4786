"""What a comparison of packs is made of: parts with their rows, and findings that are ranked over all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "info", "pass"]
#: From bad to good.
LEVELS: tuple[Level, ...] = ("error", "warning", "info", "pass")


@dataclass(frozen=True)
class ConfigurationFinding:
    """One difference. ``weight``: how likely it explains a divergence, 0 to 100; ``why``: what it changes."""

    part: str
    level: Level
    name: str
    bench: str
    cmp: str
    why: str
    weight: int


@dataclass
class DifferenceSheet:
    """One sheet: its columns, its rows, and what they come to."""

    name: str
    header: Sequence[str]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    level: Level = "pass"
    findings: list[ConfigurationFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: How many rows differ; sheets of weights have a row for each.
    differing: int = 0
    #: Present in one pack only: which one lacks it.
    missing_in: Literal["", "bench", "cmp"] = ""

    def add(self, finding: ConfigurationFinding) -> None:
        """Note a difference, which counts for the level of the part."""
        self.findings.append(finding)
        self.raise_to(finding.level)

    def raise_to(self, level: Level) -> None:
        """Make the part at least as bad as this; what is only reported leaves it a pass."""
        if level != "info" and LEVELS.index(level) < LEVELS.index(self.level):
            self.level = level


def short(value: Any, most: int = 120) -> str:
    """A value as a finding shows it: one line, not endless; None is nothing. Of a name with several values, these."""
    if isinstance(value, dict) and value.get("description") == "duplicate_value":
        value = " / ".join(map(str, value.get("values", ())))
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cell_of(value: Any) -> Any:
    """A value as a sheet has it: numbers and texts as they are, all else as a text."""
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
