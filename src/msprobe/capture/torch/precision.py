"""The switches of torch that decide how exactly it computes, as they are when a step begins to be recorded.

Two runs that differ in one of them differ in their results, and nothing is wrong with any call.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

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
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "backends.mkldnn.enabled",
)
_ANSWERS = (
    "get_float32_matmul_precision",
    "are_deterministic_algorithms_enabled",
    "get_default_dtype",
    "get_num_threads",
    "backends.cuda.flash_sdp_enabled",
    "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.math_sdp_enabled",
    "backends.cuda.cudnn_sdp_enabled",
    "backends.cpu.get_cpu_capability",
)
# Of Ascend's package, if the program uses it.
_NPU_SWITCHES = ("npu.matmul.allow_hf32", "npu.conv.allow_hf32")
_VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "HCCL_DETERMINISTIC",
    "LCCL_DETERMINISTIC",
    "NCCL_ALGO",
)


def settings_of_precision() -> dict[str, Any]:
    """What can be asked without a device being set up, each under the name by which a program sets it."""
    found: dict[str, Any] = {"torch": torch.__version__}
    newer = hasattr(torch.backends.cuda.matmul, "fp32_precision")
    for name in (*(_WORDS if newer else _OLDER_WORDS), *_SWITCHES, *_ANSWERS):
        _add(found, f"torch.{name}", torch, name)
    ascend = sys.modules.get("torch_npu")
    for name in _NPU_SWITCHES if ascend is not None else ():
        _add(found, f"torch_npu.{name}", ascend, name)
    _add_devices(found)
    found |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return found


def _add(found: dict[str, Any], key: str, place: Any, path: str) -> None:
    """What stands at ``path``, or what it answers; nothing where this torch does not have it."""
    try:
        for name in path.split("."):
            place = getattr(place, name)
        value = place() if callable(place) else place
    except Exception:
        return
    found[key] = value if isinstance(value, (bool, int, float, str)) else str(value)


def _add_devices(found: dict[str, Any]) -> None:
    """The device and its libraries, where the program has set a device up."""
    found["device"] = "cpu"
    for name in ("cuda", "npu"):
        module = getattr(torch, name, None)
        try:
            if module is not None and module.is_initialized():
                found["device"] = str(module.get_device_name())
                if name == "cuda":
                    found["cuda"] = str(torch.version.cuda or torch.version.hip)
                    _add(found, "cudnn", torch, "backends.cudnn.version")
        except Exception:
            continue
