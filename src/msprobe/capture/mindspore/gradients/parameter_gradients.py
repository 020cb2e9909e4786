"""Gradients of parameters, one entry for each cell: ``Cell.{path}.{Class}.parameters_grad``.

A hook on a parameter sees its whole gradient, when all its uses have been added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mindspore import nn

from msprobe.capture.mindspore.calls.surface import Surface
from msprobe.capture.parameter_entries import ParameterEntries
from msprobe.capture.units import UnitRecorder


class CellFacts:
    """What the core asks of cells (:class:`msprobe.capture.adapter.Modules`), and their parameters' gradients."""

    def __init__(self, units: UnitRecorder, names: Surface) -> None:
        self.units = units
        self.names = names
        self.session = units.session
        self._handles: list[Any] = []
        self._entries = ParameterEntries(units, each_pass=False)
        # By identity of the parameter: the entries that show it, and its key in each. The parameter is kept.
        self._owners: dict[int, tuple[Any, list[tuple[str, str]]]] = {}
        # The parameters of a cell that have gradients, by its entry. To ask a parameter waits for all work before it,
        # so it is asked once, before the step.
        self._trained: dict[str, list[str]] = {}

    def own_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        """See :class:`msprobe.capture.adapter.Modules`. Names are those of the attributes."""
        return list(self.names.own_parameters(module))

    def is_training(self, module: Any) -> bool:
        """Cells are in evaluation mode until asked otherwise, so that says nothing of most."""
        return True

    def watch(self, named: Iterable[tuple[str, nn.Cell]]) -> None:
        """Put hooks on the parameters of these cells."""
        if not self.units.backward:
            return
        for name, cell in named:
            for key, parameter in self.names.own_parameters(cell):
                entry = f"{name}.parameters_grad"
                if not parameter.requires_grad:
                    continue
                self._trained.setdefault(entry, []).append(key)
                known = self._owners.get(id(parameter))
                if known is None:
                    known = self._owners[id(parameter)] = (parameter, [])
                    self._handles.append(parameter.register_hook(self._hook(known[1])))
                known[1].append((entry, key))

    def remove(self) -> None:
        """Take the hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            self.session.guard(handle.remove)
        self._owners.clear()
        self._trained.clear()

    def ran(self, name: str, module: Any) -> None:
        """The cell's entry has a place now, and says so if no gradient arrives."""
        entry = f"{name}.parameters_grad"
        self._entries.place(entry, self._trained.get(entry, ()))

    def _hook(self, owners: list[tuple[str, str]]) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            thread = self.session.thread
            if not self.session.recording:
                return
            thread.muted += 1
            try:
                for entry, key in owners:
                    self._entries.add(entry, key, gradient)
            except Exception as error:
                self.session.fault(owners[0][0], error)
            finally:
                thread.muted -= 1

        return arrived

    def close_open(self) -> None:
        """Write what has arrived since an entry was last written."""
        self._entries.close_open()

    def begin_step(self) -> None:
        """A new step: nothing has arrived yet."""
        self._entries.begin_step()
