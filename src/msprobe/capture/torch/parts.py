"""Which parts a recorder consists of, besides calls and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.capture.torch.recorder import Part, TorchRecorder


def make_parts(recorder: TorchRecorder) -> list[Part]:
    """The parts that the settings of this recorder call for."""
    return []
