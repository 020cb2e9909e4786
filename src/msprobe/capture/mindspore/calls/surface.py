"""Whose names a program uses: MindSpore's own, or those of PyTorch in MSAdapter / MindTorch.

MSAdapter is a package named ``torch`` whose tensors are MindSpore's. A program for it is recorded with PyTorch's names
(``Functional``, ``Torch``, ``Module.{path}.{Class}``) and MindSpore's values.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mindspore
from mindspore import nn

from msprobe.capture.api_list import api_list
from msprobe.capture.mindspore.calls.all_functions import functions_of


@dataclass(frozen=True)
class Surface:
    """The names that a program uses, and where its functions are looked up."""

    # As the header of a dump names it.
    framework: str
    # What its modules are called, and their class.
    module_prefix: str
    module_class: type
    module_word: str
    # Package with the list of functions; group of the list -> (where its functions are, first part of entries' names).
    list_package: str
    groups: Mapping[str, tuple[str, str]]
    # Listed, and not recorded all the same.
    without: frozenset[str] = frozenset()
    # (group, name) of what is recorded beside the shipped list.
    beside: tuple[tuple[str, str], ...] = ()

    def apis(self, everything: bool = False, file: str | None = None) -> Iterator[tuple[Any, str, str]]:
        """(holder, attribute, key of its entries) of each function to record that is there: those of the list, and
        behind them with ``everything`` all others that compute.

        ``file``: a list in place of the shipped one. A function that has several names, of which the list has one,
        goes by that.
        """
        groups = api_list(self.list_package, file, self._known)
        seen: set[tuple[int, str]] = set()
        keys: dict[int, str] = {}
        holders = [(group, _holder(place), prefix) for group, (place, prefix) in self.groups.items()]
        there = [(group, holder, prefix) for group, holder, prefix in holders if holder is not None]
        for group, holder, prefix in there:
            for name in groups.get(group, ()):
                function = getattr(holder, name, None)
                if not callable(function) or isinstance(function, type) or f"{group}.{name}" in self.without:
                    continue
                if (id(holder), name) not in seen:
                    seen.add((id(holder), name))
                    key = f"{prefix}.{name.rpartition('.')[2]}"
                    keys.setdefault(id(inspect.getattr_static(holder, name, function)), key)
                    yield holder, name, key
        for _, holder, prefix in there if everything else ():
            for name, function in functions_of(holder):
                if (id(holder), name) not in seen:
                    yield holder, name, keys.setdefault(id(function), f"{prefix}.{name}")

    def apis_beside(self) -> Iterator[tuple[Any, str, str]]:
        """The same for what is recorded beside the shipped list: what marks where values and gradients end. Calls of
        the list inside of these are recorded as ever.
        """
        for group, name in self.beside:
            place, prefix = self.groups[group]
            holder = _holder(place)
            if callable(getattr(holder, name, None)):
                yield holder, name, f"{prefix}.{name}"

    def _known(self, group: str) -> Callable[[str], bool] | None:
        if group not in self.groups:
            return None
        holder = _holder(self.groups[group][0])
        return None if holder is None else lambda name: callable(getattr(holder, name, None))

    def modules_of(self, root: Any) -> Iterable[tuple[str, Any]]:
        """The path and object of each module of a model, the root first, with an empty path."""
        walk = root.cells_and_names if isinstance(root, nn.Cell) else root.named_modules
        modules: Iterable[tuple[str, Any]] = walk()
        return modules

    def own_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        """A module's own parameters, by attribute; one that has two names counts under the first."""
        held = getattr(module, "_params" if isinstance(module, nn.Cell) else "_parameters", None) or {}
        seen: set[int] = set()
        for key, value in held.items():
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield key, value


MINDSPORE = Surface(
    "mindspore",
    "Cell",
    nn.Cell,
    "mindspore.nn.Cell",
    "msprobe.capture.mindspore",
    {
        "ops": ("mindspore.ops", "Functional"),
        "tensor": ("mindspore.Tensor", "Tensor"),
        "mint.ops": ("mindspore.mint", "Mint"),
        "mint.nn.functional": ("mindspore.mint.nn.functional", "MintFunctional"),
        "communication.comm_func": ("mindspore.communication.comm_func", "Distributed"),
        "mint.distributed": ("mindspore.mint.distributed", "MintDistributed"),
    },
    beside=(("tensor", "__getitem__"), ("tensor", "__setitem__"), ("ops", "stop_gradient")),
)


def surface() -> Surface:
    """The names of this program: MSAdapter's if its ``torch`` is imported, else MindSpore's."""
    torch = sys.modules.get("torch")
    if torch is None or not _is_adapter(torch):
        return MINDSPORE
    return Surface(
        "mindtorch",
        "Module",
        torch.nn.Module,
        "torch.nn.Module",
        # The list of PyTorch's functions: a file, no code.
        "msprobe.capture.torch",
        {
            "functional": ("torch.nn.functional", "Functional"),
            "tensor": ("torch.Tensor", "Tensor"),
            "torch": ("torch", "Torch"),
            "torch_npu": ("torch_npu", "NPU"),
            "distributed": ("torch.distributed", "Distributed"),
        },
        frozenset({"tensor.__setitem__"}),
    )


def _is_adapter(torch: Any) -> bool:
    try:
        return isinstance(torch.tensor(0.0), mindspore.Tensor)
    except Exception:
        return False


def _holder(place: str) -> Any:
    """The module or class of this name; None if there is none."""
    try:
        return importlib.import_module(place)
    except ImportError:
        package, _, name = place.rpartition(".")
        holder = sys.modules.get(package)
        return getattr(holder, name, None) if holder is not None else None
