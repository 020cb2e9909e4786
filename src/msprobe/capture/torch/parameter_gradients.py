"""Gradients of parameters, seen where they are about to be added to ``.grad``.

A pre-hook on the node that adds them sees each backward pass's share, before any reduction over ranks, and
leaves no trace on the parameter itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.torch.calls import CallRecorder
from msprobe.capture.torch.gradients import accumulating_node

_quiet = torch._C.DisableTorchFunction


class ParameterGradients:
    """Gradients of parameters, as each backward pass delivers them (before any reduction over ranks)."""

    def __init__(self, calls: CallRecorder) -> None:
        self.calls = calls
        self.session = calls.session
        self.hooks = calls.hooks
        # id(parameter) -> the node that accumulates its gradient; it keeps the parameter alive, and so the id
        # its own. Kept from step to step: finding the node costs more than the hook.
        self._nodes: dict[int, Any] = {}
        self._handles: dict[int, Any] = {}
        self._seen: dict[str, list[int]] = {}
        self._owners: dict[int, list[tuple[str, str]]] = {}
        self._trees: dict[str, dict[str, Any]] = {}
        self._passes: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, None] = {}
        # The gradients of each pass, and the entries that got a further one since they were last written.
        self._earlier: dict[str, list[dict[str, Any]]] = {}
        self._several: dict[str, None] = {}

    def watch(self, name: str, module: nn.Module) -> None:
        """See to it that the gradients of the module's own parameters are noticed."""
        if self.hooks.suspended:
            return
        # FSDP changes the parameters of a module between its passes; most modules keep theirs.
        seen = [
            id(parameter)
            for parameter in module._parameters.values()
            if parameter is not None and parameter.requires_grad
        ]
        if self._seen.get(name) == seen:
            return
        self._seen[name] = seen
        for key, parameter in module._parameters.items():
            if parameter is None or not parameter.requires_grad or parameter.grad_fn is not None:
                continue
            identity = id(parameter)
            owners = self._owners.setdefault(identity, [])
            if (name, key) not in owners:
                owners.append((name, key))
            if identity not in self._handles:
                node = self._nodes.get(identity)
                if node is None:
                    node = accumulating_node(parameter)
                    if node is None or not hasattr(node, "variable"):
                        continue
                    self._nodes[identity] = node
                self._handles[identity] = node.register_prehook(_OnGradient(self, identity))

    def placeholder(self, name: str, module: nn.Module) -> None:
        """The entry as it is until a gradient arrives."""
        keys = [key for key, p in module.named_parameters(recurse=False) if p.requires_grad]
        entry = f"{name}.parameters_grad"
        if keys and entry not in self._trees:
            self._trees[entry] = {key: [None] for key in keys}
            self._write(entry)

    def arrive(self, identity: int, gradient: Any) -> None:
        """A backward pass has brought the gradient of a parameter."""
        session = self.session
        if gradient is None or not session.recording:
            return
        calls = self.calls
        with _quiet():
            for name, key in self._owners.get(identity, ()):
                entry = f"{name}.parameters_grad"
                try:
                    tree = self._trees.get(entry)
                    if tree is None:
                        if calls.filter is not None and not calls.filter.wants_call(entry):
                            continue
                        tree = self._trees[entry] = {}
                    count = self._passes.get((entry, key), 0)
                    self._passes[entry, key] = count + 1
                    if calls.saving and session.saves(entry):
                        path = f"{entry}.{key}" if count == 0 else f"{entry}.{count}.{key}"
                        described = calls.describer.describe_kept(gradient, path, calls.keeper.keep)
                    else:
                        described = calls.statistics.describe(gradient)
                    passes = self._earlier.setdefault(entry, [])
                    while len(passes) <= count:
                        passes.append({})
                    passes[count][key] = [described]
                    if count:
                        self._several[entry] = None
                    tree[key] = [described]
                    self._waiting[entry] = None
                    if all(value != [None] for value in tree.values()):
                        self._write(entry)
                except Exception as error:
                    session.fault(entry, error)

    def _write(self, entry: str) -> None:
        self._waiting.pop(entry, None)
        calls = self.calls
        tree = self._trees[entry]
        if calls.overflow and not calls.keeper.overflowed(entry, {"output": list(tree.values())}):
            return
        self.session.put(entry, dict(tree))

    def close_open(self) -> None:
        """Write what has arrived since an entry was last written; several passes also one by one."""
        for entry in list(self._waiting):
            self.session.guard(self._write, entry)
        several, self._several = self._several, {}
        if not self.calls.overflow:
            for entry in several:
                # The entry itself has the last; each has one of its own: ``parameters_grad.{k}``.
                for number, tree in enumerate(self._earlier[entry]):
                    self.session.guard(self.session.put, f"{entry}.{number}", dict(tree))

    def begin_step(self) -> None:
        """A new step: nothing has arrived yet."""
        self._trees.clear()
        self._passes.clear()
        self._waiting.clear()
        self._earlier.clear()
        self._several.clear()

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._seen.clear()
        self._owners.clear()

    def forget(self) -> None:
        """Let go of the parameters themselves, which the nodes keep alive."""
        self.remove()
        self._nodes.clear()


class _OnGradient:
    """Pre-hook of the node that accumulates one parameter's gradient."""

    __slots__ = ("identity", "parameters")

    def __init__(self, parameters: ParameterGradients, identity: int) -> None:
        self.parameters = parameters
        self.identity = identity

    def __call__(self, gradients: Sequence[Any]) -> None:
        self.parameters.arrive(self.identity, gradients[0])
