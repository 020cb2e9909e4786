"""Records of communication between ranks, in the same form for all frameworks.

``output`` holds what is final when the collective is over. One that is under way is recorded with
``"completed": false`` and nothing for outputs, and again under the same name when it is done: what hangs is therefore
in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msprobe.capture.units import Unit


class Calls(Protocol):
    """What collectives are written with: the writer of the records of calls of an adapter."""

    output: bool
    overflow: bool

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any], number: int | None = None) -> Any:
        """See :class:`msprobe.capture.targets.Calls`."""

    def fail_call(self, unit: Any, error: BaseException) -> None:
        """See :class:`msprobe.capture.targets.Calls`."""

    def tree_of(self, unit: Any) -> dict[str, Any]:
        """See :class:`msprobe.capture.units.Writer`, as of those below."""

    def outputs_of(self, entry: str, result: Any) -> list[Any]:
        """The results as the record has them."""

    def finish(self, unit: Any, tree: dict[str, Any]) -> None:
        """The end of a record."""

    def watch(self, unit: Any, result: Any) -> None:
        """See to it that the backward record is written."""


class CollectiveRecords:
    """Writes the records of collectives; see :class:`msprobe.capture.targets.Collectives`."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def begin_collective(
        self, key: str, args: Sequence[Any], kwargs: Mapping[str, Any], number: int | None = None
    ) -> Unit | None:
        """``number``: the one it has already."""
        begun: Unit | None = self.calls.begin_call(key, args, dict(kwargs), number)
        return begun

    def leave_under_way(self, begun: Unit, outputs: list[Any], facts: Mapping[str, Any], result: Any = None) -> None:
        """An overflow check waits for its results."""
        if begun.recorded and not self.calls.overflow:
            self._put(begun, outputs, facts)
        self._watch(begun, result)

    def end_collective(self, begun: Unit, results: Any, facts: Mapping[str, Any], result: Any = None) -> None:
        if begun.recorded:
            self._put(begun, self.calls.outputs_of(begun.entry, results) if self.calls.output else [], facts)
        self._watch(begun, result)

    def fail_collective(self, begun: Unit, error: BaseException) -> None:
        self.calls.fail_call(begun, error)

    def _put(self, begun: Unit, outputs: list[Any], facts: Mapping[str, Any]) -> None:
        calls = self.calls
        tree = calls.tree_of(begun)
        tree["is_recompute"] = begun.stack.recompute
        if calls.output:
            tree["output"] = outputs
        tree.update(facts)
        calls.finish(begun, tree)

    def _watch(self, begun: Unit, result: Any) -> None:
        if result is not None and begun.watched:
            self.calls.watch(begun, result)
