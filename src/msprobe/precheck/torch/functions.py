"""Names in a dump -> functions of torch. They are looked up in lists; a name of a stranger's dump runs nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional

from msprobe.capture.api_list import shipped_list
from msprobe.capture.torch import private
from msprobe.messages import said
from msprobe.precheck.known_names import REFUSED, is_known
from msprobe.precheck.side.functions import computes, function_of

# prefix -> (where its functions are, the group of the list)
_SPACES: dict[str, tuple[Any, str]] = {
    "Functional": (torch.nn.functional, "functional"),
    "Tensor": (torch.Tensor, "tensor"),
    "Torch": (torch, "torch"),
    "VF": (private.VF, "torch"),
}


class UnknownApiError(LookupError):
    """A name that no list has."""


def find_function(prefix: str, name: str) -> Callable[..., Any]:
    """The function of one API. Raises UnknownApiError."""
    if prefix in ("NPU", "NPUFusion"):
        from msprobe.precheck.torch.fused import FORWARD

        if name in FORWARD:
            return function_of_npu(name) or FORWARD[name]
        raise UnknownApiError(said("api-without-implementation", name))
    if prefix not in _SPACES:
        raise UnknownApiError(said("api-type-unknown", prefix))
    space, group = _SPACES[prefix]
    listed = name in shipped_list("msprobe.capture.torch").get(group, ())
    function: Any = space
    for part in name.split("."):
        if part in REFUSED or not part.isidentifier():
            raise UnknownApiError(said("api-not-run", prefix, name))
        # Not getattr of a module: a submodule of torch that is imported when it is asked for stays where it is.
        function = vars(function).get(part) if type(function) is ModuleType else getattr(function, part, None)
        if isinstance(function, ModuleType) and function.__name__.partition(".")[0] != "torch":
            raise UnknownApiError(said("api-not-run", prefix, name))
    if (function is None or isinstance(function, ModuleType)) and prefix == "Torch":
        function = None
        # Functions of these are recorded without the name of their module.
        for space in (torch.linalg, torch.fft, torch.special, torch.nn.functional, torch.sparse):
            function = function or getattr(space, name, None)
    if function is None:
        raise UnknownApiError(said("api-not-in-torch", prefix, name, torch.__version__))
    if not callable(function):
        if hasattr(function, "__get__") and name in ("T", "mT", "H", "mH", "real", "imag"):
            descriptor = function
            return lambda tensor: descriptor.__get__(tensor)
        raise UnknownApiError(said("api-is-no-function", prefix, name))
    if isinstance(function, type) or not (listed or _is_operation(function, prefix, name)):
        raise UnknownApiError(said("api-in-no-list", prefix, name))
    return function  # type: ignore[no-any-return]


def find_loaded(prefix: str, name: str, module: Any) -> Callable[..., Any]:
    """An operator of torch.ops, or the class of a custom Function, as ``--load`` has brought it in.

    Raises UnknownApiError.
    """
    if not is_known(prefix, name):
        raise UnknownApiError(said("api-not-run", prefix, name))
    try:
        return function_of({"type": prefix, "name": name}, module)
    except LookupError as problem:
        raise UnknownApiError(str(problem.args[0])) from None


def _is_operation(function: Any, prefix: str, name: str) -> bool:
    """True for what torch itself lists as a function of tensors, and for what it implements in C."""
    # Functions of lists of tensors, as optimizers and clipping call them, are not in the list of torch.
    if prefix == "VF" or (prefix == "Torch" and name.startswith("_foreach_")):
        packet = (
            getattr(torch.ops.aten, name, None) if type(function).__name__ == "builtin_function_or_method" else None
        )
        return packet is not None and computes(packet)
    return function in _operations() or name in _CREATE


_CREATE = frozenset(
    """arange linspace logspace zeros ones full eye tensor rand randn randint randperm normal scalar_tensor complex
    polar heaviside as_tensor asarray from_numpy hann_window hamming_window bartlett_window blackman_window
    tril_indices triu_indices""".split()
)


@lru_cache(maxsize=1)
def _operations() -> frozenset[Any]:
    from torch.overrides import get_overridable_functions

    known = set()
    for functions in get_overridable_functions().values():
        for function in functions:
            try:
                known.add(function)
            except TypeError:
                continue
    return frozenset(known)


def function_of_npu(name: str) -> Callable[..., Any] | None:
    """The function of torch_npu itself, where that is installed."""
    try:
        import torch_npu
    except ImportError:
        return None
    function: Callable[..., Any] | None = getattr(torch_npu, name, None)
    return function
