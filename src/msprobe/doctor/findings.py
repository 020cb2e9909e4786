"""What a check of the installation says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DoctorStatus = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class DoctorFinding:
    """One statement about the installation.

    ``code``: a stable name for programs. ``status``: ``note`` where something optional is not there, ``warning`` where
    something works less well, ``error`` where something does not work. ``remedy``: commands, or a sentence.
    """

    code: str
    status: DoctorStatus
    text: str
    remedy: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For programs: all fields by their names."""
        return {
            "code": self.code,
            "status": self.status,
            "text": self.text,
            "remedy": list(self.remedy),
            "data": dict(self.data),
        }


def is_sound(findings: Sequence[DoctorFinding]) -> bool:
    """True if nothing is an error."""
    return not any(finding.status == "error" for finding in findings)
