"""Which steps of which optimizers make one step of the training, where several update a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from msprobe.capture.identity import IdentitySet


class Turns:
    """Notified of each step of an optimizer that updates a watched parameter.

    A step is complete when all of them have stepped, or when one steps again: a critic that is trained five times for
    each step of its generator makes five steps. One that was not there when another stepped again is waited for no
    more until it steps.

    ``find``: the optimizers that exist and update a watched parameter, asked when one steps for the first time.
    ``updates``: the parameters of one, by id, that are trained.
    """

    def __init__(self, find: Callable[[], Iterable[Any]], updates: Callable[[Any], Collection[int]]) -> None:
        self._find = find
        self._updates = updates
        self._members: IdentitySet = IdentitySet()
        self._known: IdentitySet = IdentitySet()
        self._stepped: IdentitySet = IdentitySet()

    def is_next(self, optimizer: Any) -> bool:
        """True if ``optimizer``, which is about to step, begins the next step: it has stepped in this one."""
        return optimizer in self._stepped

    @property
    def has_begun(self) -> bool:
        """True if some have stepped in this step, and others not yet."""
        return bool(self._stepped)

    def begin_next(self) -> None:
        """The step is over although some have not stepped: they are not waited for any more."""
        for member in [member for member in self._members if member not in self._stepped]:
            self._members.discard(member)
        self._stepped.clear()

    def note(self, optimizer: Any) -> bool:
        """``optimizer`` has stepped. True if the step is complete; then the next one begins."""
        if optimizer not in self._known:
            self._known.add(optimizer)
            new = [optimizer for optimizer in self._find() if optimizer not in self._known]
            self._known.update(new)
            self._members.update(new)
        self._members.add(optimizer)
        self._stepped.add(optimizer)
        missing = [member for member in self._members if member not in self._stepped]
        if missing:
            updated = {updated_by for stepped in self._stepped for updated_by in self._updates(stepped)}
            if any(not updated.issuperset(self._updates(member)) for member in missing):
                return False
        self._stepped.clear()
        return True
