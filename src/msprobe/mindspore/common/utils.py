"""``from msprobe.mindspore.common.utils import seed_all, MsprobeStep, MsprobeInitStep``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe import mindspore

if TYPE_CHECKING:
    from msprobe.capture.mindspore.callbacks import MsprobeInitStep, MsprobeStep
    from msprobe.seeding.mindspore import seed_all

__all__ = ["MsprobeInitStep", "MsprobeStep", "seed_all"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(mindspore, name)
