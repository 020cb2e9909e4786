"""The models of a script that knows nothing of msprobe, as it calls them, and what their modules are called."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable

from torch import nn

from msprobe.capture.identity import IdentitySet
from msprobe.capture.torch.modules.models import name_modules
from msprobe.capture.torch.modules.user_modules import modules
from msprobe.capture.torch.optimizers.optimizer_hooks import OptimizerRecorder
from msprobe.capture.torch.recorder import TorchRecorder
from msprobe.launcher.direct_calls import model_that_runs


class ScriptModels:
    """Each with its place in the order of first calls, which its names carry: ``Module.{path}...`` for the first,
    ``Module.{Class}_{k}.{path}...`` for the others. ``recorder``: gives the one that records now.
    """

    def __init__(self, recorder: Callable[[], TorchRecorder]) -> None:
        self._recorder = recorder
        self._models: list[tuple[int, weakref.ref[nn.Module]]] = []
        self._count = 0
        self._known = IdentitySet()
        # Modules of models that are known, called on their own.
        self._inside = IdentitySet()
        # The models themselves are named as well.
        self.with_roots = False

    def __contains__(self, module: object) -> bool:
        return module in self._known

    def model_of(self, module: nn.Module, frame: types.FrameType) -> nn.Module | None:
        """The model that ``module``, called in ``frame``, stands for; None for one inside of a model that is known."""
        if module in self._known:
            return module
        if module in self._inside or any(inner is module for known in self._known for inner in modules(known)):
            self._inside.add(module)
            return None
        return model_that_runs(module, frame) or module

    def add(self, module: nn.Module) -> int:
        """One more model; gives its place."""
        index = self._count
        self._count += 1
        self._models.append((index, weakref.ref(module)))
        self._known.add(module)
        return index

    def names_of(self, index: int, module: nn.Module) -> list[tuple[str, nn.Module]]:
        """The modules to watch in the model of this place, and what their entries are called."""
        settings = self._recorder().settings
        named = name_modules(module, settings.record_root or index > 0 or self.with_roots)
        lead = f"Module.{_lead(index, module)}"
        return [(lead + name.removeprefix("Module."), inner) for name, inner in named]

    def give(self) -> list[tuple[str, nn.Module]]:
        """Let the recorder know all models that there are, and what their parameters are called: as their modules are,
        so that neither changes when one more comes. Returns the modules to watch, with their names.
        """
        recorder = self._recorder()
        alive = [(i, model) for i, model in ((i, reference()) for i, reference in self._models) if model is not None]
        models = [model for _, model in alive]
        leads = [_lead(i, model) for i, model in alive]
        recorder.models.give(models if self._count != 1 else models[0] if models else None, leads)
        for part in optimizer_parts(recorder):
            part.learn()
        return [pair for i, model in alive for pair in self.names_of(i, model)]

    def let_go(self) -> None:
        """Those that are gone need no place in the list."""
        self._models = [(index, reference) for index, reference in self._models if reference() is not None]

    def forget(self) -> None:
        """Begin anew: no model is known."""
        self._models.clear()
        self._count = 0
        self._known.clear()
        self._inside.clear()


def optimizer_parts(recorder: TorchRecorder) -> list[OptimizerRecorder]:
    """The parts of ``recorder`` that record the steps of optimizers."""
    return [part for part in recorder.parts if isinstance(part, OptimizerRecorder)]


def _lead(index: int, module: nn.Module) -> str:
    """What the names of a model's modules and parameters begin with; nothing for the first."""
    return f"{type(module).__name__}_{index}." if index else ""
