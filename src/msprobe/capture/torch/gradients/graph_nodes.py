"""Gradients of one call, read off the autograd graph without adding to it.

Hooks are put on nodes that exist anyway. Those on the node of a result see the gradients that arrive there;
those on the *boundary* nodes, whose edges lead out of the call to its arguments, see exactly this call's
share of the gradients that leave it. No tensor is replaced, no node is added: in-place writes, views and the
order in which gradients are summed stay as they are.

The boundary is found by walking from the results' nodes. The walk ends at the edges of the arguments, which
were noted before the call, at parameters, and at nodes that are older than the call (the sequence number
says).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

from msprobe.capture.records import PLAIN, parts_of
from msprobe.capture.torch import private
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.guard import attempt, pass_on
from msprobe.messages import said

Node = Any


sequence_number = private.sequence_number
AccumulateGrad, CopySlices = private.AccumulateGrad, private.CopySlices

# A call that builds more nodes than this is not followed to its arguments.
WALK_LIMIT = 20_000


class ArgumentEdge(NamedTuple):
    """A tensor argument as the graph knows it before the call: its node (None for a leaf), slot and index
    path.
    """

    node: Node
    slot: int
    path: str
    tensor: Any


def identity_of(edge: ArgumentEdge) -> tuple[str, tuple[int, int]]:
    """Its index path, and what distinguishes the tensor from others."""
    node, slot, path, tensor = edge
    return path, (id(tensor), -1) if node is None else (id(node), slot)


class Boundary(NamedTuple):
    """A node of the call with edges to arguments: (position among its gradients, index of the argument)."""

    node: Node
    slots: list[tuple[int, int]]

    def without(self, arguments: Container[int]) -> Boundary:
        """The same node, leaving out these arguments."""
        return Boundary(self.node, [(position, index) for position, index in self.slots if index not in arguments])


class Base(NamedTuple):
    """A result that is a view: which result it is, and what part of the whole tensor it is."""

    slot: int
    output: int
    whole: torch.Size
    whole_stride: tuple[int, ...]
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int

    def of(self, gradient: Any) -> Any:
        """The part of a gradient of the whole tensor."""
        with OwnWork():
            laid_out = torch.empty_strided(
                self.whole, self.whole_stride, dtype=gradient.dtype, device=gradient.device
            ).copy_(gradient)
            return laid_out.as_strided(self.shape, self.stride, self.offset)


def is_foreign(node: Node) -> bool:
    """Whether a node of the graph is that of a custom Function, of Python or C++."""
    return isinstance(node, BackwardCFunction) or type(node).__name__ == "CppFunction"


def edge_of(tensor: Any, path: str) -> ArgumentEdge:
    """The gradient edge of a tensor that requires grad. A leaf is kept itself, without creating its node."""
    node = tensor.grad_fn
    if node is None:
        return ArgumentEdge(None, 0, path, tensor)
    return ArgumentEdge(node, tensor.output_nr, path, None)


def accumulating_node(parameter: Any) -> Node:
    """The node that adds gradients to ``parameter.grad``; None if it is no leaf that requires grad.

    The graph is asked through a view that is dropped at once; no mode of the user sees it.
    """
    if not parameter.requires_grad or parameter.grad_fn is not None:
        return None
    with contextlib.ExitStack() as stack:
        stack.enter_context(private.without_functions())
        if private.count_dispatch_modes():
            stack.enter_context(private.without_dispatch_modes())
        stack.enter_context(torch.enable_grad())
        node = parameter.view_as(parameter).grad_fn
    return None if node is None else node.next_functions[0][0]


def find_boundary(nodes: Iterable[Node], edges: Sequence[ArgumentEdge], oldest: int) -> list[Boundary]:
    """The boundary between a call's nodes and its arguments.

    ``nodes``: the nodes of the results. ``edges``: the arguments'. ``oldest``: the autograd sequence number
    before the call; nodes below it belong to what came before.

    An argument that is a view and was written to in the call has lost the edge it had: what leads there now
    leads to the tensor it is a view of, whose gradient stands for its own.
    """
    # The same tensor passed twice: its edges coincide, the first argument stands for all.
    arguments: dict[tuple[Node, int], int] = {}
    leaves: dict[int, int] = {}
    for index, (edge_node, edge_slot, _, tensor) in enumerate(edges):
        if edge_node is None:
            leaves.setdefault(id(tensor), index)
        else:
            arguments.setdefault((edge_node, edge_slot), index)
    boundaries: list[Boundary] = []
    written: list[Node] = []
    # A result that is an argument handed through brings a node that is older than the call.
    todo = [node for node in nodes if node._sequence_nr() >= oldest]
    seen: set[Node] = set(todo)
    while todo:
        node = todo.pop()
        slots: list[tuple[int, int]] = []
        for position, edge in enumerate(node.next_functions):
            reached = arguments.get(edge)
            if reached is None:
                target = edge[0]
                if target is None:
                    continue
                if type(target) is AccumulateGrad:
                    reached = leaves.get(id(target.variable)) if leaves else None
                elif target._sequence_nr() >= oldest:
                    if target not in seen and len(seen) < WALK_LIMIT:
                        seen.add(target)
                        todo.append(target)
                elif position == 0 and type(node) is CopySlices:
                    written.append(node)
                if reached is None:
                    continue
            slots.append((position, reached))
        if slots:
            boundaries.append(Boundary(node, slots))
    if written:
        met = {index for place in boundaries for _, index in place.slots}
        for (node, _), index in arguments.items():
            if index not in met:
                boundaries += [Boundary(w, [(0, index)]) for w in written if _is_view_of(node, w.next_functions[0][0])]
    return boundaries


def bases_of(outputs: Sequence[Any]) -> dict[Node, list[Base]]:
    """The nodes of the tensors of which ``outputs`` are views. If one of these is written to later, its node is
    replaced; that of the whole tensor still runs, and sees the gradient of what was there before.
    """
    bases: dict[Node, list[Base]] = {}
    for index, tensor in enumerate(outputs):
        whole = tensor._base
        if whole is None or whole.grad_fn is None or not tensor.requires_grad:
            continue
        if tensor.layout is not torch.strided or whole.layout is not torch.strided:
            continue
        part = Base(
            whole.output_nr,
            index,
            whole.shape,
            whole.stride(),
            tensor.shape,
            tensor.stride(),
            tensor.storage_offset() - whole.storage_offset(),
        )
        bases.setdefault(whole.grad_fn, []).append(part)
    return bases


def _is_view_of(node: Node, base: Node) -> bool:
    for _ in range(8):
        if node is base:
            return True
        following = node.next_functions
        if len(following) != 1 or following[0][0] is None:
            return False
        node = following[0][0]
    return False


def has_inner_nodes(node: Node, oldest: int) -> bool:
    """True if ``node`` does not lead straight to what was there before the call: other nodes of it lie between."""
    for target, _ in node.next_functions:
        if target is not None and type(target) is not AccumulateGrad and target._sequence_nr() >= oldest:
            return True
    return False


def shares_of(boundary: Sequence[Boundary], arguments: int) -> list[int]:
    """How many shares the gradient of each argument has."""
    shares = [0] * arguments
    for place in boundary:
        for _, index in place.slots:
            shares[index] += 1
    return shares


class GradientGathering:
    """The gradients of one pass through a call, while they arrive.

    An argument that is used several times inside the call gets the sum of its shares, added outside the graph. A
    gradient that comes in one piece is described at once and let go: a tensor that is held any longer could no
    longer be taken over by the node that accumulates it.
    """

    __slots__ = ("arrived", "described", "expected", "passed", "sums")

    def __init__(self, expected: list[int]) -> None:
        self.expected = expected
        self.arrived = 0
        # How many shares have come of each argument that is used several times.
        self.passed: dict[int, int] = {}
        self.sums: dict[int, Any] = {}
        self.described: dict[int, Any] = {}

    def add(self, index: int, gradient: Any, describe: Callable[[Any], Any]) -> None:
        """One share of the gradient of argument ``index`` (None: no gradient came this way)."""
        if self.expected[index] == 1:
            if gradient is not None:
                self.described[index] = describe(gradient)
            return
        self.passed[index] = self.passed.get(index, 0) + 1
        if gradient is None:
            return
        before = self.sums.get(index)
        if type(gradient) is not torch.Tensor and private.is_wrapper(gradient):
            self.sums[index] = _sum_of_distributed(before, gradient)
            return
        with OwnWork():
            if before is None:
                # A copy: the engine may add to a gradient in place only while nobody else holds it.
                self.sums[index] = gradient.detach().clone()
            else:
                self.sums[index] = before + gradient

    def take(self, index: int) -> Any:
        """The sum of the shares so far, which is reported no more; None if none has come."""
        self.described[index] = None
        return self.sums.pop(index, None)

    def has(self, index: int) -> bool:
        """Whether anything of the gradient of argument ``index`` arrived."""
        return index in self.described or index in self.sums

    def result(self, index: int, describe: Callable[[Any], Any]) -> Any:
        """The description of the gradient of argument ``index``; None if nothing arrived."""
        if index in self.sums:
            return describe(self.sums[index])
        return self.described.get(index)


def _sum_of_distributed(before: Any, gradient: Any) -> Any:
    """``before`` and ``gradient`` added, each rank what it holds of them; a wrapper of other tensors has no memory of
    its own that a kernel could read. TypeError for what cannot be added without asking other ranks.
    """
    own, spec = getattr(gradient, "_local_tensor", None), getattr(gradient, "_spec", None)
    if own is None or spec is None:
        raise TypeError(said("gradient-shares-of-type", type(gradient).__name__))
    if before is not None and before._spec.placements != spec.placements:
        raise TypeError(said("gradient-shares-distributed"))
    with OwnWork():
        local = own.detach().clone() if before is None else before._local_tensor + own
    return type(gradient)(local, spec, requires_grad=False)


def collect_tensors(
    value: Any, path: str, tensors: list[tuple[str, Any]], depth: int = 0, seen: set[int] | None = None
) -> None:
    """Append the tensors in ``value``, each with the index path it has in a record. Each container is followed once, 20
    levels deep; those that fail when they are looked at are left out.
    """
    if isinstance(value, torch.Tensor):
        tensors.append((path, value))
    elif depth < 20 and type(value) not in PLAIN:
        try:
            parts = parts_of(value)
            if parts is None:
                return
            seen = set() if seen is None else seen
            if id(value) in seen:
                return
            seen.add(id(value))
            names, items = parts
            for name, item in zip(range(len(items)) if names is None else names, items, strict=True):
                collect_tensors(item, f"{path}.{name}", tensors, depth + 1, seen)
        except Exception as error:
            pass_on(error)
            return


class NodeHooks:
    """Hooks of ours on nodes of the graph; all can be taken away at once."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        # True: nothing is hooked, because the backward pass will be compiled.
        self.suspended = False

    def before(self, node: Node, work: Callable[..., Any], *bound: Any) -> None:
        """Call ``work(*bound, gradients)`` when gradients arrive at ``node``; None, or others in their place."""
        if self.suspended:
            return
        self._handles.append(node.register_prehook(partial(attempt, work, *bound)))

    def after(self, node: Node, work: Callable[..., Any], *bound: Any) -> None:
        """Call ``work(*bound, gradients passed on, gradients received)`` when ``node`` has run; None, or others to pass
        on.
        """
        if self.suspended:
            return
        self._handles.append(node.register_hook(partial(attempt, work, *bound)))

    def prune(self) -> None:
        """Forget the hooks of nodes that are gone (a step that never ends would collect them)."""
        self._handles = [handle for handle in self._handles if handle.hooks_dict_ref() is not None]

    def remove(self) -> None:
        """Take all hooks away; nodes that are gone took theirs along."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
