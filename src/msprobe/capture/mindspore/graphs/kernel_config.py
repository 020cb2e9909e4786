"""What MindSpore is given when it dumps kernels itself: the contents of the file that ``MINDSPORE_DUMP_CONFIG`` names.

The keys are those of MindSpore's own documentation of its dump. What was not asked for is left out, so that MindSpore's
own choice counts. For GE, which compiles whole graphs on Ascend (``jit_level`` O2), the file is another one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from msprobe.config.settings import KernelKind, Settings

NET_NAME = "Net"
# What MindSpore dumps as a rule.
USUAL_KINDS: tuple[KernelKind, ...] = ("max", "min", "l2norm")
_SUMMARIES: dict[str, tuple[KernelKind, ...]] = {"statistics": (), "md5": (*USUAL_KINDS, "md5")}
# MindSpore's words, where they are others than ours.
_WORDS = {"mean": "avg"}
# Which overflows are looked for.
_CHECKS = {"aicore": 1, "atomic": 2, "all": 3}
_EXCEPTIONS = 4


class KernelDump(NamedTuple):
    """A file for MindSpore: its name, and what it says."""

    name: str
    content: dict[str, Any]


def by_kernel(settings: Settings, as_tensors: bool = False) -> KernelDump:
    """For graphs that run kernel by kernel (``jit_level`` O0 and O1). ``as_tensors``: whole tensors are dumped,
    whatever the task.
    """
    statistics = settings.task == "statistics" and not as_tensors
    common = _common(settings, "statistic" if statistics else "tensor")
    more: dict[str, Any] = {"enable": not settings.async_dump, "trans_flag": True}
    if statistics:
        common.update(_categories(settings))
        more["stat_calc_mode"] = settings.device
        more["device_stat_precision_mode"] = settings.device_precision
    return KernelDump("kernel_kbyk_dump.json", {"common_dump_settings": common, "e2e_dump_settings": more})


def by_graph(settings: Settings) -> KernelDump:
    """For graphs that run as a whole (``jit_level`` O2 on Ascend)."""
    if settings.task == "overflow_check":
        common = _common(settings, "full")
        common.update(iteration="all", op_debug_mode=_CHECKS[settings.check_mode])
        return KernelDump("kernel_graph_overflow_check.json", {"common_dump_settings": common})
    if settings.task == "exception_dump":
        common = _common(settings, "tensor")
        common.update(op_debug_mode=_EXCEPTIONS)
        return KernelDump("kernel_graph_exception_check.json", {"common_dump_settings": common})
    statistics = settings.task == "statistics"
    common = _common(settings, "statistic" if statistics else "tensor")
    common["op_debug_mode"] = 0
    if statistics:
        common.update(_categories(settings))
    elif settings.file_format is not None:
        common["file_format"] = settings.file_format
    return KernelDump("kernel_graph_dump.json", {"common_dump_settings": common})


def kinds_of(settings: Settings) -> Sequence[str]:
    """The statistics of a kernel dump."""
    return settings.summary_kinds or _SUMMARIES.get(settings.summary_mode) or USUAL_KINDS


def _common(settings: Settings, saved: str) -> dict[str, Any]:
    both = settings.input == settings.output
    return {
        "dump_mode": 1 if settings.api_list else 0,
        "path": os.path.abspath(settings.dump_path),
        "net_name": NET_NAME,
        "iteration": "|".join(map(str, settings.steps)) or "all",
        "saved_data": saved,
        "input_output": 0 if both else 1 if settings.input else 2,
        "kernels": list(settings.api_list),
        "support_device": list(settings.ranks) or list(range(8)),
    }


def _categories(settings: Settings) -> dict[str, Any]:
    kinds = settings.summary_kinds or _SUMMARIES.get(settings.summary_mode)
    return {"statistic_category": [_WORDS.get(kind, kind) for kind in kinds]} if kinds else {}
