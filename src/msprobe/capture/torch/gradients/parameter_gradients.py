"""Gradients of parameters, seen where they are about to be added to ``.grad``.

A pre-hook on the node that adds them sees each backward pass's share, before any reduction over ranks, and
leaves no trace on the parameter itself.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from msprobe.capture.parameter_entries import ParameterEntries
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.gradients.graph_nodes import NodeHooks, accumulating_node
from msprobe.guard import attempt

_without_functions = private.without_functions


class ParameterHooks:
    """Hooks on the nodes that add the gradients of parameters; who derives from it says what becomes of what comes."""

    def __init__(self, hooks: NodeHooks) -> None:
        self.hooks = hooks
        self.visible = private.has("parameter gradients")
        # id(parameter) -> what sees its gradient: put in its first pass, kept as long as recording goes on and one of
        # the modules that ran with the parameter is alive.
        self.known: dict[int, _Hook] = {}
        # id(module) -> the module, and its hooks by the ids of their parameters.
        self._modules: dict[int, tuple[weakref.ref[nn.Module], list[tuple[int, _Hook]]]] = {}
        # What takes hooks off nodes that are not held any more: of parameters that were moved since recording began,
        # and of modules that are gone.
        self.released: list[Any] = []

    def arrive(self, owners: Sequence[tuple[str, str]], gradients: Sequence[Any]) -> None:
        """A backward pass has brought the gradient of a parameter, the only one of ``gradients``. ``owners``: its
        entries, and its key in each.
        """
        raise NotImplementedError

    def watch(self, name: str, module: nn.Module) -> None:
        """See to it that the gradients of the module's own parameters are noticed."""
        if self.hooks.suspended or not self.visible:
            return
        entry = f"{name}.parameters_grad"
        node_of = _node_of()
        for key, parameter in module._parameters.items():
            if parameter is not None:
                self._watch(entry, key, parameter, module, node_of)

    def _watch(
        self, entry: str, key: str, parameter: torch.Tensor, module: nn.Module, node_of: Callable[[Any], Any]
    ) -> None:
        if not parameter.requires_grad or parameter.grad_fn is not None:
            return
        hook = self.known.get(id(parameter))
        kind = None
        if type(parameter) is nn.Parameter:
            # Asked in every pass: whoever gives a parameter data of another type or on another device, as
            # `model.half()` does, gives it another node, also if in the end it has the very data it had before.
            node = node_of(parameter)
            is_known = hook is not None and hook.node is node
        else:
            # To ask such a tensor for its node may take as long as a call of the model: not if it looks as before.
            kind = parameter.dtype, parameter.device
            is_known = hook is not None and hook.kind == kind
            node = None if is_known else accumulating_node(parameter)
        if not is_known:
            hook = self.hook_on(parameter, node, kind) or hook
        if hook is not None and (entry, key) not in hook.owners:
            hook.owners.append((entry, key))
            self._hold(module, id(parameter), hook)

    def hook_on(self, parameter: torch.Tensor, node: Any, kind: Any = None) -> _Hook | None:
        """A new hook for this parameter; None if the node is none that adds gradients."""
        if node is None or not hasattr(node, "variable"):
            return None
        owners: list[tuple[str, str]] = []
        hook = _Hook(node, kind, owners, node.register_prehook(partial(attempt, self.arrive, owners)))  # type: ignore[call-arg]
        before = self.known.get(id(parameter))
        if before is not None:
            self.released.append(before.handle)
        self.known[id(parameter)] = hook
        return hook

    def _hold(self, module: nn.Module, parameter: int, hook: _Hook) -> None:
        """Keep ``hook`` as long as ``module`` is alive."""
        key = id(module)
        entry = self._modules.get(key)
        if entry is None or entry[0]() is not module:
            entry = self._modules[key] = weakref.ref(module, partial(attempt, self._let_go, key)), []  # type: ignore[call-arg]
        entry[1].append((parameter, hook))
        hook.holders += 1
        # A module that went just now may have been the last that held it.
        self.known[parameter] = hook

    def _let_go(self, key: int, reference: weakref.ref[nn.Module]) -> None:
        """A module is gone. A backward pass through its parameters may still come: their hooks stay on the nodes."""
        entry = self._modules.get(key)
        if entry is None or entry[0] is not reference:
            return
        del self._modules[key]
        for parameter, hook in entry[1]:
            hook.holders -= 1
            if not hook.holders and self.known.get(parameter) is hook:
                del self.known[parameter]
                self.released.append(hook.handle)

    def prune(self) -> None:
        """Take away the hooks where nothing arrives any more."""
        others, self.released = self.released, []
        for handle in others:
            handle.remove()

    def remove(self) -> None:
        """Take the hooks away, and let go of the parameters, which the nodes keep alive."""
        hooks = list(self.known.values())
        self.known.clear()
        self._modules.clear()
        for hook in hooks:
            hook.handle.remove()
        self.prune()


class ParameterGradients(ParameterHooks):
    """Gradients of parameters, as each backward pass delivers them (before any reduction over ranks)."""

    def __init__(self, calls: CallRecorder) -> None:
        super().__init__(calls.hooks)
        self.session = calls.session
        self.entries = ParameterEntries(calls, each_pass=True)

    def placeholder(self, name: str, module: nn.Module) -> None:
        """The module has run: its entry has a place now, and says so if no gradient arrives."""
        keys: dict[int, str] = {}
        for key, parameter in module._parameters.items():
            # One that has two names in its module counts under the first.
            if parameter is not None and parameter.requires_grad:
                keys.setdefault(id(parameter), key)
        self.entries.place(f"{name}.parameters_grad", keys.values())

    def arrive(self, owners: Sequence[tuple[str, str]], gradients: Sequence[Any]) -> None:
        session, gradient = self.session, gradients[0]
        if gradient is None or not session.recording:
            return
        with _without_functions():
            for entry, key in owners:
                try:
                    self.entries.add(entry, key, gradient)
                except Exception as error:
                    session.fault(entry, error)

    def close_open(self) -> None:
        """Write what has arrived since an entry was last written."""
        self.entries.close_open()

    def begin_step(self) -> None:
        """A new step: nothing has arrived yet."""
        self.entries.begin_step()
        self.prune()


class _Hook:
    """A pre-hook of the node that accumulates one parameter's gradient.

    The node keeps the parameter alive, and so the id under which it is known its own.
    """

    __slots__ = ("handle", "holders", "kind", "node", "owners")

    def __init__(
        self, node: Any, kind: tuple[torch.dtype, torch.device] | None, owners: list[tuple[str, str]], handle: Any
    ) -> None:
        self.node = node
        # Of a parameter of another class, what it was when the node was found.
        self.kind = kind
        # The entries that show the gradient, and the parameter's key in each.
        self.owners = owners
        self.handle = handle
        # So many modules that are alive have run with the parameter.
        self.holders = 0


def _node_of() -> Callable[[Any], Any]:
    """What gives the node that accumulates the gradient of a parameter, as :func:`accumulating_node` does; inside a
    recorded pass of a usual model in a third of the time.
    """
    if private.count_dispatch_modes() or not torch.is_grad_enabled():
        return accumulating_node
    return _node_through_view


def _node_through_view(parameter: torch.Tensor) -> Any:
    # Torch functions are off here, and the view is dropped at once.
    node = parameter.view_as(parameter).grad_fn
    return None if node is None else node.next_functions[0][0]
