"""What happened while one rank ran against the reference: counts, names, and what its regions came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from msprobe.lockstep.carried import Apart
from msprobe.lockstep.regions import NAMES, WORDS, Regions
from msprobe.messages import said

_MOST_NAMED = 200
#: Words of a region that accounts of earlier versions have, and what they are called now.
_NOW = {"untold": "unreported"}


@dataclass
class StepAccount:
    """What is known of one step of one rank beside its dump."""

    regions: list[dict[str, Any]] = field(default_factory=list)
    #: The calls that do not answer to the recorded call of their own name, and which they answer to: empty where it is
    #: none. None: it is not known.
    partners: dict[str, str] | None = None
    #: By optimizer, the parameters whose gradients it takes, and whether these are the reference's but for the rounding
    #: of their sums.
    gradients: dict[str, dict[str, bool]] = field(default_factory=dict)
    #: By optimizer, the calls between the backward pass and its step, and those of the reference.
    before_step: dict[str, list[str]] = field(default_factory=dict)
    recorded_before_step: dict[str, list[str]] = field(default_factory=dict)
    #: Optimizers that work otherwise than the reference's, and whether they come to the same weights and moments.
    rewritten: dict[str, bool] = field(default_factory=dict)
    #: What calls of the candidate alone have left for this step, and is not what the reference has.
    carried: list[dict[str, Any]] = field(default_factory=list)
    #: Calls that give back their argument.
    idle: dict[str, None] = field(default_factory=dict)
    #: Backward calls that begin with a multiple of what the reference has, and the factor, which the gradients of all
    #: parameters have; and whether no call took these until an optimizer did.
    factors: dict[str, float] = field(default_factory=dict)
    are_kept: bool = False

    @property
    def delivered(self) -> frozenset[str]:
        """The parameters whose gradients are the reference's, but for rounding, for each optimizer that takes them."""
        every = [(name, agrees) for gradients in self.gradients.values() for name, agrees in gradients.items()]
        return frozenset(name for name, _ in every) - {name for name, agrees in every if not agrees}

    def to_json(self) -> dict[str, Any]:
        """As it is written for whoever judges."""
        return {
            "regions": self.regions,
            "partners": self.partners or {},
            "gradients": self.gradients,
            "before_step": self.before_step,
            "recorded_before_step": self.recorded_before_step,
            "rewritten": self.rewritten,
            "carried": self.carried,
            "idle": list(self.idle),
            "factors": self.factors,
            "are_kept": self.are_kept,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> StepAccount:
        """As it was written. Raises TypeError, KeyError, ValueError or AttributeError for anything else."""
        return cls(
            [_region(region) for region in content["regions"]],
            {str(own): str(other) for own, other in content["partners"].items()},
            {str(module): _truths(gradients_of_module) for module, gradients_of_module in content["gradients"].items()},
            _names(content["before_step"]),
            _names(content["recorded_before_step"]),
            _truths(content["rewritten"]),
            [
                {
                    **{word: str(carried_entry[word]) for word in ("left_by", "recorded", "argument")},
                    "step": int(carried_entry["step"]),
                    "apart": float(carried_entry["apart"]),
                }
                for carried_entry in content["carried"]
            ],
            {str(name): None for name in content["idle"]},
            {str(name): float(factor) for name, factor in content.get("factors", {}).items()},
            bool(content.get("are_kept")),
        )


class Account:
    """What happened in the steps of one rank, for the verdict's summary and notes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: Names of calls, with their steps, of which something could not be done.
        self.named: dict[str, list[str]] = {}
        self.steps: dict[str, StepAccount] = {}
        self._step = StepAccount(partners={})

    def end_step(self, step: int, regions: Regions) -> None:
        """Keep what the regions of a step came to, and what else is known of it."""
        self.steps[str(step)], account = self._step, self._step
        self._step = StepAccount(partners={})
        account.regions = [region.to_json() for region in regions]
        every = [region for region in regions if region.ends]
        self.counts["regions"] += len(every)
        self.counts["regions_healthy"] += sum(all(region.ends.values()) for region in every)

    def pair(self, name: str, recorded: str) -> None:
        """A call has found its partner."""
        self.counts["paired"] += 1
        if name != recorded and self._step.partners is not None:
            self._step.partners[name] = recorded

    def leave_alone(self, step: int, name: str) -> None:
        """A call has no partner."""
        self.note("without_partner", step, name)
        if self._step.partners is not None:
            self._step.partners[name] = ""

    def take_gradients(
        self, optimizer: str, agree: Mapping[str, bool], calls: Iterable[str], recorded: Iterable[str]
    ) -> None:
        """An optimizer is about to take gradients, which agree or not, after these calls and the recorded ones."""
        self._step.gradients[optimizer] = dict(agree)
        self._step.before_step[optimizer] = list(calls)
        self._step.recorded_before_step[optimizer] = list(recorded)

    def rewrite(self, optimizer: str, agrees: bool) -> None:
        """An optimizer that works otherwise than the reference's has come to the same, or not."""
        self._step.rewritten[optimizer] = agrees and self._step.rewritten.get(optimizer, True)

    def carry(self, carried: Apart) -> None:
        """A tensor of an earlier step is not what the reference has."""
        self._step.carried.append(asdict(carried))

    def do_nothing(self, name: str) -> None:
        """A call has given back its argument."""
        self._step.idle[name] = None

    def carry_factors(self, factors: Mapping[str, float], are_kept: bool) -> None:
        """These backward calls began with a factor; ``are_kept``: until an optimizer took the gradients."""
        self._step.factors, self._step.are_kept = dict(factors), are_kept

    def note(self, what: str, step: int, name: str) -> None:
        """Count a call by what became of it, and keep its name."""
        self.counts[what] += 1
        names = self.named.setdefault(what, [])
        if len(names) < _MOST_NAMED:
            names.append(said("call-in-step", name, step))

    def to_json(self) -> dict[str, Any]:
        """As it is written for whoever judges."""
        steps = {step: account.to_json() for step, account in self.steps.items()}
        return {"counts": dict(self.counts), "named": self.named, "steps": steps}


def _region(content: Mapping[str, Any]) -> dict[str, Any]:
    content = {_NOW.get(word, word): content_value for word, content_value in content.items()}
    names = {word: [str(name) for name in content.get(word, ())] for word in NAMES}
    own = {"ends": dict(content["ends"]), "unit": float(content["unit"])}
    return {**names, **own, **{word: bool(content.get(word)) for word in WORDS}}


def _names(content: Mapping[str, Any]) -> dict[str, list[str]]:
    return {str(module): [str(name) for name in names] for module, names in content.items()}


def _truths(content: Mapping[str, Any]) -> dict[str, bool]:
    return {str(name): bool(truth) for name, truth in content.items()}
