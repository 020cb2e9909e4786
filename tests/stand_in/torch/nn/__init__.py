"""Of the stand-in: modules with hooks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import mindspore
import numpy as np

from torch.nn import functional as functional


class _Handle:
    def __init__(self, hooks: dict[int, Any], number: int) -> None:
        self.hooks = hooks
        self.number = number

    def remove(self) -> None:
        self.hooks.pop(self.number, None)


class Module:
    def __init__(self) -> None:
        self.__dict__["_modules"] = {}
        self.__dict__["_parameters"] = {}
        self.__dict__["_before"] = {}
        self.__dict__["_after"] = {}
        self.__dict__["_numbers"] = itertools.count()

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module):
            self._modules[name] = value
        elif isinstance(value, mindspore.Parameter):
            self._parameters[name] = value
        self.__dict__[name] = value

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        yield path, self
        for name, inner in self._modules.items():
            yield from inner.named_modules(f"{path}.{name}" if path else name)

    def parameters(self) -> list[Any]:
        return [value for _, module in self.named_modules() for value in module._parameters.values()]

    def register_forward_pre_hook(self, hook: Any, with_kwargs: bool = False) -> _Handle:
        number = next(self._numbers)
        self._before[number] = hook
        return _Handle(self._before, number)

    def register_forward_hook(self, hook: Any, with_kwargs: bool = False) -> _Handle:
        number = next(self._numbers)
        self._after[number] = hook
        return _Handle(self._after, number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for hook in list(self._before.values()):
            hook(self, args, kwargs)
        result = self.forward(*args, **kwargs)
        for hook in list(self._after.values()):
            hook(self, args, kwargs, result)
        return result

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Linear(Module):
    def __init__(self, inward: int, outward: int) -> None:
        super().__init__()
        values = np.random.default_rng(inward).standard_normal((outward, inward)).astype(np.float32)
        self.weight = mindspore.Parameter(mindspore.Tensor(values), name=f"weight{inward}")

    def forward(self, x: Any) -> Any:
        return functional.linear(x, self.weight)
