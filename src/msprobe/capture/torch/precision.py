"""The switches of torch that decide how exactly it computes, as they are when a step begins to be recorded.

Two runs that differ in one of them differ in their results, and nothing is wrong with any call.
"""

from __future__ import annotations

import os
import sys
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import torch

from msprobe.capture.torch import private
from msprobe.guard import pass_on

# Newer torch: one word for each kind of operation. There asking for the older switches may fail where both are used.
_WORDS = (
    "backends.cuda.matmul.fp32_precision",
    "backends.cudnn.conv.fp32_precision",
    "backends.cudnn.rnn.fp32_precision",
    "backends.mkldnn.matmul.fp32_precision",
    "backends.mkldnn.conv.fp32_precision",
    "backends.mkldnn.rnn.fp32_precision",
)
_OLDER_WORDS = ("backends.cuda.matmul.allow_tf32", "backends.cudnn.allow_tf32")
_SWITCHES = (
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "utils.deterministic.fill_uninitialized_memory",
    "backends.mkldnn.enabled",
)
_ANSWERS = (
    "get_float32_matmul_precision",
    "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "get_default_dtype",
    "get_num_threads",
    "backends.cuda.flash_sdp_enabled",
    "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.math_sdp_enabled",
    "backends.cuda.cudnn_sdp_enabled",
    "backends.cpu.get_cpu_capability",
)
# Of Ascend's package, if the program uses it.
_NPU_SWITCHES = ("npu.matmul.allow_hf32", "npu.conv.allow_hf32", "npu.aclnn.allow_hf32")
#: Devices that autocast may be on for.
AUTOCAST_DEVICES = ("cpu", "cuda", "npu")
_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "HCCL_DETERMINISTIC",
    "LCCL_DETERMINISTIC",
    "NCCL_ALGO",
)


def settings_of_precision(jitter: bool = False) -> dict[str, Any]:
    """What can be asked without a device being set up, each under the name by which a program sets it. ``jitter``:
    whether this recorder moves what operators compute.
    """
    settings: dict[str, Any] = {"torch": torch.__version__} | ({"jitter": True} if jitter else {})
    newer = _has(torch.backends.cuda.matmul, "fp32_precision")
    for name in (*(_WORDS if newer else _OLDER_WORDS), *_SWITCHES, *_ANSWERS):
        _add(settings, f"torch.{name}", torch, name)
    ascend = sys.modules.get("torch_npu")
    for name in _NPU_SWITCHES if ascend is not None else ():
        _add(settings, f"torch_npu.{name}", ascend, name)
    if ascend is not None:
        _add(settings, "torch_npu", ascend, "__version__")
        _add(settings, "cann", sys.modules[__name__], "_version_of_cann")
    _add_devices(settings)
    _add_autocast(settings)
    settings |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return settings


def _has(place: Any, name: str) -> bool:
    # torch 2.1 raises another error than hasattr expects.
    try:
        return hasattr(place, name)
    except AssertionError:
        return False


# What stands at a path, as a function: asked for in every step.
_at = cache(attrgetter)


def _add(settings: dict[str, Any], key: str, place: Any, path: str) -> None:
    """What stands at ``path``, or what it answers; nothing where this torch does not have it."""
    try:
        value = _at(path)(place)
        if callable(value):
            value = value()
    except Exception as error:
        pass_on(error)
        return
    if value is not None:
        settings[key] = value if isinstance(value, (bool, int, float, str)) else str(value)


@lru_cache(1)
def _version_of_cann() -> str | None:
    """What torch_npu reads from CANN's files; asked once."""
    try:
        return str(sys.modules["torch_npu"].utils.get_cann_version())
    except Exception as error:
        pass_on(error)
        return None


def _add_autocast(settings: dict[str, Any]) -> None:
    """The type that autocast computes in, for each device that it is on for; and the default device, if one is set."""
    for device in AUTOCAST_DEVICES:
        try:
            dtype = autocast_of(device)
        except Exception as error:
            pass_on(error)
            continue
        if dtype is not None:
            settings[f"autocast.{device}"] = str(dtype)
    _add(settings, "torch.get_default_device", private, "default_device")


def autocast_of(device: str) -> Any:
    """The type; None where autocast is off, or where torch has no such device."""
    ask: Any = torch
    if device != "cpu" and not hasattr(torch, device):
        return None
    if hasattr(torch, "get_autocast_dtype"):
        return ask.get_autocast_dtype(device) if ask.is_autocast_enabled(device) else None
    if device == "cpu":  # torch 2.1 to 2.3
        return ask.get_autocast_cpu_dtype() if ask.is_autocast_cpu_enabled() else None
    return ask.get_autocast_gpu_dtype() if device == "cuda" and ask.is_autocast_enabled() else None


def _add_devices(settings: dict[str, Any]) -> None:
    """The device and its libraries, where the program has set a device up."""
    settings["device"] = "cpu"
    for name in ("cuda", "npu"):
        module = getattr(torch, name, None)
        try:
            if module is not None and module.is_initialized():
                settings["device"] = str(module.get_device_name())
                if name == "cuda":
                    settings["cuda"] = str(torch.version.cuda or torch.version.hip)
                    _add(settings, "cudnn", torch, "backends.cudnn.version")
        except Exception as error:
            pass_on(error)
            continue
