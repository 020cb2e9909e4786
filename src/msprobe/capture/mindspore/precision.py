"""The switches of MindSpore that decide how exactly it computes, as they are when a step begins to be recorded."""

from __future__ import annotations

import os
import sys
from typing import Any

import mindspore

_CONTEXT = ("device_target", "deterministic", "mode")
#: Where MindSpore keeps what a program has set for Ascend; the class is there with that device alone.
_ASCEND = "mindspore.device_context.ascend.op_precision"
_OF_ASCEND = ("matmul_allow_hf32", "conv_allow_hf32", "precision_mode", "op_precision_mode")
_VARIABLES = ("HCCL_DETERMINISTIC", "LCCL_DETERMINISTIC", "MS_ENABLE_ACLNN", "MS_INTERNAL_DISABLE_CUSTOM_KERNEL_LIST")


def settings_of_precision() -> dict[str, Any]:
    """What can be asked without a device being set up. A switch that the program has left alone is ``default``."""
    settings: dict[str, Any] = {"mindspore": mindspore.__version__}
    for name in _CONTEXT:
        try:
            settings[f"mindspore.{name}"] = _plain(mindspore.get_context(name))
        except Exception:
            continue
    settings["device"] = str(settings.pop("mindspore.device_target", "")).lower()
    if settings["device"] == "ascend":
        _add_ascend(settings)
    settings |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return settings


def _add_ascend(settings: dict[str, Any]) -> None:
    """The switches of its kernels, and the version of CANN."""
    try:
        kept = sys.modules[_ASCEND].AscendOpPrecisionConf.get_instance()
    except Exception:
        kept = None
    for name in _OF_ASCEND if kept is not None else ():
        try:
            settings[f"mindspore.{name}"] = str(getattr(kept, name)()) or "default"
        except Exception:
            continue
    try:
        settings["device"] = str(mindspore.hal.get_device_name(0))
    except Exception:
        return


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)
