"""Which similarities are a problem, and in which order to look at them.

The rule is the one that mindstudio-probe documents and leaves to the eye: less than 0.97 in the first step, or a drop
of more than 0.03 from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msprobe.messages import Wording

FIRST = 0.97
DROP = 0.03
# A drop of exactly so much is none, however the two numbers were rounded.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Thresholds:
    """``first``: the least similarity in the first step that was compared; ``drop``: the most that one may lose from a
    step to the next.
    """

    first: float = FIRST
    drop: float = DROP


@dataclass(frozen=True, slots=True)
class Problem:
    """A step of a parameter that is suspicious. ``similarity`` and ``previous`` are None where values were compared.

    ``place``: of the parameter in the model. ``rule``: ``first step``, ``drop``, or what differs.
    """

    rank: int
    parameter: str
    step: int
    rule: str
    place: int
    similarity: float | None = None
    previous: float | None = None

    @property
    def line(self) -> str:
        """``rank 0 step 3 layers.2.fc.weight 0.91 -> 0.84``."""
        where = f"rank {self.rank} step {self.step} {self.parameter}"
        if self.similarity is None:
            return Wording("{}: {}", where, self.rule)
        if self.previous is None:
            return f"{where} {self.similarity:.6g}"
        return f"{where} {self.previous:.6g} -> {self.similarity:.6g}"


def problems_of(
    rank: int, parameter: str, place: int, similarities: Mapping[int, float | None], limits: Thresholds
) -> Iterator[Problem]:
    """The suspicious steps of a parameter, in order. Steps without a similarity are passed over."""
    previous: float | None = None
    for step, value in sorted(similarities.items()):
        if value is None:
            continue
        if previous is None:
            if value < limits.first - _ROUNDING:
                yield Problem(rank, parameter, step, "first step", place, value)
        elif previous - value > limits.drop + _ROUNDING:
            yield Problem(rank, parameter, step, "drop", place, value, previous)
        previous = value


def ranked(problems: Sequence[Problem]) -> list[Problem]:
    """What to look at first: the earliest step; in it the parameter whose gradient the backward pass computes first,
    which is the last one of the model: what is wrong there reaches all that come after it.
    """
    return sorted(problems, key=lambda problem: (problem.step, -problem.place, problem.rank))
