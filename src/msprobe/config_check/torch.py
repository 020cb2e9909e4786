"""PyTorch's answers. Of a sharded tensor (DTensor) the shard of this rank is measured: nothing is communicated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.torch.modules.module_calls import watch_module
from msprobe.capture.torch.modules.user_modules import is_training, modules, named_modules, named_parameters, storage_of
from msprobe.capture.torch.private import NOTING_FUNCTIONS
from msprobe.capture.torch.recorder import RANKS
from msprobe.capture.torch.start_arguments import check_model
from msprobe.capture.torch.tensors.digest import tensor_digest, xxh3
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import unwrap
from msprobe.config_check.framework import Remove, TensorFacts, WatchedFunction
from msprobe.config_check.random_calls import digest
from msprobe.errors import InvalidInputError
from msprobe.guard import attempt

KEYS = ("max", "min", "mean", "norm")
#: What wrappers put into the names of parameters; a compiled model has those of the model.
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_DEVICES = ("cuda", "npu", "xpu")

_COMPILERS = (("torch.jit", "script"), ("torch.jit", "trace"), ("torch.export", "export"))
_is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)

Before = Callable[[tuple[Any, ...], dict[str, Any]], None]


def _watched() -> tuple[WatchedFunction, ...]:
    drawing = "rand randint randn randperm rand_like randint_like randn_like normal bernoulli multinomial".split()
    filling = "exponential_ geometric_ log_normal_ cauchy_ uniform_ normal_ bernoulli_ random_".split()
    seeding = ("torch", "torch.cuda", "torch.npu")
    return (
        *(WatchedFunction("torch", name, f"torch.{name}") for name in drawing),
        *(WatchedFunction("torch.Tensor", name, f"torch.Tensor.{name}") for name in filling),
        *(WatchedFunction(home, "manual_seed", f"{home}.manual_seed", seeds=True) for home in seeding),
        *(WatchedFunction(home, "manual_seed_all", f"{home}.manual_seed_all", seeds=True) for home in seeding[1:]),
        *(WatchedFunction(home, name, f"{home}.{name}", compiles=True) for home, name in _COMPILERS),
        WatchedFunction("torch", "compile", "torch.compile", compiles=True, compiles_later=True),
        WatchedFunction("torch.nn.Module", "compile", "torch.nn.Module.compile", compiles=True, compiles_later=True),
        WatchedFunction(NOTING_FUNCTIONS[0], "optimize", "optimize", compiles=True, compiles_later=True),
    )


class _Passes:
    """Notifies of the passes of one model."""

    def __init__(self, before: Before, after: Callable[[], None]) -> None:
        self._before = before
        self._after = after

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if not _is_compiling():
            self._before(tuple(args), kwargs)

    def leave(self, module: nn.Module, result: Any, error: BaseException | None) -> None:
        if error is None and not _is_compiling():
            self._after()


class _Torch:
    functions = _watched()

    #: Modules that note functions by identity when they are imported.
    compilers = NOTING_FUNCTIONS
    is_compiling = staticmethod(_is_compiling)

    def models_of(self, model: Any) -> list[nn.Module]:
        try:
            check_model(model)
        except InvalidInputError as problem:
            raise InvalidInputError(problem.message.replace("start()", "ConfigChecker", 1)) from None
        return list(model) if isinstance(model, (list, tuple)) else [model]

    def rank(self) -> int:
        return RANKS.current() or 0

    def watch(self, model: nn.Module, before: Before, after: Callable[[], None]) -> Remove | None:
        if getattr(model, "_compiled_call_impl", None) is not None:
            return _watch_compiled(model, before, after)

        # Ahead of all hooks: those of FSDP put the shards together.
        return watch_module(model, _Passes(before, after), ahead=True).remove

    def may_compile(self, models: Sequence[nn.Module]) -> bool:
        # A compiled module in them keeps the one that it runs; what was compiled since the patches has ended these.
        every = [module for model in models for module in modules(model)]
        return any(
            "_orig_mod" in storage_of(module, "_modules") or vars(module).get("_compiled_call_impl") for module in every
        )

    def parameters(self, models: Sequence[nn.Module]) -> dict[str, torch.Tensor]:
        by_name = {}
        for name, parameter in _named(models, named_parameters):
            by_name[name] = parameter
        return by_name

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def measure(self, tensors: Sequence[torch.Tensor]) -> list[TensorFacts | None]:
        rows: dict[torch.device, list[tuple[int, torch.Tensor]]] = {}
        digests: list[str | None] = []
        measured: list[bool] = []
        with torch.no_grad(), OwnWork():
            for place, tensor in enumerate(tensors):
                values = _plain(tensor)
                measured.append(values is not None)
                digests.append(None if values is None else _digest(values))
                if values is not None and values.numel():
                    rows.setdefault(values.device, []).append((place, _statistics(values)))
            numbers: dict[int, list[float]] = {}
            for several in rows.values():
                # One wait for each device.
                measured_rows = torch.stack([row for _, row in several]).cpu().tolist()
                numbers.update(zip((place for place, _ in several), measured_rows, strict=True))
        nothing = [None] * len(KEYS)
        return [
            TensorFacts(dict(zip(KEYS, numbers.get(place, nothing), strict=True)), digests[place]) if is_there else None
            for place, is_there in enumerate(measured)
        ]

    def generator_states(self) -> dict[str, str]:
        states = {"torch": digest(torch.get_rng_state().numpy().tobytes())}
        for name in _DEVICES:
            device = getattr(torch, name, None)
            if f"torch.{name}" in sys.modules and device is not None and device.is_initialized():
                states[f"torch.{name}"] = digest(device.get_rng_state().cpu().numpy().tobytes())
        return states

    def dropout(self, models: Sequence[nn.Module]) -> dict[str, dict[str, Any]]:
        dropouts = {}
        for name, module in _named(models, named_modules):
            own = vars(module)
            for attribute in ("p", *(key for key in own if "dropout" in key.lower())):
                value = own.get(attribute)
                is_layer = attribute != "p" or "dropout" in type(module).__name__.lower()
                if is_layer and isinstance(value, float):
                    place = name if attribute == "p" else f"{name}.{attribute}".lstrip(".")
                    dropouts[place] = {"p": value, "training": is_training(module)}
        return dropouts


def _named(models: Sequence[nn.Module], names: Callable[[nn.Module], Any]) -> Any:
    for number, model in enumerate(models):
        for name, value in names(model):
            for wrapper in _WRAPPERS:
                name = name.replace(wrapper, "")
            yield (f"{number}.{name}" if number else name), value


def _watch_compiled(model: Any, before: Before, after: Callable[[], None]) -> Remove:
    """Of a model that was compiled in place a hook would be compiled, too; so it is called beside what is compiled."""
    compiled = model._compiled_call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        attempt(before, args, kwargs)
        try:
            return compiled(*args, **kwargs)
        finally:
            attempt(after)

    model._compiled_call_impl = call

    def remove() -> None:
        if model._compiled_call_impl is call:
            model._compiled_call_impl = compiled

    return remove


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """The elements as a plain tensor; of a sharded one the shard of this rank."""
    try:
        values = unwrap(tensor).values
        if values is None:
            return None
        return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values.resolve_neg()
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _statistics(values: torch.Tensor) -> torch.Tensor:
    """KEYS, float32, [4], on the tensor's device."""
    wide = values.detach().to(torch.float32).reshape(-1)
    least, most = torch.aminmax(wide)
    return torch.stack((most, least, wide.mean(), torch.linalg.vector_norm(wide)))


def _digest(values: torch.Tensor) -> str:
    return xxh3(tensor_digest(values.detach().cpu())).decode()


FRAMEWORK = _Torch()
