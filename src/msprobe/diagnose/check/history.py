"""What is remembered of all steps that were checked, gaps between them or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msprobe.compare.entry_names import plain_path
from msprobe.diagnose.steps.optimizer import parameters_of
from msprobe.diagnose.steps.timeline import Event, is_tensor

if TYPE_CHECKING:
    from msprobe.diagnose.check.moment import Moment


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
    batches: dict[tuple[int | str, int], int | None] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)

    def add(self, moment: Moment) -> None:
        """Remember a step."""
        called: set[str] = set()
        for timeline in moment.timelines.values():
            weights = moment.weights(timeline)
            self.used.update(weights)
            called.update(name.rpartition(".")[0] for name in weights)
            self.reached.update(
                name for name, passes in moment.gradients(timeline).items() if any(leaf is not None for leaf in passes)
            )
            for event in moment.optimizer_steps(timeline):
                held = (plain_path(name) for name in parameters_of(event))
                self.reached.update(set(held) - without_gradient(event))
        # Of a run of many steps most are alike, and one set stands for all of these.
        last = self.called[-1] if self.called else frozenset[str]()
        self.called.append(last if last == called else frozenset(called))

    def leave(self, moment: Moment) -> None:
        """Remember what the next steps ask of this one, once it is checked."""
        from msprobe.diagnose.check.repeated import batch_of

        for rank, timeline in moment.timelines.items():
            self.trained.update(name for name, leaf in moment.at_optimizer(timeline).items() if leaf.get("Norm"))
            self.in_training.update(
                event.parts.path
                for event in timeline
                if event.is_module and event.parent is None and event.record.get("training") is not False
            )
            batch = batch_of(timeline)
            if batch is not None:
                self.batches.setdefault((rank, batch[1]), moment.step)


def without_gradient(event: Event) -> set[str]:
    """The parameters to be trained that an optimizer holds, and that had no gradient in its step."""
    found = set()
    for name, fields in parameters_of(event).items():
        weight = fields.get("weight") if isinstance(fields, dict) else None
        # A share of a parameter may be empty on a rank.
        if weight is None or not is_tensor(weight) or not weight.get("requires_grad") or 0 in weight.get("shape", ()):
            continue
        if "grad" in fields and (fields["grad"] is None or _is_zero(fields["grad"])):
            found.add(plain_path(name))
    return found


def _is_zero(gradient: object) -> bool:
    return is_tensor(gradient) and isinstance(gradient, dict) and gradient.get("Norm") in (0, 0.0)
