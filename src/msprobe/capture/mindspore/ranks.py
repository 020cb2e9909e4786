"""The rank of this process, and how many there are."""

from __future__ import annotations

import os
from typing import Any


def _communication() -> Any:
    """The state of MindSpore's communication; None while it is not initialised."""
    try:
        from mindspore.communication._comm_helper import GlobalComm
    except ImportError:
        return None
    return GlobalComm if getattr(GlobalComm, "INITED", False) else None


def current_rank() -> int | None:
    """The rank of this process: of MindSpore's communication, else of the launcher; None for a single process."""
    if _communication() is not None:
        from mindspore import communication

        return int(communication.get_rank())
    text = os.environ.get("RANK_ID", "")
    return int(text) if text.isdecimal() and world_size() > 1 else None


def world_size() -> int:
    """How many ranks there are, as far as this process can know."""
    if _communication() is not None:
        from mindspore import communication

        return int(communication.get_group_size())
    for name in ("RANK_SIZE", "MS_WORKER_NUM"):
        text = os.environ.get(name, "")
        if text.isdecimal():
            return max(int(text), 1)
    return 1
