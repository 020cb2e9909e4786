"""What the monitor asks of PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.torch import private
from msprobe.capture.torch.gradients.graph_nodes import collect_tensors
from msprobe.capture.torch.modules.models import name_modules
from msprobe.capture.torch.modules.user_modules import is_training, named_modules, named_parameters, storage_of
from msprobe.capture.torch.recorder import RANKS
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import unwrap
from msprobe.capture.torch.tensors.storages import in_backward
from msprobe.monitor.framework import DEFER, Named
from msprobe.monitor.operators import Operators
from msprobe.monitor.torch.meter import Meter


class TorchMonitorFramework:
    """See :class:`msprobe.monitor.framework.MonitorFramework`."""

    name = "pytorch"
    tensor: type[Any] = torch.Tensor
    unwatched = staticmethod(private.without_functions)
    has_gradients = staticmethod(torch.is_grad_enabled)

    def new_meter(self, operators: Operators) -> Meter:
        return Meter(operators, bool(os.environ.get(DEFER)))

    def agreement(self, first: torch.Tensor, other: torch.Tensor) -> float | None:
        with OwnWork():
            signs = [unwrap(value).values for value in (first, other)]
            if signs[0] is None or signs[1] is None or signs[0].shape != signs[1].shape or not signs[0].numel():
                return None
            return float((signs[0].sign() * signs[1].sign()).to(torch.float32).mean())

    def name_modules(self, models: Sequence[Any]) -> Named:
        return list(name_modules(models[0] if len(models) == 1 else models, True))

    def modules_of(self, model: nn.Module) -> Named:
        return named_modules(model)

    def is_wrapper(self, module: nn.Module) -> bool:
        return type(module).__name__ == "FullyShardedDataParallel"

    def parameters_of(self, model: nn.Module) -> Named:
        return [(name, tensor) for name, tensor in named_parameters(model) if tensor.requires_grad]

    def states_of(self, model: nn.Module) -> Named:
        frozen = [(name, tensor) for name, tensor in named_parameters(model) if not tensor.requires_grad]
        buffers = [
            (f"{path}.{key}" if path else key, tensor)
            for path, module in named_modules(model)
            for key, tensor in storage_of(module, "_buffers").items()
            if isinstance(tensor, torch.Tensor)
        ]
        return [*frozen, *buffers]

    def own_parameters(self, module: nn.Module) -> Iterable[tuple[str, Any]]:
        return [(key, tensor) for key, tensor in storage_of(module, "_parameters").items() if tensor is not None]

    def repeats(self, event: Any) -> bool:
        return in_backward() != -1

    def trains(self, module: nn.Module) -> bool:
        return is_training(module)

    def rank(self) -> int:
        return RANKS.current() or 0

    def world(self) -> int:
        return torch.distributed.get_world_size() if self.is_distributed() else 1

    def is_distributed(self) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def ranks_of(self, group: Any) -> list[int]:
        return list(torch.distributed.get_process_group_ranks(group))

    def place_in(self, group: Any) -> int:
        return int(torch.distributed.get_rank(group))

    def tensors_in(self, value: Any) -> list[Any]:
        tensors: list[tuple[str, Any]] = []
        collect_tensors(value, "", tensors)
        return [tensor for _, tensor in tensors]

    def joined(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])

    def is_in_place(self, event: Any) -> bool:
        return True

    def as_tensor(self, number: float) -> torch.Tensor:
        return torch.tensor(number)

    def as_shape(self, shape: Sequence[int]) -> torch.Size:
        return torch.Size(shape)

    def as_type(self, name: str) -> Any:
        return getattr(torch, name.rpartition(".")[2], name)
