"""Who is notified of what: decided once for each name when it is first met in a step with other listeners than
before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from msprobe.capture.events import Direction, EventKind, path_of
from msprobe.capture.listeners import Changer, Listener, Observer, Wants

# Kinds of events that belong to a module, whose path decides.
OF_MODULES: frozenset[EventKind] = frozenset(("pass", "parameter_gradient", "accumulated_gradient"))


class Listening:
    """A listener, and whether it is (still) to be notified of anything."""

    __slots__ = (
        "behind",
        "careful",
        "changer",
        "dropped",
        "is_checked",
        "listener",
        "met_module",
        "met_name",
        "wants",
        "was_on",
    )

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.wants: Wants = listener.wants
        self.dropped = False
        self.careful = isinstance(listener, Observer) and bool(listener.is_careful)
        self.changer = listener if isinstance(listener, Changer) else None
        self.behind = self.changer is not None and bool(self.changer.behind_dump)
        # Whether a module, or a name, was met that it wants; and whether it was said where there was none.
        self.met_module = self.met_name = self.was_on = self.is_checked = False

    @property
    def name(self) -> str:
        """The listener in messages."""
        return type(self.listener).__name__


class Route:
    """How one name reaches one listener: in which directions, for which numbers (None: all), inside which modules."""

    __slots__ = ("backward", "forward", "listening", "modules", "numbers")

    def __init__(
        self,
        listening: Listening,
        numbers: Collection[int] | None,
        directions: Collection[Direction],
        modules: Sequence[str],
    ) -> None:
        self.listening = listening
        self.numbers = numbers
        self.forward = "forward" in directions
        self.backward = "backward" in directions
        self.modules = modules

    def is_open(self, number: int, paths: Sequence[str]) -> bool:
        """True for a call of this number that is made inside of passes of modules of these paths."""
        if self.listening.dropped or (self.numbers is not None and number not in self.numbers):
            return False
        return not self.modules or any(matches(self.modules, path) for path in paths)


def routes_around_dump(routes: Sequence[Route]) -> tuple[list[Route], list[Route]]:
    """Those to changers that come before the dump, which has what follows, and all others."""
    early = [route for route in routes if route.listening.changer is not None and not route.listening.behind]
    return early, [route for route in routes if route not in early]


def routes_of(active: Sequence[Listening], kind: EventKind, key: str) -> tuple[Route, ...]:
    """How what goes by ``key`` reaches the listeners, those that change something first."""
    routes: list[Route] = []
    for listening in sorted(active, key=lambda route: route.changer is None):
        wants = listening.wants
        if kind not in wants.kinds:
            continue
        numbers = numbers_of(tuple(wants.names), key)
        if numbers is not None and not numbers:
            continue
        if kind in OF_MODULES:
            if wants.modules and not matches(wants.modules, path_of(key)):
                continue
            modules: Sequence[str] = ()
        else:
            modules = wants.modules if kind == "call" else ()
        routes.append(Route(listening, numbers, wants.directions, modules))
    return tuple(routes)


@lru_cache(maxsize=10_000)
def numbers_of(names: tuple[str, ...], key: str) -> frozenset[int] | None:
    """Which calls of ``key`` the patterns ask for: None for all, no number if none of them matches."""
    if not names:
        return None
    numbers: set[int] = set()
    for pattern in names:
        if fnmatchcase(key, pattern):
            return None
        lead, _, number = pattern.rpartition(".")
        if number.isdecimal() and fnmatchcase(key, lead):
            numbers.add(int(number))
    return frozenset(numbers)


def matches(patterns: Sequence[str], text: str) -> bool:
    """True if one of the patterns does."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)
