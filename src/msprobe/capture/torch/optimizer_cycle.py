"""Which optimizer steps make one training step, of a program that does not say where its steps end."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from msprobe import log
from msprobe.capture.identity import IdentityMap, IdentitySet

# An optimizer that steps once for so many steps of another one is waited for (a critic trained five times for each
# step of its generator); one that takes longer is trained in a phase of its own.
_MOST_WAITED = 10


class OptimizerCycle:
    """Told of each optimizer step; tells when the training step is complete.

    A training step is complete when every optimizer has stepped that still has something to update. Not waited for:

    - one whose ``step`` torch does not hook: it wraps another one (AcceleratedOptimizer, LightningOptimizer), which
      is seen itself;
    - one of whose parameters none is trained, or all were updated in this step by others;
    - one that another has overtaken: the other's second step tells that this one does not step each time. If it was
      overtaken before and stepped in the end, it is waited for as long as then. It takes part again when it steps.

    ``all_optimizers`` gives the optimizers that exist; ``is_used`` tells whether the model of one was called in this
    step.
    """

    def __init__(
        self, all_optimizers: Callable[[], Iterable[Any]], is_used: Callable[[Any], bool] = lambda optimizer: True
    ) -> None:
        self._all = all_optimizers
        self._is_used = is_used
        self._members: IdentitySet = IdentitySet()
        self._ever: IdentitySet = IdentitySet()
        self._told: IdentitySet = IdentitySet()
        # How often each has stepped in this training step, and the most of these.
        self._counts: IdentityMap[int] = IdentityMap()
        self._most = 0
        # How many steps others made in earlier training steps since this one stepped last, and how many it is
        # waited for.
        self._behind: IdentityMap[int] = IdentityMap()
        self._patience: IdentityMap[int] = IdentityMap()
        self.has_stepped = False
        self._exist = False
        self._questions = 0

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

    def has_noted(self, optimizer: Any) -> bool:
        """True if ``optimizer`` has stepped in this training step."""
        return optimizer in self._counts

    def note(self, optimizer: Any) -> None:
        """``optimizer`` has stepped, or would have but for a scaler that skipped the step."""
        if not self.has_stepped:
            self.has_stepped = True
            self._members.update(filter(is_hooked, self._all()))
        elif optimizer not in self._ever and not self._counts:
            # Maybe another training of the same program: then the models of the earlier one were not called.
            for other in [one for one in self._members if one is not optimizer and not self._is_used(one)]:
                self._members.discard(other)
        if optimizer not in self._counts:
            waited = self._behind.pop(optimizer, 0) + self._most
            if 1 < waited <= _MOST_WAITED:
                self._patience[optimizer] = max(waited, self._patience.get(optimizer, 1))
        self._members.add(optimizer)
        self._ever.add(optimizer)
        self._counts[optimizer] = count = self._counts.get(optimizer, 0) + 1
        self._most = max(self._most, count)
        if self._most > 1:
            self._drop_overtaken()

    def _drop_overtaken(self) -> None:
        dropped = [one for one in self._missing() if self._most > self._patience.get(one, 1)]
        for one in dropped:
            self._members.discard(one)
            self._behind.setdefault(one, 0)
        new = [one for one in dropped if one not in self._told]
        self._told.update(new)
        if new:
            names = ", ".join(sorted(type(one).__name__ for one in new))
            log.info(f"Optimizers that do not step each time do not keep a step from ending: {names}.")

    def _missing(self) -> list[Any]:
        return [one for one in self._members if one not in self._counts]

    def end_if_complete(self) -> bool:
        """True if the training step is complete; then the next one begins."""
        missing = self._missing()
        if missing:
            updated = {id(parameter) for one in self._counts for parameter in parameters_of(one)}
            if any(p.requires_grad and id(p) not in updated for one in missing for p in parameters_of(one)):
                return False
        self.end()
        return True

    def end(self) -> None:
        """The training step is over, whatever is missing."""
        for one in IdentitySet([*self._missing(), *self._behind.keys()]):
            if one not in self._counts:
                self._behind[one] = self._behind.get(one, 0) + self._most
        self._counts.clear()
        self._most = 0


def is_hooked(optimizer: Any) -> bool:
    """True if torch's hooks see the steps of ``optimizer``; those of one that only passes them on are not seen."""
    return bool(getattr(getattr(type(optimizer), "step", None), "hooked", False))


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """The parameters that ``optimizer`` updates."""
    for group in getattr(optimizer, "param_groups", None) or ():
        yield from group["params"]


def all_optimizers() -> Iterator[Any]:
    """Every optimizer that is alive in this process."""
    for thing in gc.get_objects():
        # Not isinstance, which would ask objects of all kinds for their __class__.
        if issubclass(type(thing), torch.optim.Optimizer):
            yield thing
