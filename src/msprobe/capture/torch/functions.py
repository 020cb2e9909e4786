"""Custom ``torch.autograd.Function`` classes, recorded as one unit: ``Function.{Class}.{n}``.

The function mode sees the calls inside a Function's forward, but not the Function itself. So
``Function.apply`` gets a thin wrapper while recording. What runs inside is recorded as well, under its own
names.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function

from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.patches import Patches

_quiet = torch._C.DisableTorchFunction

# The framework's own Functions: part of how torch works, not of what the user computes.
_FRAMEWORK_MODULES = (
    "torch._functorch",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.",
    "torch.utils.checkpoint",
)
_FRAMEWORK_CLASSES = frozenset(
    ("BackwardHookFunction", "CompiledFunction", "_PostBackward", "RegisterPostBackwardFunction")
)


def add_function_patches(patches: Patches, calls: CallRecorder) -> None:
    """Have ``Function.apply`` recorded while the patches are attached."""
    session = calls.session

    def make(original: Any) -> Any:
        inner = original.__func__

        @classmethod  # type: ignore[misc]
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if not session.recording or session.thread.muted or _is_framework(cls):
                return inner(cls, *args, **kwargs)
            with _quiet():
                call = calls.begin(f"Function.{cls.__name__}", args, kwargs, 1)
            if call is None:
                return inner(cls, *args, **kwargs)
            try:
                result = inner(cls, *args, **kwargs)
            except BaseException as error:
                with _quiet():
                    calls.fail(call, error)
                raise
            with _quiet():
                calls.end(call, result)
            return result

        return apply

    patches.add(Function, "apply", make)


def _is_framework(cls: Any) -> bool:
    # Made by torch for each operator with a registered backward; the operator itself is recorded.
    if cls.__name__ in _FRAMEWORK_CLASSES or cls.__name__.startswith("GeneratedBackwardFor_"):
        return True
    return str(cls.__module__).startswith(_FRAMEWORK_MODULES)
