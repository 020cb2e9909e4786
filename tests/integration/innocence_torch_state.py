"""The state of torch and of the process that a recorder could disturb: function objects, modes, flags,
global hooks."""

from __future__ import annotations

import gc
import operator
import os
import signal
import sys
import threading
from typing import Any

import torch
import torch.distributed
import torch.distributed._functional_collectives
import torch.utils.checkpoint
from torch import nn
from torch.overrides import _get_current_function_mode_stack

# Functions users compare by identity; these objects stay the same even while recording runs.
STRICT = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch._C.TensorBase": torch.Tensor.__base__,  # another name before 2.2
    "torch.nn.functional": nn.functional,
    "torch._VF": torch._VF,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "torch.special": torch.special,
    "torch.sparse": torch.sparse,
    "torch.func": torch.func,
    "torch.nn.Module": nn.Module,
    "torch.optim.Optimizer": torch.optim.Optimizer,
    "torch.optim.SGD": torch.optim.SGD,
    "torch.optim.AdamW": torch.optim.AdamW,
}
# These may carry a thin wrapper between start and stop, and are themselves again after stop.
WRAPPED_WHILE_RECORDING = {
    "torch.distributed": torch.distributed,
    "torch.distributed.distributed_c10d": torch.distributed.distributed_c10d,
    "torch.distributed._functional_collectives": torch.distributed._functional_collectives,
    "torch.autograd": torch.autograd,
    "torch.autograd.Function": torch.autograd.Function,
    "torch.autograd.function.FunctionMeta": torch.autograd.function.FunctionMeta,
    "torch.autograd.graph": torch.autograd.graph,
    "torch.utils.checkpoint": torch.utils.checkpoint,
    "torch.nn.utils": nn.utils,
    "torch.overrides": torch.overrides,
}

Functions = dict[str, dict[str, Any]]


def functions(strict: bool) -> Functions:
    """What the namespaces above hold now, by name. Keeps the objects, so ids cannot be reused."""
    return {owner: dict(vars(place)) for owner, place in _places(strict).items()}


def replaced(before: Functions, strict: bool) -> list[str]:
    """Names of functions, methods and descriptors whose object is another one now, or gone."""
    found = []
    for owner, place in _places(strict).items():
        old, now = before[owner], vars(place)
        # The same objects in the same order is the rule, and quickly seen.
        if len(old) == len(now) and all(map(operator.is_, old.values(), now.values())):
            continue
        found += [
            f"{owner}.{name}"
            for name, value in old.items()
            if now.get(name) is not value and (callable(value) or hasattr(type(value), "__get__"))
        ]
    return found


def _places(strict: bool) -> dict[str, Any]:
    return STRICT if strict else {**STRICT, **WRAPPED_WHILE_RECORDING}


def _autocast_of_cpu() -> tuple[bool, str]:
    if not hasattr(torch, "get_autocast_dtype"):  # before torch 2.4
        return torch.is_autocast_cpu_enabled(), str(torch.get_autocast_cpu_dtype())
    return torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))


def _has_no_saved_tensor_hooks() -> bool:
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # not before torch 2.5
    return top is None or top(True) is None


def flags() -> dict[str, object]:
    """Modes, switches and global hook tables, as plain values."""
    from torch.nn.modules import module as tables
    from torch.optim import optimizer as optimizer_tables

    return {
        "function modes": [type(mode).__qualname__ for mode in _get_current_function_mode_stack()],
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "grad enabled": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (
            *_autocast_of_cpu(),
            torch.is_autocast_cache_enabled(),
        ),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "multithreaded backward": torch._C._is_multithreading_enabled(),
        "checkpoint early stop": torch.utils.checkpoint._enable_checkpoint_early_stop,
        "saved tensor hooks": _has_no_saved_tensor_hooks(),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device() if hasattr(torch, "get_default_device") else None),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "global module hooks": {
            name: len(value)
            for name, value in vars(tables).items()
            if name.startswith("_global_") and hasattr(value, "__len__")
        },
        "global optimizer hooks": (
            len(optimizer_tables._global_optimizer_pre_hooks),
            len(optimizer_tables._global_optimizer_post_hooks),
        ),
        "profile": sys.getprofile() is None and sys.gettrace() is None,
        "excepthooks": (
            sys.excepthook is sys.__excepthook__,
            threading.excepthook is threading.__excepthook__,
        ),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
        "collector": (gc.isenabled(), gc.get_threshold(), len(gc.callbacks)),
        "recursion limit": sys.getrecursionlimit(),
        "folder": os.getcwd(),
        "environment": sorted(
            f"{key}={value}"
            for key, value in os.environ.items()
            # pytest's own, and those that torch sets for good at the first compilation of the process.
            if key != "PYTEST_CURRENT_TEST" and "TORCHINDUCTOR_" not in key
        ),
    }
