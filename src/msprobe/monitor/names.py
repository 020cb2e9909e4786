"""Names in a monitor's files, and what of a model its targets name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# The first that is found anywhere in a name; what is kept begins there.
_KEPT = (
    re.compile(r"layers?\.(.*)"),
    re.compile(r"embeddings?\.(.*)"),
    re.compile(r"(final.*)"),
    re.compile(r"(output.*)"),
    re.compile(r"(norm.*)"),
)


def squash(name: str) -> str:
    """The short form of a name of a module or parameter, as monitors of 8.1.1 have it: what comes behind ``layers.``,
    behind ``embedding.``, or from ``final``, ``output`` or ``norm`` on; the name itself where none of these is in it.
    """
    for pattern in _KEPT:
        match = pattern.search(name)
        if match:
            return match.group(1)
    return name


def short_names(names: Sequence[str]) -> list[str]:
    """The short form of each name, and the whole name where two would have the same."""
    short = [squash(name) for name in names]
    times: dict[str, int] = {}
    for short_name in short:
        times[short_name] = times.get(short_name, 0) + 1
    return [short_name if times[short_name] == 1 else name for short_name, name in zip(short, names, strict=True)]


def exactly(path: str) -> str:
    """A pattern of names that matches this path and nothing else."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


class Targets:
    """What the field ``targets`` names; nothing in it names everything."""

    def __init__(self, targets: Iterable[str]) -> None:
        self.names = tuple(targets)
        self._unmatched = dict.fromkeys(self.names)
        # Targets that end within a word of every name that they begin -> those names.
        self._beginnings: dict[str, list[str]] = {target: [] for target in self.names}

    def has_parameter(self, stage: int, name: str, short: str) -> bool:
        """True if the name, that of its stage before it, or the short one begins with a target."""
        if not self.names:
            return True
        any_found = False
        for target in self.names:
            forms = [form for form in _forms(stage, name, short) if form.startswith(target)]
            if not forms:
                continue
            any_found = True
            self._unmatched.pop(target, None)
            if any(_is_whole(target, form) for form in forms):
                self._beginnings.pop(target, None)
            elif target in self._beginnings:
                self._beginnings[target].append(name)
        return any_found

    def has_module(self, stage: int, name: str, short: str) -> bool:
        """True if a target is exactly this module."""
        targets = [target for target in self.names if target in _forms(stage, name, short)]
        for target in targets:
            self._unmatched.pop(target, None)
            self._beginnings.pop(target, None)
        return bool(targets)

    def unmatched(self) -> list[str]:
        """Targets that have named nothing so far."""
        return list(self._unmatched)

    def beginnings(self) -> dict[str, list[str]]:
        """Targets that are no whole name, as ``moe.gat``: only the beginning of these names of parameters."""
        return {target: names for target, names in self._beginnings.items() if names}


def _forms(stage: int, name: str, short: str) -> tuple[str, ...]:
    return name, f"{stage}:{name}", short, f"{stage}:{short}"


def _is_whole(target: str, form: str) -> bool:
    """True if the target ends where a word of the name does."""
    return target == form or not target or target[-1] in ".:" or form[len(target)] == "."
