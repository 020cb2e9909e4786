"""Listeners whose patterns match nothing: a mistyped name is reported once, or its listener would be silent for
ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msprobe import log
from msprobe.capture.routes import OF_MODULES, Listening
from msprobe.foreign.nearest import near_words
from msprobe.messages import said

# How the names of modules begin, and those of what a healthy training may never do.
_MODULES = ("Module.", "Cell.")
_RARE = ("Distributed.", "Optimizer.")
_MOST_KNOWN = 5000
_MOST_SHOWN = 3


class UnmetWants:
    """Says of each listener once that no module, or nothing that happened, is called as it asks.

    Modules are known at the end of the first step in which a listener is on; what a program calls is known at the end.
    """

    def __init__(self) -> None:
        # Key in events -> path, of the modules of the models.
        self._modules: dict[str, str] = {}

    def met_module(self, key: str, path: str) -> None:
        """There is a module of this name."""
        if len(self._modules) < _MOST_KNOWN:
            self._modules[key] = path

    def end_step(self, on: Iterable[Listening]) -> None:
        """A step is over in which these were on: have their patterns met a module?"""
        for listening in on:
            listening.was_on = True
            if listening.is_checked or not self._modules:
                continue
            listening.is_checked = True
            wants = listening.wants
            if not OF_MODULES.union(("call",)).intersection(wants.kinds):
                continue
            if wants.modules and not listening.met_module:
                self._warn(listening, "modules", wants.modules, self._modules.values())
            elif wants.names and not listening.met_name and all(name.startswith(_MODULES) for name in wants.names):
                self._warn(listening, "names", wants.names, self._modules)

    def end_listening(self, listening: Iterable[Listening]) -> None:
        """Nothing more will happen: was anything called as they ask?"""
        for listener in listening:
            names = listener.wants.names
            is_reported = listener.is_checked and (
                bool(listener.wants.modules and not listener.met_module) or _are_of_modules(names)
            )
            reports_by_itself = listener.listener.names_met is not None
            if (
                not listener.was_on
                or listener.dropped
                or is_reported
                or not names
                or listener.met_name
                or reports_by_itself
            ):
                continue
            listener.was_on = False
            if "call" in listener.wants.kinds and not all(name.startswith(_RARE) for name in names):
                log.warning(said("listener-names-unmet", listener.name, ", ".join(names)))

    def _warn(self, listening: Listening, field: str, patterns: Sequence[str], known: Iterable[str]) -> None:
        there = list(dict.fromkeys(known))
        near = near_words(patterns[0], there, 1)
        hint = said("near-name", near[0]) if near else said("listener-names-there", ", ".join(there[:_MOST_SHOWN]))
        log.warning(said("listener-modules-unmet", listening.name, field, ", ".join(patterns), hint))


def _are_of_modules(names: Sequence[str]) -> bool:
    return bool(names) and all(name.startswith(_MODULES) for name in names)
