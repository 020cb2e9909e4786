"""The entries of parameters' gradients, one for each module: ``{name}.parameters_grad``, a key for each parameter.

An entry has its place behind the first forward entry of its module; what has no gradient there is ``[null]``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msprobe.capture.units import Writer

# What stands in an entry until the gradient of a parameter arrives.
NOTHING = [None]


class ParameterEntries:
    """Writes the gradients of parameters, as backward passes bring them."""

    def __init__(self, writer: Writer, each_pass: bool) -> None:
        """``each_pass``: where a parameter gets several gradients in a step, each pass has an entry of its own as
        well, ``parameters_grad.{k}``; the entry itself has the last.
        """
        self.writer = writer
        self.session = writer.session
        self.each_pass = each_pass
        # Entry -> parameter -> its gradient; and how many came.
        self._trees: dict[str, dict[str, Any]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        # Entries that have a place, or got a gradient, since they were last written.
        self._waiting: dict[str, None] = {}
        # The gradients of each pass, and the entries that got a further one since they were last written.
        self._passes: dict[str, list[dict[str, Any]]] = {}
        self._several: dict[str, None] = {}

    def place(self, entry: str, keys: Iterable[str]) -> None:
        """The module has run: its entry has a place now, and says so if no gradient arrives."""
        if entry in self._trees:
            return
        tree: dict[str, Any] = dict.fromkeys(keys, NOTHING)
        if tree:
            self._trees[entry] = tree
            if self.session.reserve(entry):
                self._waiting[entry] = None
            else:
                self._write(entry)

    def add(self, entry: str, key: str, gradient: Any) -> None:
        """A backward pass has brought the gradient of one parameter."""
        writer = self.writer
        tree = self._trees.get(entry)
        if tree is None:
            if writer.filter is not None and not writer.filter.wants_call(entry):
                return
            tree = self._trees[entry] = {}
        count = self._counts.get((entry, key), 0)
        self._counts[entry, key] = count + 1
        path = f"{entry}.{key}" if count == 0 else f"{entry}.{count}.{key}"
        described = tree[key] = [writer.described(gradient, path, entry)]
        if self.each_pass:
            passes = self._passes.get(entry)
            if passes is None:
                passes = self._passes[entry] = []
            while len(passes) <= count:
                passes.append({})
            passes[count][key] = described
            if count:
                self._several[entry] = None
        self._waiting[entry] = None
        if NOTHING not in tree.values():
            self._write(entry)

    def _write(self, entry: str) -> None:
        self._waiting.pop(entry, None)
        writer, tree = self.writer, self._trees[entry]
        if writer.overflow:
            self.session.put_checked(entry, dict(tree), self._is_kept)
        else:
            self.session.put(entry, dict(tree))

    def _is_kept(self, entry: str, tree: dict[str, Any]) -> bool:
        return self.writer.is_kept(entry, {"output": list(tree.values())})

    def close_open(self) -> None:
        """Write what has arrived since an entry was last written; several passes also one by one."""
        for entry in list(self._waiting):
            self.session.guard(self._write, entry)
        several = list(self._several)
        self._several.clear()
        if not self.writer.overflow:
            for entry in several:
                for number, tree in enumerate(self._passes[entry]):
                    self.session.guard(self.session.put, f"{entry}.{number}", dict(tree))

    def begin_step(self) -> None:
        """A new step: nothing has arrived yet."""
        self._trees.clear()
        self._counts.clear()
        self._waiting.clear()
        self._passes.clear()
        self._several.clear()
