"""Functions of the user that a check calls: what cleans results, and what fused operators compute.

``--clean-output FILE.py:FUNCTION`` is called as ``function(api_name, output, args, kwargs)`` and returns what is to be
compared: results without the padding behind their valid lengths, for one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.precheck.side.functions import loaded
from msprobe.precheck.torch.inputs import Inputs


def load_function(text: str, option: str) -> Callable[..., Any]:
    """The function of ``FILE.py:FUNCTION``; the file is run. Raises InvalidInputError."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not name.isidentifier() or path.suffix != ".py" or not path.is_file():
        raise InvalidInputError(said("function-option-form", option, text))
    spec = importlib.util.spec_from_file_location(f"msprobe_user_code_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        why = f"{type(problem).__name__}: {problem}"
        raise InvalidInputError(said("function-not-loaded", option, text, why)) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInputError(said("function-not-in-file", option, text, file, name))
    return function  # type: ignore[no-any-return]


def load_operator(forward: str, backward: str = "") -> Callable[..., Any]:
    """An operator of ``--operators``, with its own backward where it has one. Raises InvalidInputError."""
    function = load_function(forward, "--operators")
    return with_backward(function, load_function(backward, "--operators")) if backward else function


def with_backward(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """The function with gradients of its own: ``backward(gradient, *args, **kwargs)`` gives that of each tensor among
    the arguments that requires one, in order. ``gradient`` is that of the result; of several results, their tuple.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        given: list[torch.Tensor] = []

        def see(tensor: torch.Tensor, path: str) -> torch.Tensor:
            given.extend([tensor] if tensor.requires_grad else [])
            return tensor.detach()

        bare = Inputs(list(args), kwargs)
        bare.args, bare.kwargs = bare.map(see)
        if not given or not torch.is_grad_enabled():
            return forward(*args, **kwargs)

        class WithBackward(torch.autograd.Function):
            """The call as a node of the graph."""

            @staticmethod
            def forward(context: Any, *tensors: torch.Tensor) -> Any:
                result = forward(*bare.args, **bare.kwargs)
                return tuple(result) if isinstance(result, list) else result

            @staticmethod
            def backward(context: Any, *gradients: Any) -> Any:
                returned = backward(gradients[0] if len(gradients) == 1 else gradients, *bare.args, **bare.kwargs)
                returned = tuple(returned) if isinstance(returned, (list, tuple)) else (returned,)
                if len(returned) != len(given):
                    raise ValueError(said("gradients-of-operator", len(returned), len(given)))
                return returned

        return WithBackward.apply(*given)  # type: ignore[no-untyped-call]

    return call


def load_kernels(what: str) -> Any:
    """Import what ``--load`` names: a ``.py``, a ``.so`` with operators, or a module. Raises InvalidInputError."""
    try:
        return loaded(what)
    except Exception as problem:
        raise InvalidInputError(said("load-failed", what, type(problem).__name__, problem)) from None


def cleaned(function: Callable[..., Any], api: str, cleaning: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its results cleaned: gradients and disturbed runs see no other ones."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return cleaning(api, function(*args, **kwargs), args, kwargs)

    return call
