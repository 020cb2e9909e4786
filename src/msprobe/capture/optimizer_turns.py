"""Which steps of optimizers make one step of the training: one rule for all who follow a training by its optimizers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal

from msprobe.capture.identity import IdentityMap, IdentitySet

#: What became of the step of an optimizer; ``skipped``: a gradient scaler has left it out.
Outcome = Literal["taken", "skipped", "raised"]
#: What the training's step is when an optimizer has had its turn. ``left out``: none of its optimizers has stepped.
Progress = Literal["incomplete", "complete", "left out"]


class OptimizerTurns:
    """Takes note of the steps of a training's optimizers, and knows when the training's step is complete.

    It is when each optimizer has had its turns, or when one is about to step that has had all of its own: a critic that
    is trained five times for each step of its generator makes five steps. Not waited for are

    - optimizers that had no turn when another one began again, until they step;
    - optimizers that would change nothing that was not changed in this step (what is frozen, or shared).

    An optimizer whose step a gradient scaler leaves out has had its turn, but where all steps were left out there is
    no step of the training. After one that has raised, the training's step begins again.

    ``given``: the optimizers, each as often as it steps in a step of the training. Where none are given all count that
    change something. ``updates``: the trained parameters that an optimizer changes, by identity. ``find``: the
    optimizers that exist, asked when one steps for the first time.
    """

    def __init__(
        self,
        given: Sequence[Any],
        updates: Callable[[Any], Collection[int]],
        find: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        self._updates = updates
        self._find = find
        # How often each steps in a step of the training; of those that were given, and of those that are waited for.
        self._given: IdentityMap[int] = IdentityMap()
        for optimizer in given:
            self._given[optimizer] = self._given.get(optimizer, 0) + 1
        self._is_open = not given
        self._members = IdentitySet(given)
        self._known = IdentitySet(given)
        # How many turns each has had in this step, and whether one of these was a step.
        self._had: IdentityMap[int] = IdentityMap()
        self._is_taken = False

    def has(self, optimizer: Any) -> bool:
        """True if the steps of ``optimizer`` belong to the training."""
        return bool(self._updates(optimizer)) if self._is_open else optimizer in self._given

    @property
    def has_begun(self) -> bool:
        """True if some have stepped in this step, and others not yet."""
        return self._is_taken

    def begins_next(self, optimizer: Any) -> bool:
        """True if ``optimizer``, which is about to step, has had all of its turns in this step."""
        return self._had.get(optimizer, 0) >= self._given.get(optimizer, 1)

    def begin_next(self) -> bool:
        """This step is over although some had no turn: they are not waited for any more. True if there was a step."""
        for member in [member for member in self._members if member not in self._had]:
            self._members.discard(member)
        is_taken = self._is_taken
        self._begin_again()
        return is_taken

    def note(self, optimizer: Any, outcome: Outcome) -> Progress:
        """A step of ``optimizer`` has ended."""
        if outcome == "raised":
            self._begin_again()
            return "left out"
        is_taken = outcome == "taken"
        if optimizer not in self._known:
            self._known.add(optimizer)
            new = [other for other in self._find() if other not in self._known]
            self._known.update(new)
            self._members.update(new)
        if self.begins_next(optimizer):
            # Whoever could not end the step before this one, ends it with this one.
            is_taken |= self.begin_next()
        self._members.add(optimizer)
        self._had[optimizer] = self._had.get(optimizer, 0) + 1
        self._is_taken |= is_taken
        if self._is_incomplete():
            return "incomplete"
        progress: Progress = "complete" if self._is_taken else "left out"
        self._begin_again()
        return progress

    def _begin_again(self) -> None:
        self._had.clear()
        self._is_taken = False

    def _is_incomplete(self) -> bool:
        missing = [member for member in self._members if self._had.get(member, 0) < self._given.get(member, 1)]
        if any(member in self._had for member in missing):
            return True
        return bool(missing) and has_more_to_update(missing, self._had, self._updates)


def has_more_to_update(
    missing: Iterable[Any], stepped: Iterable[Any], updates: Callable[[Any], Collection[int]]
) -> bool:
    """True if the optimizers that are ``missing`` in a step would change something that those that have ``stepped``
    in it did not. ``updates``: see :class:`OptimizerTurns`.
    """
    changed = {parameter for optimizer in stepped for parameter in updates(optimizer)}
    return any(not changed.issuperset(updates(optimizer)) for optimizer in missing)
