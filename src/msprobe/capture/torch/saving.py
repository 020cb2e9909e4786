"""Variables that the user saves by hand (level debug): their values now, their gradients when those arrive.

Gradients are read by hooks on graph nodes that exist anyway; no tensor is replaced and the tensors
themselves carry no hook, so they can be copied and pickled as before. ``step`` takes the hooks away.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from msprobe import log
from msprobe.capture.records import Describer
from msprobe.capture.torch.recorder import TorchRecorder

# Containers deeper than this are not saved (one that holds itself has no end).
DEPTH_LIMIT = 50
# While gradients of a large container arrive one by one, its record is written again about this often.
_WRITES_PER_RECORD = 16

_PLAIN = (bool, int, float, str)
_ALLOWED = "a tensor, int, float, bool, str, or a list, tuple or dict (with str keys) of them and of None"
_LONGEST_PLACE = 60

_savers: weakref.WeakKeyDictionary[TorchRecorder, VariableSaver] = weakref.WeakKeyDictionary()


def save_variable(recorder: TorchRecorder, variable: Any, name: str, save_backward: bool) -> None:
    """Record ``variable`` as ``{name}.{count}.debug`` and its gradients as ``{name}_grad.{count}.debug``.

    What cannot be saved gives a warning; nothing is raised.
    """
    saver = _savers.get(recorder)
    if saver is None:
        saver = _savers[recorder] = VariableSaver(recorder)
    saver.save(variable, name, save_backward)


class VariableSaver:
    """Saves variables into the ``debug.json`` of the current step."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self.session = recorder.session
        self.hooks = recorder.hooks
        self.statistics = statistics = recorder.statistics
        self.keep = recorder.keeper.keep if recorder.session.saves_all else None
        # Nobody watches the calls between two saves, so nothing that is known of a tensor can be relied upon.
        own_types = {
            kind: describe
            for kind, describe in recorder.describer.by_type.items()
            if not issubclass(kind, torch.Tensor)
        }
        self.describer = Describer(lambda t: statistics.describe(t, False), recorder.describer.is_tensor, own_types)
        # Leaves have no node in the graph but the one that accumulates their gradient; it lives as long as
        # it is held.
        self._held: list[Any] = []
        self._open: dict[_Gradients, None] = {}
        self.session.before_publish.append(self._write_open)
        self.session.at_step_end.append(self._forget_step)

    def save(self, variable: Any, name: str, save_backward: bool) -> None:
        """See :func:`save_variable`."""
        session = self.session
        if not session.is_wanted():
            return
        with torch._C.DisableTorchFunction():
            try:
                mistake = _mistake(variable, name, save_backward)
                if mistake:
                    log.warning(f"save(): {mistake}; this variable is skipped.")
                    return
                self._save(variable, _one_name(name), save_backward)
            except Exception as error:
                session.fault(f"variable {name!r}", error)

    def _save(self, variable: Any, name: str, save_backward: bool) -> None:
        session = self.session
        count = session.number(f"debug {name}")
        entry = f"{name}.{count}.debug"
        session.put(entry, self._tree(variable, entry))
        if save_backward:
            gradients = _Gradients(f"{name}_grad.{count}.debug", session.generation)
            gradients.tree = self._gradient_tree(variable, gradients, ())
            session.put(gradients.entry, gradients.tree)

    def _tree(self, value: Any, path: str) -> Any:
        if self.keep is None:
            return self.describer.describe_kept(value, path, _described)
        return self.describer.describe_kept(value, path, self.keep)

    # ------------------------------------------------------------ gradients

    def _gradient_tree(self, value: Any, gradients: _Gradients, place: tuple[Any, ...]) -> Any:
        """The nesting of ``value`` with null in every place; sees to it that gradients are put there."""
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                self._watch(value, gradients, place)
        elif isinstance(value, dict):
            return {key: self._gradient_tree(item, gradients, (*place, key)) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            return [self._gradient_tree(item, gradients, (*place, i)) for i, item in enumerate(value)]
        return None

    def _watch(self, tensor: torch.Tensor, gradients: _Gradients, place: tuple[Any, ...]) -> None:
        node, slot = tensor.grad_fn, tensor.output_nr
        if node is None:
            node, slot = _accumulating_node(tensor), 0
            if node is None:
                return
            self._held.append(node)
        gradients.expected += 1
        self.hooks.before(node, partial(self._arrive, gradients, place, slot))

    def _arrive(self, gradients: _Gradients, place: tuple[Any, ...], slot: int, received: Sequence[Any]) -> None:
        session = self.session
        if gradients.generation != session.generation:
            return
        gradient = received[slot] if slot < len(received) else None
        if gradient is None:
            return
        with torch._C.DisableTorchFunction():
            try:
                path = ".".join(map(str, (gradients.entry, *place)))
                with session.lock:
                    gradients.put(place, self._tree(gradient, path))
                    if gradients.is_due:
                        self._write(gradients)
                    else:
                        self._open[gradients] = None
            except Exception as error:
                session.fault(gradients.entry, error)

    def _write(self, gradients: _Gradients) -> None:
        self._open.pop(gradients, None)
        gradients.unwritten = 0
        self.session.put(gradients.entry, gradients.tree)

    def _write_open(self) -> None:
        for gradients in list(self._open):
            self._write(gradients)

    def _forget_step(self) -> None:
        self._held.clear()
        self._open.clear()


class _Gradients:
    """The gradients of one saved variable, while they arrive."""

    __slots__ = ("arrived", "entry", "expected", "generation", "tree", "unwritten")

    def __init__(self, entry: str, generation: int) -> None:
        self.entry = entry
        self.generation = generation
        self.tree: Any = None
        self.expected = 0
        self.arrived = 0
        self.unwritten = 0

    def put(self, place: tuple[Any, ...], described: Any) -> None:
        self.arrived += 1
        self.unwritten += 1
        if not place:
            self.tree = described
            return
        # A new tree: the old one may be waiting to be written.
        self.tree = _replaced(self.tree, place, described)

    @property
    def is_due(self) -> bool:
        return self.arrived >= self.expected or self.unwritten >= max(1, self.expected // _WRITES_PER_RECORD)


def _accumulating_node(leaf: torch.Tensor) -> Any:
    """The node that adds to the gradient of ``leaf``; it exists as long as somebody holds it."""
    with torch.enable_grad():
        view = leaf.view_as(leaf)
    return view.grad_fn.next_functions[0][0] if view.grad_fn is not None else None


def _replaced(tree: Any, place: tuple[Any, ...], leaf: Any) -> Any:
    if not place:
        return leaf
    copy = tree.copy()
    copy[place[0]] = _replaced(tree[place[0]], place[1:], leaf)
    return copy


def _described(tensor: Any, description: Any, path: str) -> Any:
    return description


def _one_name(name: str) -> str:
    """The name as entries and files carry it: without what would lead to another folder."""
    return "".join("_" if c in "/\\" or not c.isprintable() else c for c in name)


def _mistake(variable: Any, name: Any, save_backward: Any) -> str:
    """What is wrong with the arguments of save(), in words; empty if nothing is."""
    if not isinstance(name, str):
        return f"name must be a str, found {name!r} ({type(name).__name__})"
    if not isinstance(save_backward, bool):
        return f"save_backward of {name!r} must be True or False, found {save_backward!r}"
    if variable is None:
        return f"variable {name!r} is None; allowed: {_ALLOWED}"
    return next(_wrong_parts(variable, f"variable {name!r}", 0), "")


def _wrong_parts(value: Any, where: str, depth: int) -> Iterator[str]:
    if value is None or isinstance(value, (torch.Tensor, *_PLAIN)):
        return
    if isinstance(value, (list, tuple, dict)):
        if depth >= DEPTH_LIMIT:
            yield f"{where[:_LONGEST_PLACE]} is nested deeper than {DEPTH_LIMIT}"
            return
        if isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, str):
                    yield from _wrong_parts(item, f"{where}[{key!r}]", depth + 1)
                else:
                    yield f"{where} has the key {key!r}, keys must be str"
        else:
            for index, item in enumerate(value):
                yield from _wrong_parts(item, f"{where}[{index}]", depth + 1)
        return
    yield f"{where} is of type {type(value).__name__}; allowed: {_ALLOWED}"
