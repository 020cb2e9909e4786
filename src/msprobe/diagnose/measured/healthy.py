"""What the calls of a healthy pair of runs show by their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msprobe.diagnose.measured.node import FEW_ELEMENTS, Node

#: A healthy pair says nothing of calls whose arguments are further apart than so many times those that it had.
_ALIKE_GIVEN = 4.0
#: Operator and direction (:func:`msprobe.diagnose.measured.together.kind_of_call`), and whether its calls are in single
#: precision.
Group = tuple[str, bool]


@dataclass(frozen=True)
class HealthyCalls:
    """By operator and direction, in bits: of calls beyond the limits by how much at the most (``beyond``), and the
    largest ``excess`` of distance, and of what is coherent, over arguments and rounding
    (:meth:`msprobe.diagnose.measured.node.Node.excess`). ``given``: how far apart the arguments of one were at the
    most. ``together``: of all calls of one precision the middle one's distance and what is coherent, beyond their class
    (:class:`msprobe.diagnose.measured.together.CallsTogether`).
    """

    beyond: Mapping[str, float] = field(default_factory=dict)
    excess: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)
    together: Mapping[Group, tuple[float, float]] = field(default_factory=dict)

    def is_like(self, node: Node, kind: str) -> bool:
        """True if the calls of the pair say what this one of their operator and direction may show: its results are
        more than a few elements, and its arguments are not much further apart.
        """
        is_tensor = all(result.count >= FEW_ELEMENTS for result in node.results)
        return is_tensor and node.given <= _ALIKE_GIVEN * self.given.get(kind, 0.0)


NOT_MEASURED = HealthyCalls()
