"""Which optimizer steps make one training step, of a program that does not say where its steps end."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from msprobe import log
from msprobe.capture.identity import IdentityMap, IdentitySet
from msprobe.capture.optimizer_turns import has_more_to_update
from msprobe.capture.torch import private
from msprobe.capture.torch.modules.user_modules import parameters
from msprobe.messages import said

# An optimizer that steps once for so many steps of a different one is waited for (a critic trained five times for each
# step of its generator); one that takes longer is trained in a phase of its own.
MOST_WAITED = 10
# An optimizer of a model of which a copy is trained is waited for longer: inner loops have many steps.
_MOST_INNER = 100
# So many optimizers, each made anew and each with steps of its own, may be the inner ones of something larger.
_MANY_MADE = 3
# Where there are more optimizers than this (one for each parameter), none is taken for that of a copy.
_MANY_ALIVE = 64


class OptimizerCycle:
    """Takes note of each optimizer step, and knows when the training step is complete.

    A training step is complete when every optimizer has stepped that still has something to update. Not waited for:

    - one whose ``step`` torch does not hook: it wraps a different one (AcceleratedOptimizer, LightningOptimizer), which
      is seen itself;
    - one of whose parameters none is trained, or all were updated in this step by others;
    - one that is *overtaken*: others have stepped more often in this training step than it is waited for. Usually that
      is once. One that has yet to make its first step, and whose model is called, is waited for longer, and one that
      was overtaken and stepped in the end for as long as then. It takes part again when it steps.

    Where one was overtaken not long ago, a training step that is complete without it ends only where a model is called
    that is not its own: it may be about to step (an actor that is trained in every second iteration of its critic).

    An *inner* optimizer (meta-learning, an attack on the inputs) is made in the middle of the training and steps
    between two steps of an older one, the *outer* one, for whose next step it is no reason to end the training step.
    Known by that it was made since the outer one stepped, or by its parameters, which are copies of the outer one's.

    ``all_optimizers`` gives the optimizers that exist; ``is_used``: whether the model of one was called in this step;
    ``advice``: what the user can do where optimizers are not waited for, for the end of a line.
    """

    def __init__(
        self,
        all_optimizers: Callable[[], Iterable[Any]],
        is_used: Callable[[Any], bool] = lambda optimizer: True,
        advice: str = "",
    ) -> None:
        self._all = all_optimizers
        self._is_used = is_used
        self._advice = advice
        self._members: IdentitySet = IdentitySet()
        self._ever: IdentitySet = IdentitySet()
        self._named: IdentitySet = IdentitySet()
        # How often each has stepped in this training step, and the most of these.
        self._counts: IdentityMap[int] = IdentityMap()
        self._most = 0
        # How many steps others made in earlier training steps since this one stepped last, and how many it is
        # waited for.
        self._behind: IdentityMap[int] = IdentityMap()
        self._patience: IdentityMap[int] = IdentityMap()
        # The order in which optimizers were made, and those that were made since the last training step ended.
        self._numbers = itertools.count(1)
        self._made: IdentityMap[int] = IdentityMap()
        self._new: IdentitySet = IdentitySet()
        # Optimizers of copies: whose parameters were copied. And both kinds, as they turned out.
        self._copied: IdentityMap[weakref.ref[Any]] = IdentityMap()
        self._outer: IdentitySet = IdentitySet()
        self._inner: IdentitySet = IdentitySet()
        self._made_and_counted = 0
        self.has_stepped = False
        # Complete but for those that were overtaken: see the class's text.
        self.is_waiting = self._has_waited = False
        # How many training steps are complete.
        self.steps = 0
        self._exist = False
        self._questions = 0

    # ------------------------------------------------------------ what there is

    def made(self, optimizer: Any) -> None:
        """``optimizer`` was made just now."""
        self._exist = True
        if optimizer not in self._made:
            self._made[optimizer] = next(self._numbers)
            self._new.add(optimizer)

    def expect(self, updates: Any) -> None:
        """``updates`` are made by hand, in the place of an optimizer, which it looks like."""
        self._members.add(updates)

    def number_of(self, optimizer: Any) -> int:
        """The place of ``optimizer`` in the order in which the program made its optimizers, from 0."""
        return max(0, self._made.get(optimizer, 0) - 1)

    def has_optimizers(self, look_again: bool = False) -> bool:
        """True if the program has made an optimizer. Looked for at the first, second, fourth ... question only, unless
        ``look_again``: the search goes through all objects.
        """
        if self.has_stepped:
            self._exist = True
        if not self._exist:
            self._questions += 1
            if look_again or not self._questions & (self._questions - 1):
                self._exist = any(map(is_hooked, self._all()))
        return self._exist

    def alive(self) -> list[Any]:
        """The optimizers of torch that were made or have stepped, and are still there."""
        optimizers = IdentitySet([*self._made, *self._ever])
        return [known for known in optimizers if isinstance(known, torch.optim.Optimizer)]

    @property
    def is_begun(self) -> bool:
        """True if some optimizer has stepped in this training step."""
        return self._most > 0

    # ------------------------------------------------------------ steps

    def before(self, optimizer: Any) -> None:
        """``optimizer`` is about to step: what it will update is as it was before its first step."""
        if optimizer in self._ever or optimizer in self._copied or not self._made.get(optimizer):
            return
        if len(self._made) > _MANY_ALIVE:
            return
        number = self._made.get(optimizer, 0)
        for other in self._made:
            is_older = self._made.get(other, 0) < number
            if is_older and is_copy(parameters_of(optimizer), parameters_of(other)):
                self._copied[optimizer] = weakref.ref(other)

    def note(self, optimizer: Any) -> None:
        """``optimizer`` has stepped, or would have but for a scaler that skipped the step."""
        if not self.has_stepped:
            self.has_stepped = True
            self._members.update(filter(is_hooked, self._all()))
        elif optimizer not in self._ever and not self._counts:
            # Maybe a different training of the same program: then the models of the earlier one were not called.
            for other in [member for member in self._members if member is not optimizer and not self._is_used(member)]:
                if not (self._is_copy_of(optimizer, other) and (other not in self._ever or other in self._outer)):
                    self._members.discard(other)
        inner = [inner for inner in self._counts if self._is_inner_to(inner, optimizer)]
        if inner:
            self._outer.add(optimizer)
            self._inner.update(inner)
        if optimizer not in self._counts:
            waited = self._behind.pop(optimizer, 0) + self._most
            if 1 < waited <= (_MOST_INNER if inner else MOST_WAITED):
                self._patience[optimizer] = max(waited, self._patience.get(optimizer, 1))
        self._members.add(optimizer)
        self._ever.add(optimizer)
        self._counts[optimizer] = count = self._counts.get(optimizer, 0) + 1
        self._most = max(self._most, count)
        if self._most > 1:
            self._drop_overtaken()

    def _is_copy_of(self, optimizer: Any, other: Any) -> bool:
        copied = self._copied.get(optimizer)
        return copied is not None and copied() is other

    def _is_inner_to(self, inner: Any, outer: Any) -> bool:
        """Whether ``inner``, which has stepped, was made for work between two steps of ``outer``."""
        if inner is outer or self._made.get(inner, 0) <= self._made.get(outer, 0):
            return False
        if self._is_copy_of(inner, outer):
            return True
        if inner not in self._new or outer not in self._ever or outer in self._new:
            return False
        own = {id(parameter) for parameter in parameters_of(inner)}
        return all(id(parameter) not in own for parameter in parameters_of(outer))

    def _waited_for(self, optimizer: Any) -> int:
        """How many steps any other optimizer may make in this training step while ``optimizer`` has made none."""
        known = self._patience.get(optimizer, 1)
        if optimizer not in self._ever:
            if any(self._is_copy_of(other, optimizer) for other in self._counts):
                return _MOST_INNER
            return MOST_WAITED if self._is_used(optimizer) else 1
        if optimizer in self._outer and all(self._is_inner_to(other, optimizer) for other in self._counts):
            return max(MOST_WAITED, 2 * known)
        return known

    def _drop_overtaken(self) -> None:
        dropped = [optimizer for optimizer in self._missing() if self._most > self._waited_for(optimizer)]
        for optimizer in dropped:
            self._members.discard(optimizer)
            self._behind.setdefault(optimizer, 0)
        new = [optimizer for optimizer in dropped if optimizer not in self._named]
        self._named.update(new)
        if new:
            names = ", ".join(sorted({name_of(optimizer) for optimizer in new}))
            log.info(said("optimizer-steps-rarely", names, self._advice))

    def _missing(self) -> list[Any]:
        return [optimizer for optimizer in self._members if optimizer not in self._counts]

    def end_if_complete(self, may_wait: bool = False) -> bool:
        """True if the training step is complete; then the next one begins. ``may_wait``: whoever asks will ask
        :meth:`goes_on_with` before a model is called.
        """
        missing = self._missing()
        if missing and has_more_to_update(missing, self._counts, trained_by):
            return False
        if may_wait and not self._has_waited and self._overdue():
            self.is_waiting = self._has_waited = True
            return False
        self._count_made()
        self.end()
        return True

    def _overdue(self) -> list[Any]:
        """Those that were overtaken, and may be about to step."""
        late = [
            optimizer for optimizer in self._behind if optimizer not in self._counts and optimizer not in self._members
        ]
        late = [optimizer for optimizer in late if self._behind.get(optimizer, 0) + self._most <= MOST_WAITED]
        # A copy that is trained is a training of its own.
        late = [
            optimizer for optimizer in late if not any(self._is_copy_of(other, optimizer) for other in self._counts)
        ]
        return [
            optimizer
            for optimizer in late
            if is_hooked(optimizer) and has_more_to_update([optimizer], self._counts, trained_by)
        ]

    def goes_on_with(self, model: Any) -> bool:
        """Whether a training step that waits goes on with a call of ``model``: it is one of an optimizer that was
        overtaken, and none that has all that another one has updated.
        """
        own = {id(parameter) for parameter in parameters(model)}
        # Until one of them steps, whatever is called.
        self.is_waiting = False
        if any(all(id(p) in own for p in parameters_of(optimizer)) for optimizer in self._counts):
            return False
        return any(id(p) in own for optimizer in self._overdue() for p in parameters_of(optimizer))

    def has_ever_stepped(self, optimizer: Any) -> bool:
        """True if ``optimizer`` has made a step."""
        return optimizer in self._ever

    def _count_made(self) -> None:
        """Say it once if steps are counted of one optimizer after the other that the program has just made."""
        if self.steps and any(optimizer in self._new and optimizer not in self._inner for optimizer in self._counts):
            self._made_and_counted += 1
            if self._made_and_counted == _MANY_MADE and self._advice:
                names = ", ".join(sorted({name_of(optimizer) for optimizer in self._counts}))
                log.info(said("optimizers-made-in-turn", names, self._advice))

    def end(self) -> None:
        """The training step is over, whatever is missing."""
        for optimizer in IdentitySet([*self._missing(), *self._behind.keys()]):
            if optimizer not in self._counts:
                self._behind[optimizer] = self._behind.get(optimizer, 0) + self._most
        for optimizer in self._inner:
            # It will not be missed.
            self._members.discard(optimizer)
            self._behind.pop(optimizer, None)
        self.steps += 1
        self._new.clear()
        self._counts.clear()
        self._most = 0
        self.is_waiting = self._has_waited = False


def is_hooked(optimizer: Any) -> bool:
    """True if torch's hooks see the steps of ``optimizer``; those of one that only passes them on are not seen."""
    return bool(getattr(getattr(type(optimizer), "step", None), "hooked", False))


def name_of(optimizer: Any) -> str:
    """What ``optimizer`` is called in a line."""
    return str(getattr(optimizer, "label", "")) or type(optimizer).__name__


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """The parameters that ``optimizer`` updates."""
    for group in getattr(optimizer, "param_groups", None) or ():
        yield from group["params"]


def trained_by(optimizer: Any) -> frozenset[int]:
    """The parameters that ``optimizer`` updates and that are trained, by identity."""
    with private.without_functions():
        return frozenset(id(parameter) for parameter in parameters_of(optimizer) if parameter.requires_grad)


def is_copy(copies: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether at least half of ``copies`` have the shapes and values of ``others`` in their order, in memory of
    their own, and are more than constants.
    """
    own, theirs = list(copies), list(others)
    known = {id(parameter) for parameter in theirs}
    if not own or any(id(parameter) in known for parameter in own):
        return False
    shapes = [(a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device) for a, b in zip(own, theirs, strict=False)]
    if 2 * sum(shapes) < len(own):
        return False
    with torch.no_grad():
        equal = [
            a
            for a, b, is_like in zip(own, theirs, shapes, strict=False)
            if is_like and a.data_ptr() != b.data_ptr() and torch.equal(a, b)
        ]
        return 2 * len(equal) >= len(own) and any(bool((a != a.flatten()[0]).any()) for a in equal if a.numel() > 1)


def all_optimizers() -> Iterator[Any]:
    """Every optimizer that is alive in this process."""
    for thing in gc.get_objects():
        # Not isinstance, which would ask objects of all kinds for their __class__.
        if issubclass(type(thing), torch.optim.Optimizer):
            yield thing
