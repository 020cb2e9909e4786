"""Which entries are wanted: the interval of ``scope`` and the items of ``list``, over one order of execution."""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe.config.scope_patterns import ListPattern
from msprobe.config.settings import Settings
from msprobe.messages import said


@dataclass
class EntryFilter:
    """Decides for each entry, in the order of execution, whether it is recorded.

    An API interval opens when its first name comes by and closes behind its last name. A module interval
    opens when its first module is entered and closes when its last one is left. At level mix a ``list`` item
    that names a module also takes everything that runs inside that module. ``scope`` and ``list`` together:
    both must hold.
    """

    scope: tuple[str, ...]
    patterns: tuple[ListPattern, ...]
    whole_modules: bool
    _open: bool = False
    _closed: bool = False
    _inside: int = 0
    seen_first: bool = False
    seen_last: bool = False
    matched: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, settings: Settings) -> EntryFilter | None:
        """The filter that the settings ask for; None if everything is wanted."""
        if not settings.scope and not settings.api_list:
            return None
        return cls(settings.scope, settings.list_patterns(), settings.level == "mix")

    def wants_call(self, name: str) -> bool:
        """True if the API entry ``name``, whose turn it is now, is recorded."""
        return self._in_scope(name) and self._in_list(name)

    def may_want(self, name: str) -> bool:
        """False if it is certain already that the API entry ``name``, whose turn is still to come in this step, will
        not be recorded and ends no interval.
        """
        if name in self.scope:
            return True
        if self.scope and self._closed:
            return False
        return not self.patterns or self.whole_modules or any(p.matches(name) for p in self.patterns)

    def enter_module(self, name: str) -> bool:
        """A module pass begins (forward or backward): True if its entry is recorded. Pair with
        :meth:`leave_module`.
        """
        inside = self._in_scope(name, leaving=False)
        matches = self._matches(name)
        if matches and self.whole_modules:
            self._inside += 1
        return inside and (matches or not self.patterns or self._inside > 0)

    def leave_module(self, name: str) -> None:
        """The module pass ``name`` ends."""
        if self.whole_modules and self._inside > 0 and self._matches(name):
            self._inside -= 1
        if self.scope and name == self.scope[1] and self._open:
            self._close()

    def unmatched(self) -> list[str]:
        """What the filters asked for and never met, in words."""
        missing: list[str] = [said("filter-list-item", p.text) for p in self.patterns if p.text not in self.matched]
        if self.scope and not self.seen_first:
            missing.append(said("filter-scope-start", self.scope[0]))
        elif self.scope and not self.seen_last:
            missing.append(said("filter-scope-end", self.scope[1]))
        return missing

    def begin_step(self) -> None:
        """A new step: its interval is still to be opened."""
        self._open = self._closed = False
        self._inside = 0

    def _close(self) -> None:
        self._open = False
        self._closed = True
        self.seen_last = True

    def _in_scope(self, name: str, leaving: bool = True) -> bool:
        if not self.scope:
            return True
        first, last = self.scope
        if not self._open and not self._closed and name == first:
            self._open = self.seen_first = True
        inside = self._open
        # A module interval ends when the module is left; an API is one moment.
        if inside and leaving and name == last:
            self._close()
        return inside

    def _in_list(self, name: str) -> bool:
        return not self.patterns or self._inside > 0 or self._matches(name)

    def _matches(self, name: str) -> bool:
        hit = False
        for pattern in self.patterns:
            if pattern.matches(name):
                self.matched.add(pattern.text)
                hit = True
        return hit
