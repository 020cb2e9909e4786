"""What the calls of a healthy pair of runs show by their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HealthyCalls:
    """By operator and direction, in bits: of calls beyond the limits by how much at the most (``beyond``), and the
    largest ``excess`` of distance, and of what is coherent, over arguments and rounding
    (:meth:`msprobe.diagnose.measured.node.Node.excess`). ``given``: how far apart the arguments of one were at the
    most. ``together``: by how much all calls of one precision are beyond what they may be together
    (:class:`msprobe.diagnose.measured.together.CallsTogether`), where they are.
    """

    beyond: Mapping[str, float] = field(default_factory=dict)
    excess: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)
    together: Mapping[tuple[str, bool], float] = field(default_factory=dict)


NOT_MEASURED = HealthyCalls()
