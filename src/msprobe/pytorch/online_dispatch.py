"""``from msprobe.pytorch.online_dispatch import PtdbgDispatch``."""

from __future__ import annotations

from msprobe.precheck.torch.dispatch import DispatchException, PtdbgDispatch

__all__ = ["DispatchException", "PtdbgDispatch"]
