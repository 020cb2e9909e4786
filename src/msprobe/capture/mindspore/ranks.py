"""The rank of this process, and how many there are."""

from __future__ import annotations

from msprobe.capture.ranks import Ranks


def _communication() -> tuple[int, int] | None:
    try:
        from mindspore.communication._comm_helper import GlobalComm
    except ImportError:
        return None
    if not getattr(GlobalComm, "INITED", False):
        return None
    from mindspore import communication

    return int(communication.get_rank()), int(communication.get_group_size())


RANKS = Ranks(_communication, "RANK_ID", ("RANK_SIZE", "MS_WORKER_NUM"))
