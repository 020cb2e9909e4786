"""What is remembered of all steps that were checked, gaps between them or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.steps.communication import Rank
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, is_tensor

if TYPE_CHECKING:
    from msprobe.diagnose.check.moment import CheckedStep, Earlier


@dataclass
class History:
    """Over all ranks: ``called`` has the modules of each step that ran and have parameters, ``used`` the parameters of
    these, ``reached`` those that some pass gave a gradient or some optimizer took with one.
    """

    called: list[frozenset[str]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    # Of the steps before the one that is checked: parameters that an optimizer took with a gradient, models in training
    # mode, and the first step of each rank that began with a batch.
    trained: set[str] = field(default_factory=set)
    in_training: set[str] = field(default_factory=set)
    batches: dict[tuple[Rank, int], int | None] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)

    def add(self, ranks: Iterable[Glance]) -> None:
        """Remember a step of all ranks."""
        called: set[str] = set()
        for glance in ranks:
            self.used.update(glance.used)
            called.update(name.rpartition(".")[0] for name in glance.used)
            self.reached.update(glance.reached)
        # Of a run of many steps most are alike, and one set stands for all of these.
        last = self.called[-1] if self.called else frozenset[str]()
        self.called.append(last if last == called else frozenset(called))

    def leave(self, ranks: Mapping[Rank, Earlier], step: int | None) -> None:
        """Remember what the next steps ask of this one, once it is checked."""
        for rank, earlier in ranks.items():
            self.trained.update(name for name, leaf in earlier.gradients.items() if leaf.get("Norm"))
            self.in_training.update(earlier.in_training)
            if earlier.batch is not None:
                self.batches.setdefault((rank, earlier.batch), step)


@dataclass(frozen=True)
class Glance:
    """What is to be known of a step of all ranks before one is checked: the parameters that modules ``used``, those
    that a gradient ``reached``, and those that an optimizer ``held``. ``has_values``: whole tensors were recorded.
    """

    used: frozenset[str]
    reached: frozenset[str]
    held: frozenset[str]
    has_values: bool


def glance_at(moment: CheckedStep) -> Glance:
    """The glance at a rank, of which records of modules, parameters and optimizers are enough."""
    gradients = moment.gradients
    reached = {name for name, passes in gradients.items() if any(leaf is not None for leaf in passes)}
    held: set[str] = set()
    for event in moment.optimizer_steps:
        own = {plain_path(name) for name in parameters_of(event)}
        held |= own
        reached |= own - without_gradient(event)
    has_values = moment.timeline.part.header.get("task") == "tensor"
    return Glance(frozenset(moment.weights), frozenset(reached), frozenset(held), has_values)


def without_gradient(event: Event) -> set[str]:
    """The parameters to be trained that an optimizer holds, and that had no gradient in its step."""
    names = set()
    for name, fields in parameters_of(event).items():
        weight = fields.get("weight") if isinstance(fields, dict) else None
        # A share of a parameter may be empty on a rank.
        if weight is None or not is_tensor(weight) or not weight.get("requires_grad") or 0 in weight.get("shape", ()):
            continue
        if "grad" in fields and (fields["grad"] is None or _is_zero(fields["grad"])):
            names.add(plain_path(name))
    return names


def _is_zero(gradient: object) -> bool:
    return is_tensor(gradient) and isinstance(gradient, dict) and gradient.get("Norm") in (0, 0.0)
