"""What torch has under private names for compiling: looked up as :mod:`msprobe.capture.torch.private` says."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from msprobe.capture.torch.private import EVAL_FRAME, find

_DIRECT, _GUARDED = "set_eval_frame", "_maybe_set_eval_frame"


#: Whether this code is being compiled. Public since torch 2.3.
is_compiling: Callable[[], bool] = (
    getattr(torch.compiler, "is_compiling", None) or find("torch._utils.is_compiling") or (lambda: False)
)


def eval_frame() -> Any:
    """The compiler's module that runs compiled callables; None as long as nobody has imported it."""
    return sys.modules.get(EVAL_FRAME)


def switches() -> list[str]:
    """The names in :func:`eval_frame` under which the compiler switches itself on and off: there may be two for one
    function, or one that calls the other, or only the other.
    """
    direct, guarded = (getattr(eval_frame(), name, None) for name in (_DIRECT, _GUARDED))
    if direct is None:
        return [_GUARDED]
    return [_DIRECT, _GUARDED] if guarded is direct else [_DIRECT]


def switches_off_once() -> bool:
    """Whether a compiled callable switches the compiler off only at its end, as older compilers do."""
    return not all(hasattr(eval_frame(), name) for name in (_DIRECT, _GUARDED))


def is_switch(function: str) -> bool:
    """Whether a function of this name is one of the switches."""
    return function in (_DIRECT, _GUARDED)


def runs_compiled(owner: Any) -> bool:
    """Whether an object of the compiler runs compiled code, rather than keeping it from being compiled."""
    frames = eval_frame()
    return isinstance(owner, frames._TorchDynamoContext) and not isinstance(owner, frames.DisableContext)


def skip_code(code: types.CodeType) -> None:
    """Have the compiler run this code as it is."""
    eval_frame().skip_code(code)


def skip_package(name: str) -> None:
    """Have the compiler leave all code of a package alone."""
    for module in ("torch._dynamo.trace_rules", "torch._dynamo.skipfiles"):
        add = getattr(sys.modules.get(module), "add", None)
        if add is not None:
            add(name)
            return


def optimized_module() -> type | None:
    """The class of what ``torch.compile(module)`` returns."""
    kind = getattr(eval_frame(), "OptimizedModule", None)
    return kind if isinstance(kind, type) else None


def compile_backend(backend: Any) -> Any:
    """What compiles a graph, by its name for ``torch.compile``; a function is one itself."""
    return backend if callable(backend) else find("torch._dynamo.backends.registry.lookup_backend")(backend)


def random_as_eager(backend: Any) -> Any:
    """A context in which what this backend compiles draws the random numbers that eager code draws."""
    if backend != "inductor":
        return contextlib.nullcontext()
    settings: Any = importlib.import_module("torch._inductor.config")
    return settings.patch(fallback_random=True)


def run_uncompiled() -> Any:
    """Have everything run uncompiled from now on; returns what was asked for before, None if that cannot be had
    (before torch 2.6).
    """
    frames = eval_frame()
    if not hasattr(frames, "_set_stance") or not hasattr(frames, "DynamoStance"):
        return None
    return frames._set_stance(frames.DynamoStance("force_eager"))


def run_as_before(stance: Any) -> None:
    """Undo :func:`run_uncompiled`."""
    eval_frame()._set_stance(stance)


def compiled_autograd() -> Any:
    """What compiled autograd is switched on by: an object with ``set_autograd_compiler``, or None."""
    return find("torch._C._dynamo.compiled_autograd")
