"""Tasks that keep few records: those with an infinity or NaN in them (the overflow check), or of calls that raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msprobe import log
from msprobe.capture.late_records import leaves_of
from msprobe.capture.session import Session
from msprobe.messages import said

_CHECKED_PARTS = (
    "input_args",
    "input_kwargs",
    "input",
    "output",
    "parameters",
    "input_grads",
    "kwargs_grads",
)


class KeptTensor:
    """A tensor whose values are held until it is known whether they are wanted."""

    __slots__ = ("info", "payload")

    def __init__(self, info: Any, payload: Any) -> None:
        self.info = info
        #: What the writer of tensor files takes; None if no values are kept.
        self.payload = payload

    @property
    def text(self) -> bytes:
        """What the record says of it; of a tensor on a device, by now."""
        return bytes(self.info.text)

    @property
    def late(self) -> bool:
        """Whether it is not known yet."""
        return bool(getattr(self.info, "late", False))


def _all_of_it(name: str, part: str, value: Any) -> Any:
    return value


class OverflowCheck:
    """Decides which records are kept, saves their tensors, and ends the recording after ``overflow_nums`` of them.

    ``conclusive(name, part, value)`` gives what of one part of a record says something if it holds an infinity or NaN.
    """

    def __init__(self, session: Session, conclusive: Callable[[str, str, Any], Any] = _all_of_it) -> None:
        self.session = session
        self.conclusive = conclusive
        self.hits = 0
        self._reported: set[str] = set()

    def begin_step(self) -> None:
        """A new step has entries of its own."""
        self._reported.clear()

    def __call__(self, name: str, tree: dict[str, Any]) -> bool:
        """True if the record has an infinity or NaN in it that says something; then its tensors are saved."""
        session = self.session
        if session.ended or not self._is_hit(name, tree):
            return False
        for leaf in leaves_of(tree):
            if type(leaf) is KeptTensor and leaf.payload is not None:
                session.files().save(str(leaf.info.data_name), leaf.payload)
        if name in self._reported:
            # Gradients of a module's parameters come one by one, and their record is written anew.
            return True
        self._reported.add(name)
        log.warning(said("overflow-detected", name, session.place()))
        self.hits += 1
        limit = session.settings.overflow_nums
        if limit != -1 and self.hits >= limit:
            count = said("one-overflow") if self.hits == 1 else said("several-overflows", self.hits)
            log.info(said("overflows-recorded", count))
            # This record is still written; the end comes behind it.
            session.end_after_record = True
        return True

    def _is_hit(self, name: str, tree: dict[str, Any]) -> bool:
        return any(
            _is_nonfinite(leaf)
            for part in _CHECKED_PARTS
            if part in tree
            for leaf in leaves_of(self.conclusive(name, part, tree[part]))
        )


def _is_nonfinite(leaf: Any) -> bool:
    info = leaf.info if type(leaf) is KeptTensor else leaf
    return bool(getattr(info, "nonfinite", False))


class FailureCheck:
    """Keeps of all calls those that raise, with the values that they were given (in place of the overflow check)."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def begin_step(self) -> None:
        """A new step: nothing is remembered of the last one."""

    def __call__(self, name: str, tree: dict[str, Any]) -> bool:
        """True if the record reports an error."""
        if self.session.ended or "error" not in tree:
            return False
        for leaf in leaves_of(tree):
            if type(leaf) is KeptTensor and leaf.payload is not None:
                self.session.files().save(str(leaf.info.data_name), leaf.payload)
        log.warning(said("call-failed-and-saved", name, self.session.place()))
        return True
