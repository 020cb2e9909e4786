"""Another device: aten's operators give what a variant makes of them, and one of them what a fault makes of that.

The operators are met below autograd, autocast and the recorder, forward and backward, in place and with ``out``: a call
of the program stays the call that it is, and what is recorded of it has other bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from .faults import Fault
from .operators import OPERATORS
from .variants import VARIANTS, Kit


@dataclass(frozen=True)
class OperatorCall:
    """One call of an operator: its name without the underscore of a write, what it got, before it wrote, and its
    floating-point results, which may be written to.
    """

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    results: list[torch.Tensor]
    kit: Kit
    number: int
    #: The result of the call before with as many elements.
    before: torch.Tensor | None


class Device(TorchDispatchMode):
    """While it is entered, operators compute as on this device. ``variant``: of :data:`VARIANTS`; "": as torch does."""

    def __init__(self, variant: str = "", fault: Fault | None = None) -> None:
        super().__init__()
        self._kits = VARIANTS[variant] if variant else ()
        self._fault = fault
        self._calls: dict[str, int] = {}
        self._before: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # its own operators, of what a rank has, come here again
        full, options = func.overloadpacket.__name__, dict(kwargs or {})
        name = full[:-1] if full.endswith("_") and not full.endswith("__") else full
        faulty = self._fault is not None and self._fault.operator == name
        if not faulty and not (self._kits and name in OPERATORS):
            with torch._C.DisableTorchFunction():  # a kernel, and no call of the program
                return func(*args, **options)
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        with torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(keys), torch.no_grad():
            return self._computed(func, name, args, options, faulty)

    def _computed(self, func: Any, name: str, args: Any, options: dict[str, Any], faulty: bool) -> Any:
        writes = func._schema.is_mutable
        given = tree_map_only(torch.Tensor, torch.clone, args) if writes else args
        found = func(*args, **options)
        options.pop("out", None)
        every = found if isinstance(found, (tuple, list)) else (found,)
        if name.startswith("allreduce"):
            Work.unbox(every[-1]).wait()  # its thread writes the results
            every = args[0]
        results = [one for one in every if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel()]
        number = self._calls.get(name, 0)
        self._calls[name] = number + 1
        kit = Kit()
        if self._kits and name in OPERATORS and results:
            kit = self._kits[number % len(self._kits)]
            kit = kit.of(results[0].dtype)
            for place, values in zip(results, OPERATORS[name](kit, *given, **options), strict=True):
                if values is not None:
                    place.copy_(values.reshape(place.shape))
        if faulty and self._fault is not None and results:
            slot = min(self._fault.slot, len(results) - 1)
            before = self._before.get(results[slot].numel())
            self._fault.apply(OperatorCall(name, given, options, results, kit, number, before))
            self._before[results[slot].numel()] = results[slot].clone()
        return found
