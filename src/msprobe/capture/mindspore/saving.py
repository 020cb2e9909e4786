"""Variables that the user saves by hand (level debug): their values now, their gradients when those arrive.

No tensor is replaced. The gradient of a result is read by a hook on its node in the graph; that of a parameter or
input, which has no node that runs, by a hook on the tensor, taken away at ``step``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msprobe import log
from msprobe.capture.mindspore import graph
from msprobe.capture.mindspore.recorder import MindSporeRecorder
from msprobe.capture.mindspore.tensors import is_tensor

# Containers deeper than this are not saved (one that holds itself has no end).
DEPTH_LIMIT = 50

_PLAIN = (bool, int, float, str)
_ALLOWED = "a tensor, int, float, bool, str, or a list, tuple or dict of them"

_savers: weakref.WeakKeyDictionary[MindSporeRecorder, VariableSaver] = weakref.WeakKeyDictionary()


def save_variable(recorder: MindSporeRecorder, variable: Any, name: Any, save_backward: Any) -> None:
    """Record ``variable`` as ``{name}.{count}.debug`` and its gradients as ``{name}_grad.{count}.debug``.

    What cannot be saved gives a warning; nothing is raised. Of a container the parts that can be saved are.
    """
    saver = _savers.get(recorder)
    if saver is None:
        saver = _savers[recorder] = VariableSaver(recorder)
    saver.save(variable, name, save_backward)


class VariableSaver:
    """Saves variables into the ``debug.json`` of the current step."""

    def __init__(self, recorder: MindSporeRecorder) -> None:
        self.session = session = recorder.session
        self.hooks = recorder.hooks
        self.describer = recorder.describer
        self.keep = recorder.tensors.keep if session.saves_all else None
        self._handles: list[Any] = []
        self._open: dict[_Gradients, None] = {}
        session.before_publish.append(self._write_open)
        session.at_step_end.append(self._forget_step)

    def save(self, variable: Any, name: Any, save_backward: Any) -> None:
        """See :func:`save_variable`."""
        session = self.session
        if not session.is_wanted():
            return
        mistake = _mistake(variable, name, save_backward)
        if mistake:
            log.warning(f"save(): {mistake}; this variable is skipped.")
            return
        session.thread.muted += 1
        try:
            self._save(variable, _one_name(name), save_backward)
        except Exception as error:
            session.fault(f"variable {name!r}", error)
        finally:
            session.thread.muted -= 1

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
            return self.describer.describe(value)
        return self.describer.describe_kept(value, path, self.keep)

    # ------------------------------------------------------------ gradients

    def _gradient_tree(self, value: Any, gradients: _Gradients, place: tuple[Any, ...]) -> Any:
        """The nesting of ``value`` with null in every place; sees to it that gradients are put there."""
        if is_tensor(value):
            self._watch(value, gradients, place)
        elif isinstance(value, dict):
            return {str(key): self._gradient_tree(item, gradients, (*place, str(key))) for key, item in value.items()}
        elif isinstance(value, (list, tuple)):
            return [self._gradient_tree(item, gradients, (*place, i)) for i, item in enumerate(value)]
        return None

    def _watch(self, tensor: Any, gradients: _Gradients, place: tuple[Any, ...]) -> None:
        if not graph.is_readable():
            return
        node = tensor._grad_node
        if node is None:
            return
        if node.is_leaf():
            self._handles.append(tensor.register_hook(self._hook(gradients, place)))
        else:
            self.hooks.before(node, self._arrive_at_node, gradients, place, tensor._output_index)

    def _hook(self, gradients: _Gradients, place: tuple[Any, ...]) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            self._arrive(gradients, place, gradient)

        return arrived

    def _arrive_at_node(
        self, gradients: _Gradients, place: tuple[Any, ...], slot: int, received: Sequence[Any]
    ) -> None:
        self._arrive(gradients, place, received[slot] if slot < len(received) else None)

    def _arrive(self, gradients: _Gradients, place: tuple[Any, ...], gradient: Any) -> None:
        session = self.session
        if gradients.generation != session.generation or gradient is None:
            return
        session.thread.muted += 1
        try:
            gradients.put(place, self._tree(gradient, ".".join(map(str, (gradients.entry, *place)))))
            self._open[gradients] = None
        except Exception as error:
            session.fault(gradients.entry, error)
        finally:
            session.thread.muted -= 1

    def _write_open(self) -> None:
        opened, self._open = self._open, {}
        for gradients in opened:
            self.session.put(gradients.entry, gradients.tree)

    def _forget_step(self) -> None:
        self._open.clear()
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()


class _Gradients:
    """The gradients of one saved variable, while they arrive."""

    __slots__ = ("entry", "generation", "tree")

    def __init__(self, entry: str, generation: int) -> None:
        self.entry = entry
        self.generation = generation
        self.tree: Any = None

    def put(self, place: tuple[Any, ...], described: Any) -> None:
        """The gradient at ``place``. A new tree: the old one may be waiting to be written."""
        self.tree = _replaced(self.tree, place, described)


def _replaced(tree: Any, place: tuple[Any, ...], leaf: Any) -> Any:
    if not place:
        return leaf
    copy = tree.copy()
    copy[place[0]] = _replaced(tree[place[0]], place[1:], leaf)
    return copy


def _one_name(name: str) -> str:
    """The name as entries and files carry it: without what would lead to another folder."""
    return "".join("_" if c in "/\\" or not c.isprintable() else c for c in name)


def _mistake(variable: Any, name: Any, save_backward: Any) -> str:
    """What is wrong with the arguments of save(), in words; empty if nothing is."""
    if not isinstance(name, str):
        return f"name must be a str, found {name!r} ({type(name).__name__})"
    if not isinstance(save_backward, bool):
        return f"save_backward of {name!r} must be True or False, found {save_backward!r}"
    found = list(_leaves(variable, 0))
    if not any(is_tensor(leaf) or isinstance(leaf, _PLAIN) for leaf in found):
        return f"variable {name!r} ({type(variable).__name__}) holds nothing that can be saved; allowed: {_ALLOWED}"
    return ""


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, (list, tuple, dict)) and depth < DEPTH_LIMIT:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item, depth + 1)
    else:
        yield value
