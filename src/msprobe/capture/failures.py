"""Task exception_dump: of all calls only those that raise are kept, with the values that they were given."""

from __future__ import annotations

from typing import Any

from msprobe import log
from msprobe.capture.overflow import Kept, leaves_of
from msprobe.capture.session import Session


class FailureCheck:
    """Decides which records are kept, and saves their tensors (in place of the overflow check)."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def begin_step(self) -> None:
        """A new step: nothing is remembered of the last one."""

    def __call__(self, name: str, tree: dict[str, Any]) -> bool:
        """True if the record tells of an error."""
        if self.session.ended or "error" not in tree:
            return False
        for leaf in leaves_of(tree):
            if type(leaf) is Kept and leaf.payload is not None:
                self.session.files().save(str(leaf.info.data_name), leaf.payload)
        log.warning(f"{name} failed, {self.session.place()}; what it was given is saved.")
        return True
