"""What healthy devices show of each class of calls: a table that is measured, and made again by the command it names.

A class is an operator in a direction, in single precision or in a half type. An operator that is not in the table has
the class of its family, or none, and then nothing is taken off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from msprobe.diagnose.measured.node import SINGLE, Node, family_of
from msprobe.foreign.json_text import parse_json

_FILE = Path(__file__).with_name("classes.json")

#: The usual excess of a class, in bits: of the distance, and of what is coherent.
Usual = tuple[float, float]
_NONE: Usual = (0.0, 0.0)


@dataclass(frozen=True)
class Classes:
    """``by_operator``, ``by_family``: by ``linear forward half``."""

    by_operator: Mapping[str, Usual]
    by_family: Mapping[str, Usual]

    def usual(self, node: Node) -> Usual:
        """What is usual of a call; never less than nothing. That a class is closer than its arguments depends on which
        of them weigh most, which differs from network to network.
        """
        usual_excess = self.by_operator.get(_name(node.operation, node))
        if usual_excess is None:
            usual_excess = self.by_family.get(_name(family_of(node.operation), node), _NONE)
        return max(usual_excess[0], 0.0), max(usual_excess[1], 0.0)

    def is_known(self, node: Node) -> bool:
        """True if the operator, or its family, was measured."""
        name = _name(family_of(node.operation), node)
        return _name(node.operation, node) in self.by_operator or name in self.by_family

    def json(self) -> dict[str, Any]:
        """The content of a table file, but for what made it."""
        return {
            "operators": {
                name: [round(number, 2) for number in usual] for name, usual in sorted(self.by_operator.items())
            },
            "families": {
                name: [round(number, 2) for number in usual] for name, usual in sorted(self.by_family.items())
            },
        }


def measured(steps: Iterable[tuple[list[Node], Mapping[str, float]]]) -> Classes:
    """The table of healthy pairs: of each the calls, and the units of its products. Of a class it is the median."""
    operators: dict[str, list[Usual]] = {}
    families: dict[str, list[Usual]] = {}
    for nodes_of_step, units in steps:
        for node in nodes_of_step:
            excess = node.excess(units.get(node.product, 0.0))
            if node.excused or not math.isfinite(excess[0]):
                continue
            operators.setdefault(_name(node.operation, node), []).append(excess)
            if family := family_of(node.operation):
                families.setdefault(_name(family, node), []).append(excess)
    return Classes(*({name: _median(excesses) for name, excesses in table.items()} for table in (operators, families)))


@lru_cache(1)
def shipped() -> Classes:
    """The table that comes with this version."""
    content: Any = parse_json(_FILE.read_bytes(), _FILE)
    return Classes(
        *({name: (usual[0], usual[1]) for name, usual in content[key].items()} for key in ("operators", "families"))
    )


def _name(of: str, node: Node) -> str:
    return f"{of} {node.direction} {'single' if node.unit <= SINGLE else 'half'}"


def _median(excesses: list[Usual]) -> Usual:
    coherent = [excess for _, excess in excesses if math.isfinite(excess)]
    import statistics  # who makes a table takes it; all others start without

    return statistics.median(excess for excess, _ in excesses), statistics.median(coherent) if coherent else 0.0
