"""The facts that a finding between two runs rests on: a closed set.

What is ordered, weighed or counted is read from fields of these; words for people are made of them last, and nobody
reads words back. In ``verdict.json`` they are the ``evidence`` of a finding (:func:`as_json`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.differences.words import at_least, measure

Side = Literal["candidate", "reference"]

#: What the diagnosis recognised as the cause; each has an advice of its own (``report/advice.py``).
Cause = Literal[
    "beyond",  # the step is further apart than rounding explains, and no call by itself is
    "between",  # calculated between two modules, where calls were not recorded
    "class",  # another class of optimizer
    "clipping",  # gradients are clipped by their norm on one side alone
    "frozen",  # parameters require no gradient on one side alone
    "gradient_factor",  # gradients are a constant times the other on their way
    "loss_factor",  # the loss, or the first gradient, is a constant times the other
    "members",  # the optimizer has other parameters
    "movement",  # the optimizer moved weights otherwise, between two frameworks
    "no_step",  # no optimizer of one side steps with these parameters
    "in_parts",  # the sides have gradients in other parts, which together differ
    "not_averaged",  # nothing put the gradients of data-parallel ranks together
    "not_cleared",  # gradients hold those of the step before, too
    "on_its_way",  # a gradient differs between the backward pass and where it is taken from ``.grad``
    "rounded_numbers",  # whole numbers become numbers of a type that cannot hold them
    "random",  # other random numbers
    "scaled_clipping",  # gradients are clipped before the scale of the loss is taken from them
    "state",  # the optimizer has other states, or lacks some
    "step_again",  # an optimizer of one side updates the same parameters once more
    "step_left_out",  # an optimizer step of one side alone
    "tie",  # two weights are one tensor on one side alone
    "wrong_alone",  # computed again from its own inputs, a result is wrong on one side alone
]
_MOST_NAMED = 200


@dataclass(frozen=True)
class SeenFact:
    """The tensor that shows it, on both sides, and how far it is apart. ``bound``: say where that is a lower bound."""

    difference: Difference
    bound: bool = False

    def json(self) -> dict[str, Any]:
        return {**measure(self.difference), **(at_least(self.difference) if self.bound else {})}


@dataclass(frozen=True)
class ResultFact:
    """How far a result is apart, and how much of that rounding and the inputs explain; both relative. ``slot`` and
    ``input_difference`` (how far the inputs are apart) are given for a call that is the origin itself.
    ``by_statistics``: inputs agree in their statistics, which is all that was recorded of them; a different order of
    their elements does not show.
    """

    difference: float
    explained: float
    slot: str | None = None
    input_difference: float | None = None
    by_statistics: bool = False

    @property
    def is_explained(self) -> bool:
        """True if nothing but rounding and the inputs is needed."""
        return self.difference <= self.explained

    def json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "slot": self.slot,
            "difference": self.difference,
            "inputs_differ_by": self.input_difference,
        }
        record["inputs_agree_by"] = "statistics" if self.by_statistics else None
        return {key: value for key, value in record.items() if value is not None} | {"explained": self.explained}


@dataclass(frozen=True)
class OtherArguments:
    """Arguments of one call that are others on both sides. ``words``: what they are called, by position; or nothing."""

    differences: tuple[Difference, ...]
    words: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        return {
            "arguments": [
                {
                    "slot": difference.slot,
                    **({"name": word} if word else {}),
                    "candidate": difference.in_words[0],
                    "reference": difference.in_words[1],
                }
                for difference, word in zip(self.differences, self.words or ("",) * len(self.differences), strict=True)
            ]
        }


@dataclass(frozen=True)
class OneSide:
    """Calls, by name, that one side alone makes."""

    candidate: tuple[str, ...] = ()
    reference: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        return {"candidate_alone": list(self.candidate), "reference_alone": list(self.reference)}


@dataclass(frozen=True)
class Because:
    """The cause, where it was recognised."""

    cause: Cause

    def json(self) -> dict[str, Any]:
        return {"cause": self.cause}


@dataclass(frozen=True)
class Setting:
    """What is set otherwise: a field of the optimizer, a type, a class."""

    candidate: Any
    reference: Any
    field: str | None = None

    def json(self) -> dict[str, Any]:
        values = {"candidate": self.candidate, "reference": self.reference}
        return values if self.field is None else {"field": self.field, **values}


@dataclass(frozen=True)
class NamedFact:
    """A name or a number that belongs to a finding and that nobody weighs, under its name in ``verdict.json``."""

    what: Literal[
        # Of a parameter, a buffer, a field of the optimizer; of the other call that made a tensor or takes it.
        "parameter", "buffer", "field", "made_by", "seen_in", "only_in", "candidate_takes", "reference_takes",
        # Up to which a type holds every whole number; of the calls of an operator beyond rounding together.
        "exact_up_to", "calls_together",
        # What follows of a first difference that is within rounding by itself, and what rounding explains of that.
        "effect", "effect_explained",
        # The later step that shows it; in how many steps none was measured, and how far these are apart by rounding.
        "effect_in_step", "no_effect_in_steps", "effect_within_rounding",
        # How much of what a step moved a weight by is apart, and how many times as far the candidate moved it.
        "part_of_movement", "factor",
    ]  # fmt: skip
    name: Any

    def json(self) -> dict[str, Any]:
        return {self.what: self.name}


@dataclass(frozen=True)
class Listed:
    """Several of them; not more than 200 are kept."""

    what: Literal["parameters", "calls", "missing", "extra"]
    names: Sequence[str]

    def json(self) -> dict[str, Any]:
        return {self.what: list(self.names[:_MOST_NAMED])}


Fact = SeenFact | ResultFact | OtherArguments | OneSide | Because | Setting | NamedFact | Listed


def because(cause: Cause | None) -> tuple[Because, ...]:
    """A cause, if there is one."""
    return (Because(cause),) if cause else ()


def as_json(facts: Iterable[Fact]) -> dict[str, Any]:
    """The facts as one mapping of JSON values, as the documentation of ``verdict.json`` describes it."""
    return {key: value for fact in facts for key, value in fact.json().items()}
