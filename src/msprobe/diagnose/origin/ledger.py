"""The suspects of a step: what was said, under which mark, and what is said only if nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from msprobe.diagnose.differences.records import Difference
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.tolerance.judge import Judged


@dataclass(frozen=True)
class Suspect:
    """A finding with what it is ordered by.

    ``place``: index in the timeline; ``clear``: it is beyond what rounding may do, or a fact that needs no measure;
    ``matters``: it is no harmless difference, even if its effect does not show in the steps that were recorded.
    ``shows_later``: if not empty, whether it is harmless is seen in the next step alone, and what it says of one step
    it says of all: suspects of the same words are one.
    ``begins``: nothing differed before, in this step and those before it, so that there is no rounding that could have
    grown. ``decisive``: so it is, and no rounding explains it; it counts if anything comes of it. ``judged``: the pair
    it was said of, ``difference``: the tensor that shows the difference.
    """

    finding: Finding
    place: float
    clear: bool
    matters: bool = False
    shows_later: str = ""
    begins: bool = False
    decisive: bool = False
    judged: Judged | None = None
    difference: Difference | None = None
    #: It is said of a collective that the other ranks may explain.
    waits: bool = False

    def without_pair(self) -> Suspect:
        """What is kept of it when the records of its step are let go."""
        return replace(self, judged=None, difference=None)


class Ledger:
    """The only writer of suspects. A *mark* says what was said (of which call, which weight): it is said once."""

    def __init__(self) -> None:
        self._suspects: list[Suspect] = []
        self._doubts: list[Suspect] = []
        self._said: dict[Hashable, Suspect | None] = {}

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """All suspects, in the order in which they were found."""
        return tuple(self._suspects)

    @property
    def doubts(self) -> tuple[Suspect, ...]:
        """Suspects if nothing else is: the inputs explain them as well."""
        return tuple(self._doubts)

    def __len__(self) -> int:
        return len(self._suspects)

    def knows(self, mark: Hashable) -> bool:
        """True if something was said under this mark, or is not to be said."""
        return mark in self._said

    def close(self, mark: Hashable) -> None:
        """Let nothing be said under this mark any more."""
        self._said.setdefault(mark, None)

    def say(self, mark: Hashable, suspect: Suspect) -> None:
        """Add a suspect under a mark, unless that was used."""
        if mark not in self._said:
            self._said[mark] = suspect
            self._suspects.append(suspect)

    def add(self, suspect: Suspect) -> None:
        """Add a suspect that is found once in a step."""
        self._suspects.append(suspect)

    def take_back(self, mark: Hashable) -> None:
        """Forget what was said under this mark: more is known now."""
        said = self._said.pop(mark, None)
        self._suspects = [suspect for suspect in self._suspects if suspect is not said]

    def doubt(self, begun: int) -> None:
        """Keep what was said since there were so many suspects only if nothing else explains what comes out."""
        self._doubts += [replace(suspect, clear=True) for suspect in self._suspects[begun:]]
        del self._suspects[begun:]

    def revise(self, change: Callable[[Suspect], Suspect | None]) -> None:
        """Replace suspects by what is known of them at the end; None: nothing is to be said."""
        self._suspects = [known for suspect in self._suspects if (known := change(suspect)) is not None]

    def in_order(self) -> list[Suspect]:
        """All suspects, in the order in which things happened."""
        return sorted(self._suspects, key=lambda suspect: suspect.place)
