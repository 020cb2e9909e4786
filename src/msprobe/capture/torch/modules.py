"""Every pass through a module of the model: what goes in, what comes out, its parameters, and their gradients.

Modules are watched through forward hooks of their own; gradients are read off the graph as for calls
(:mod:`msprobe.capture.torch.gradients`), so no identity node enters the graph and in-place modules and views
keep working. Gradients of parameters are seen where they are about to be added to ``.grad``: a pre-hook on
the node that does so, which leaves no trace on the parameter itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from msprobe.capture.stacks import CallStack
from msprobe.capture.torch.calls import CallRecorder, backward_of
from msprobe.capture.torch.gradients import (
    ArgumentEdge,
    Boundary,
    Gathering,
    accumulating_node,
    edge_of,
    find_boundary,
    sequence_number,
    shares_of,
)

_quiet = torch._C.DisableTorchFunction
# While torch.jit traces, sizes are tensors and what we do would become part of the trace.
_tracing: Callable[[], Any] = torch._C._get_tracing_state


class ModuleRecorder:
    """Hooks the modules of a model between start and stop."""

    def __init__(self, calls: CallRecorder) -> None:
        self.calls = calls
        self.session = calls.session
        self.hooks = calls.hooks
        self.names: dict[int, str] = {}
        self._handles: list[Any] = []
        # Hooks that are not in place now: (dictionary of the module, key, value).
        self._paused: list[tuple[Any, int, Any]] = []
        self._modules: list[nn.Module] = []
        self._last_models: set[int] = set()
        self.parameters = ParameterGradients(self)
        self.open_watches: dict[_ModuleWatch, None] = {}

    # ------------------------------------------------------------ hooks

    def watch(self, named: Sequence[tuple[str, nn.Module]]) -> None:
        """Put hooks on these modules, each under the name that its entries carry: ``Module.{path}.{Class}``."""
        models = {id(module) for _, module in named}
        if models != self._last_models:
            self.parameters.forget()
            self._last_models = models
        self.watch_more(named)

    def watch_more(self, named: Sequence[tuple[str, nn.Module]]) -> None:
        """As :meth:`watch`, for modules that join those that are watched already."""
        for name, module in named:
            if id(module) in self.names:
                continue
            try:
                self._handles += watch_passes(self, name, module)
            except Exception as error:
                self.session.fault(name, error)
                continue
            self.names[id(module)] = name
            self._modules.append(module)

    def pause(self) -> None:
        """Take the hooks off the modules until :meth:`resume`."""
        if self._paused:
            return
        for handle in self._handles:
            for reference in (handle.hooks_dict_ref, *handle.extra_dict_ref):
                hooks = reference()
                if hooks is not None and handle.id in hooks:
                    self._paused.append((hooks, handle.id, hooks.pop(handle.id)))

    def resume(self) -> None:
        """Put the hooks back."""
        paused, self._paused = self._paused, []
        for hooks, identity, value in paused:
            hooks[identity] = value

    def remove(self) -> None:
        """Take all hooks off the modules."""
        self._paused = []
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self.names.clear()
        self._modules.clear()
        self.session.thread.modules.clear()

    # ------------------------------------------------------------ forward

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module is about to run."""
        session = self.session
        if not session.recording or session.thread.muted or _tracing() is not None:
            return
        with _quiet():
            try:
                self._enter(name, module, args, kwargs)
            except Exception as error:
                session.fault(name, error)

    def _enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        session, calls = self.session, self.calls
        number = session.number(name)
        entry = f"{name}.forward.{number}"
        wanted = calls.filter is None or calls.filter.enter_module(entry)
        recorded = wanted and calls.forward
        parent = session.parent()
        begun = _Pass(name, entry, number, session.next_order(), session.stacks.here(4), parent, module)
        session.thread.modules.append(begun)
        begun.recorded = recorded
        if recorded and calls.input:
            begun.inputs, begun.kwinputs = self._inputs(entry, args, kwargs)
        begun.watched = calls.backward and torch.is_grad_enabled()
        if begun.watched:
            if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
                begun.edges = [edge_of(args[0], "input.0")] if args[0].requires_grad else []
            else:
                begun.edges = [edge_of(t, path) for path, t in calls._tensors(args, kwargs) if t.requires_grad]
            begun.oldest = sequence_number()
            if module._parameters and (wanted or calls.filter is not None):
                self.parameters.watch(name, module)

    def leave(self, name: str, module: nn.Module, result: Any) -> None:
        """The module has run, or raised."""
        session = self.session
        running = session.thread.modules
        if not running or (running[-1].module is not module and all(r.module is not module for r in running)):
            return  # its beginning was not recorded
        with _quiet():
            try:
                while True:
                    done = running.pop()
                    if done.module is module:
                        if isinstance(done, _Pass):
                            self._leave(done, module, result)
                        break
                    # An inner module whose end was never told.
                    if self.calls.filter is not None:
                        self.calls.filter.leave_module(done.entry)
            except Exception as error:
                session.fault(name, error)

    def _leave(self, begun: _Pass, module: nn.Module, result: Any) -> None:
        session, calls = self.session, self.calls
        entry = begun.entry
        error = sys.exc_info()[1] if result is None else None
        if begun.recorded:
            tree: dict[str, Any] = {}
            if calls.input:
                tree["input_args"] = begun.inputs
                tree["input_kwargs"] = begun.kwinputs
            if calls.output:
                tree["output"] = [None] if error is not None else calls._outputs(entry, result)
            tree["parameters"] = self._parameters(entry, module) if module._parameters else {}
            tree["is_recompute"] = begun.stack.recompute
            if error is not None:
                kind = type(error).__name__
                if kind == "_StopRecomputationError":
                    tree["stopped"] = "recomputation ended inside this module"
                else:
                    tree["error"] = f"{kind}: {error}"[:2000]
            if not module.training:
                tree["training"] = False
            if session.settings.buffers:
                tree["buffers"] = {
                    key: calls.describer.describe(value) for key, value in module.named_buffers(recurse=False)
                }
            tree["msprobe"] = {"order": begun.order}
            if begun.stack.source:
                tree["msprobe"]["source"] = begun.stack.source
            if not calls.overflow or calls.keeper.overflowed(entry, tree):
                session.put(entry, tree, begun.stack, begun.parent)
            if begun.number == 0 and module._parameters and calls.backward and not calls.overflow:
                self.parameters.placeholder(begun.name, module)
        if calls.filter is not None:
            calls.filter.leave_module(entry)
        if begun.watched and error is None:
            self._watch(begun, result)

    def _inputs(self, entry: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        calls = self.calls
        if calls.saving and self.session.saves(entry):
            return calls._kept_inputs(entry, args, kwargs)
        describe = calls.describer.describe
        if len(args) == 1 and not kwargs:
            return [describe(args[0])], {}
        return [describe(v) for v in args], {k: describe(v) for k, v in kwargs.items()}

    def _parameters(self, entry: str, module: nn.Module) -> dict[str, Any]:
        calls = self.calls
        if calls.saving and self.session.saves(entry):
            keep = calls.keeper.keep
            return {
                key: calls.describer.describe_kept(value, f"{entry}.parameters.{key}", keep)
                for key, value in module.named_parameters(recurse=False)
            }
        describe = calls.statistics.describe
        return {key: describe(value) for key, value in module._parameters.items() if value is not None}

    # ------------------------------------------------------------ backward

    def _watch(self, begun: _Pass, result: Any) -> None:
        if type(result) is torch.Tensor:
            outputs = [result]
        else:
            outputs = [tensor for _, tensor in self.calls._tensors((result,), {})]
        nodes: dict[Any, list[tuple[int, int]]] = {}
        for index, tensor in enumerate(outputs):
            if tensor.requires_grad and tensor.grad_fn is not None:
                nodes.setdefault(tensor.grad_fn, []).append((tensor.output_nr, index))
        if not nodes:
            return
        edges = begun.edges
        boundary = find_boundary(nodes, edges, begun.oldest) if edges else []
        watch = _ModuleWatch(begun, edges, len(outputs), len(nodes), boundary, self.session.generation)
        for node, places in nodes.items():
            # An argument that is handed through: what arrives at this result is a share of its gradient.
            through = [
                (slot, i) for i, e in enumerate(edges) for slot, _ in places if e.node is node and e.slot == slot
            ]
            for _, index in through:
                watch.shares[index] += 1
            self.hooks.before(node, self._arrive, watch, places, through)
        for place in boundary:
            self.hooks.after(place.node, self._pass_on, watch, place.slots)

    def _arrive(
        self,
        watch: _ModuleWatch,
        places: list[tuple[int, int]],
        through: list[tuple[int, int]],
        received: Sequence[Any],
    ) -> None:
        session = self.session
        if watch.generation != session.generation:
            return
        with _quiet():
            try:
                if not watch.begun:
                    watch.begun = True
                    flt = self.calls.filter
                    watch.wanted = flt is None or flt.enter_module(watch.entry)
                    watch.order = session.next_order()
                    self.open_watches[watch] = None
                keep = self.calls.saving and session.saves(watch.entry)
                for slot, index in places:
                    gradient = received[slot] if slot < len(received) else None
                    if gradient is None or not watch.wanted or not self.calls.input:
                        continue
                    path = f"{watch.entry}.input.{index}"
                    watch.inputs[index] = (
                        self.calls.describer.describe_kept(gradient, path, self.calls.keeper.keep)
                        if keep
                        else self.calls.statistics.describe(gradient)
                    )
                for slot, index in through:
                    watch.gathering.add(index, received[slot], self._describe_share(watch, index))
                watch.arrived += 1
                if not watch.boundaries and watch.arrived >= watch.nodes:
                    self._close(watch)
            except Exception as error:
                session.fault(watch.entry, error)

    def _pass_on(
        self,
        watch: _ModuleWatch,
        slots: list[tuple[int, int]],
        passed_on: Sequence[Any],
        received: Sequence[Any],
    ) -> None:
        if watch.generation != self.session.generation:
            return
        with _quiet():
            try:
                gathering = watch.gathering
                for position, index in slots:
                    gathering.add(index, passed_on[position], self._describe_share(watch, index))
                gathering.arrived += 1
                if gathering.arrived >= watch.boundaries:
                    self._close(watch)
            except Exception as error:
                self.session.fault(watch.entry, error)

    def _close(self, watch: _ModuleWatch) -> None:
        self.open_watches.pop(watch, None)
        calls = self.calls
        if watch.begun:
            if watch.wanted:
                tree: dict[str, Any] = {}
                if calls.input:
                    tree["input"] = watch.inputs
                if calls.output:
                    self._describe_shares(watch, tree)
                calls._put_backward(watch.entry, tree, watch.order, watch.parent)
            if calls.filter is not None:
                calls.filter.leave_module(watch.entry)
        watch.again()

    def _describe_share(self, watch: _ModuleWatch, index: int) -> Callable[[Any], Any]:
        calls = self.calls
        if calls.saving and self.session.saves(watch.entry):
            path = f"{watch.entry}.output.{watch.places[index]}"
            return lambda gradient: calls.describer.describe_kept(gradient, path, calls.keeper.keep)
        return calls.statistics.describe

    def _describe_shares(self, watch: _ModuleWatch, tree: dict[str, Any]) -> None:
        output: list[Any] = []
        words: dict[str, Any] = {}
        merged: dict[str, str] = {}
        for index, path in enumerate(watch.paths):
            described = watch.gathering.result(index, self._describe_share(watch, index))
            same = watch.same_as[index]
            if same is not None:
                merged[path] = same
            if path.startswith("kwargs."):
                words[path.removeprefix("kwargs.")] = described
            else:
                output.append(described)
        tree["output"] = output
        if words:
            tree["kwargs_grads"] = words
        if merged:
            # Several arguments were one tensor: only the gradient of all of them together exists.
            tree["merged"] = merged

    def close_open(self) -> None:
        """Write the passes whose gradients did not all arrive: the rest of the graph was not asked for."""
        with _quiet():
            for watch in list(self.open_watches):
                self.session.guard(self._close, watch)


class _Pass:
    """A module's pass between its beginning and its end."""

    __slots__ = (
        "edges",
        "entry",
        "inputs",
        "kwinputs",
        "module",
        "name",
        "number",
        "oldest",
        "order",
        "parent",
        "recorded",
        "stack",
        "watched",
    )

    def __init__(
        self, name: str, entry: str, number: int, order: int, stack: CallStack, parent: Any, module: nn.Module
    ) -> None:
        self.module = module
        self.name = name
        self.entry = entry
        self.number = number
        self.order = order
        self.stack = stack
        self.parent = parent
        self.recorded = False
        self.watched = False
        self.inputs: Any = []
        self.kwinputs: Any = {}
        self.edges: list[ArgumentEdge] = []
        self.oldest = 0


class _ModuleWatch:
    """One pass of a module, between its forward and its backward."""

    __slots__ = (
        "arrived",
        "begun",
        "boundaries",
        "entry",
        "gathering",
        "generation",
        "inputs",
        "nodes",
        "order",
        "outputs",
        "parent",
        "paths",
        "places",
        "same_as",
        "shares",
        "wanted",
    )

    def __init__(
        self,
        begun: _Pass,
        edges: list[ArgumentEdge],
        outputs: int,
        nodes: int,
        boundary: list[Boundary],
        generation: int,
    ) -> None:
        self.entry = f"{begun.name}.backward.{begun.number}"
        self.parent = begun.parent
        first: dict[tuple[Any, int], str] = {}
        self.same_as: list[str | None] = []
        for edge in edges:
            key = (id(edge.tensor), -1) if edge.node is None else (id(edge.node), edge.slot)
            known = first.setdefault(key, edge.path)
            self.same_as.append(None if known == edge.path else known)
        # Paths only: a node or a leaf kept here would keep the graph alive.
        self.paths = [edge.path for edge in edges]
        self.places: list[str] = []
        positional = 0
        for path in self.paths:
            if path.startswith("kwargs."):
                self.places.append(path)
            else:
                self.places.append(str(positional))
                positional += 1
        self.outputs = outputs
        self.nodes = nodes
        self.boundaries = len(boundary)
        self.shares = shares_of(boundary, len(edges))
        self.generation = generation
        self.again()

    def again(self) -> None:
        """Ready for a pass (the graph may be walked backward more than once)."""
        self.begun = False
        self.wanted = False
        self.order = 0
        self.arrived = 0
        self.inputs: list[Any] = [None] * self.outputs
        self.gathering = Gathering(self.shares)


class ParameterGradients:
    """Gradients of parameters, as each backward pass delivers them (before any reduction over ranks)."""

    def __init__(self, modules: ModuleRecorder) -> None:
        self.modules = modules
        self.session = modules.session
        # id(parameter) -> the node that accumulates its gradient; it keeps the parameter alive, and so the id
        # its own. Kept from step to step: finding the node costs more than the hook.
        self._nodes: dict[int, Any] = {}
        self._handles: dict[int, Any] = {}
        self._seen: dict[str, list[int]] = {}
        self._owners: dict[int, list[tuple[str, str]]] = {}
        self._trees: dict[str, dict[str, Any]] = {}
        self._passes: dict[tuple[str, str], int] = {}
        self._waiting: dict[str, None] = {}
        self._earlier: dict[str, list[dict[str, Any]]] = {}

    def watch(self, name: str, module: nn.Module) -> None:
        """See to it that the gradients of the module's own parameters are noticed."""
        if self.modules.hooks.suspended:
            return
        # FSDP changes the parameters of a module between its passes; most modules keep theirs.
        seen = [id(parameter) for parameter in module._parameters.values()]
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
        calls = self.modules.calls
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
                    tree[key] = [described]
                    self._waiting[entry] = None
                    if all(value != [None] for value in tree.values()):
                        self._write(entry)
                except Exception as error:
                    session.fault(entry, error)

    def _write(self, entry: str) -> None:
        self._waiting.pop(entry, None)
        calls = self.modules.calls
        tree = self._trees[entry]
        if calls.overflow and not calls.keeper.overflowed(entry, {"output": list(tree.values())}):
            return
        self.session.put(entry, dict(tree))

    def close_open(self) -> None:
        """Write what has arrived since an entry was last written; several passes also one by one."""
        for entry in list(self._waiting):
            self.session.guard(self._write, entry)

    def write_passes(self) -> None:
        """Where a parameter got gradients from several passes, each pass has an entry:
        ``parameters_grad.{k}``.
        """
        if self.modules.calls.overflow:
            return
        for entry, passes in self._earlier.items():
            if len(passes) > 1:
                for number, tree in enumerate(passes):
                    self.session.guard(self.session.put, f"{entry}.{number}", tree)

    def begin_step(self) -> None:
        """A new step: nothing has arrived yet."""
        self._trees.clear()
        self._passes.clear()
        self._waiting.clear()
        self._earlier.clear()

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


class Passes(Protocol):
    """Whoever wants to know of a module's passes."""

    def enter(self, name: str, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module is about to run."""

    def leave(self, name: str, module: nn.Module, result: Any) -> None:
        """The module has run, or raised."""


def watch_passes(passes: Passes, name: str, module: nn.Module) -> list[Any]:
    """Tell ``passes`` of each pass of ``module``, under ``name``. Returns what removes the hooks again."""
    return [
        module.register_forward_pre_hook(_Before(passes, name), with_kwargs=True),
        module.register_forward_hook(_After(passes, name), with_kwargs=True, always_call=True),
    ]


class _Hook:
    """A hook on a module of the user. A copy of the module (deepcopy, pickle) gets one that does nothing."""

    __slots__ = ("name", "recorder")

    def __init__(self, recorder: Passes | None = None, name: str = "") -> None:
        self.recorder = recorder
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), ())

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return type(self)()


class _Before(_Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.recorder is not None:
            self.recorder.enter(self.name, module, args, kwargs)


class _After(_Hook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        if self.recorder is not None:
            self.recorder.leave(self.name, module, result)


__all__ = ["ModuleRecorder", "ParameterGradients", "backward_of"]
