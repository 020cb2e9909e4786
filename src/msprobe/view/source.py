"""What the page asks, whatever it is that is shown."""

from __future__ import annotations

from typing import Protocol

from msprobe.errors import MsprobeError
from msprobe.view.protocol import LinesAnswer, MatchesAnswer, NodeAnswer, Overview, Picture, PlaceAnswer, RanksAnswer


class NoSuchThingError(MsprobeError):
    """A place, a row or a tensor was asked for that there is not."""


class PageSource(Protocol):
    """Answers the questions of the page (``web/protocol.md``); every method may be called by several threads at once.

    All raise MsprobeError: :class:`NoSuchThingError` for what there is not, and
    :class:`msprobe.view.unchanged.ChangedError` where a file is no longer what it was.
    """

    def prepare(self) -> None:
        """Compute what the page asks first."""

    def overview(self) -> Overview:
        """What is shown, its places, and the verdict."""

    def place(self, index: int) -> PlaceAnswer:
        """All rows of a place, as columns."""

    def node(self, index: int, row: int) -> NodeAnswer:
        """One row in full."""

    def picture(self, index: int, row: int, slot: str) -> Picture:
        """How the values of a tensor differ."""

    def ranks(self, step: int | None) -> RanksAnswer:
        """Layers beside ranks."""

    def lines(self, index: int) -> LinesAnswer:
        """The source lines of all rows of a place."""

    def matches(self, index: int) -> MatchesAnswer:
        """The pairs made by hand."""

    def match(self, index: int, candidate: str, reference: str | None, with_children: bool) -> MatchesAnswer:
        """Pair two rows by hand, or undo that (``reference`` None)."""

    def version(self, index: int) -> int:
        """Grows when what :meth:`place` answers changes."""

    def wait(self) -> None:
        """Wait until all that is computed beside is there."""

    def close(self) -> None:
        """Let go of all files."""
