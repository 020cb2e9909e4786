"""Models of which ``forward`` is called by itself, past ``__call__``: seen by the modules that it calls in turn."""

from __future__ import annotations

import types

from torch import nn

from msprobe.capture.torch.modules.user_modules import all_modules, modules


def model_that_runs(module: nn.Module, frame: types.FrameType | None) -> nn.Module | None:
    """The outermost model with ``module`` inside of which ``forward`` runs in ``frame`` or its callers, or None.

    Looks at the code of frames only: looking at their variables could keep these alive.
    """
    codes: list[types.CodeType] = []
    while frame is not None:
        if frame.f_code.co_name == "forward":
            codes.append(frame.f_code)
        frame = frame.f_back
    if not codes:
        return None
    running = [other for other in all_modules() if other is not module and _code_of(other) in codes]
    holders = [holder for holder in running if any(inner is module for inner in modules(holder))]
    for code in reversed(codes):
        running_it = [holder for holder in holders if _code_of(holder) is code]
        if running_it:
            # One may be inside of a different one of its class.
            return max(running_it, key=lambda model: sum(1 for _ in modules(model)))
    return None


def _code_of(module: nn.Module) -> types.CodeType | None:
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    return code if isinstance(code, types.CodeType) else None
