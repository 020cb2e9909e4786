"""The gradient probe in PyTorch: a listener for optimizer steps that reads gradients as the optimizer finds them.

It watches the optimizers that update a parameter of the model. Of a program whose optimizers update copies of the
parameters (float32 ones beside half ones) all optimizers count, and the gradients are those of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from msprobe import log
from msprobe.capture import native
from msprobe.capture.events import Event, EventKind, Failure
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.optimizer_turns import OptimizerTurns, Outcome
from msprobe.capture.torch.modules.user_modules import named_parameters
from msprobe.capture.torch.optimizers.updated_parameters import UpdatedParameters, gradient_of
from msprobe.capture.torch.recorder import RANKS
from msprobe.capture.torch.start_arguments import check_model
from msprobe.capture.torch.tensors.digest import address_of
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_unusual import ORDINARY, unwrap
from msprobe.capture.torch.training import TrainingListening
from msprobe.config.settings import Settings
from msprobe.errors import InvalidInputError
from msprobe.grad_probe.measure import ProbedGradient, measure
from msprobe.grad_probe.probe import Probe
from msprobe.grad_probe.torch_devices import DeviceStep
from msprobe.grad_probe.writer import Entry
from msprobe.messages import said

_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


class GradientProbe(Observer):
    """Watches one model, or several that are given as a list, from :meth:`watch` to :meth:`end`."""

    wants = Wants(kinds=frozenset[EventKind](("optimizer",)))
    #: Nothing here uses random numbers, writes to a tensor or is part of a graph; steps are reported under no_grad.
    is_careful = True

    def __init__(self, settings: Settings) -> None:
        self.probe = Probe(settings, "pytorch")
        self._models: list[nn.Module] = []
        self._training: TrainingListening | None = None

    def watch(self, model: Any) -> None:
        """Begin. Raises InvalidInputError for what is no model, PathError where the settings refuse what is there."""
        if self._training is not None:
            log.warning(said("gradients-watched-already"))
            return
        if isinstance(model, torch.optim.Optimizer):
            raise InvalidInputError(said("gradient-model-wrong", type(model).__name__))
        try:
            check_model(model)
        except InvalidInputError as problem:
            raise InvalidInputError(problem.message.replace("start()", "monitor()", 1)) from None
        training = TrainingListening(self)
        self.probe.check_folder(RANKS.current())
        self._models = list(model) if isinstance(model, (list, tuple)) else [model]
        self._updated = updated = UpdatedParameters(self._read_names)
        self._turns = OptimizerTurns((), updated.trained_by, updated.optimizers)
        # Without names of modules: optimizer steps alone are of interest.
        training.recorder.start([])
        self._training = training
        self.probe.announce(RANKS.current(), [name for name, _ in updated.named])

    def end(self) -> None:
        """Take all hooks away and wait for the files."""
        training, self._training = self._training, None
        if training is None:
            return
        training.end()
        self.probe.end_training(RANKS.current(), self._turns.has_begun)
        why = said("no-watched-optimizer")
        self.probe.close(why if self._updated.named else said("model-lacks-parameters"))
        del self._updated, self._turns
        self._models = []

    def _read_names(self) -> list[tuple[str, torch.Tensor]]:
        """The parameters that are wanted."""
        several = len(self._models) > 1
        named = [
            (f"{index}.{name}" if several else name, parameter)
            for index, model in enumerate(self._models)
            for name, parameter in named_parameters(model)
        ]
        wanted = self.probe.wanted_names([name for name, _ in named])
        return [(name, parameter) for name, parameter in named if name in wanted]

    # ---------------------------------------------------------------- the moments of a step

    def before(self, event: Event) -> None:
        """An optimizer is about to step."""
        if event.is_skipped:  # type: ignore[attr-defined]
            return
        optimizer = event.optimizer  # type: ignore[attr-defined]
        places = self._updated.places(optimizer)
        if not places:
            return
        if self._turns.begins_next(optimizer) and self._turns.begin_next():
            self._end_step()
        if not event.has_closure:  # type: ignore[attr-defined]
            self._read(places)

    def after(self, event: Event, result: Any) -> None:
        """It has stepped; what a closure computed is there now."""
        self._note(event, "taken")

    def failed(self, event: Failure) -> None:
        """It has raised, or a scaler has left it out."""
        self._note(event.event, "skipped" if event.event.is_skipped else "raised")  # type: ignore[attr-defined]

    def _note(self, event: Event, outcome: Outcome) -> None:
        optimizer = event.optimizer  # type: ignore[attr-defined]
        places = self._updated.places(optimizer)
        if not places:
            return
        if event.has_closure and outcome != "skipped":  # type: ignore[attr-defined]
            self._read(places)
        if self._turns.note(optimizer, outcome) == "complete":
            self._end_step()
        elif outcome == "raised":
            self.probe.give_up_step()

    def _end_step(self) -> None:
        self.probe.end_step(RANKS.current())
        if self.probe.is_over and self._training is not None:
            # No hooks stay; what is on its way is written.
            self._training.recorder.bus.afterwards(self.end)

    # ---------------------------------------------------------------- gradients

    def _read(self, places: Sequence[int]) -> None:
        probe = self.probe
        if not probe.is_wanted(RANKS.current()):
            return
        without = []
        devices: dict[torch.device, DeviceStep] = {}
        for place in places:
            name, parameter = self._updated.named[place]
            gradient = gradient_of(parameter)
            if gradient is None:
                if parameter.requires_grad:
                    without.append(name)
                continue
            probe.add(place, name, gradient, gradient.numel(), self._entry, devices)
        for device in devices.values():
            device.launch()
        probe.note_missing(without)

    def _entry(self, name: str, gradient: torch.Tensor, devices: dict[torch.device, DeviceStep]) -> Entry:
        dtype = _NUMPY.get(gradient.dtype)
        plain = type(gradient) in ORDINARY and gradient.layout is torch.strided
        shape = tuple(gradient.shape)
        if plain and dtype is not None and gradient.is_cpu and gradient.is_contiguous() and _fits(gradient, dtype):
            return self._measured(name, gradient, shape, None)
        if gradient.layout is torch.sparse_coo:
            # Elements of one index are added up, which torch does not do among its own kernels alone.
            gradient = gradient.coalesce()
        with OwnWork():
            values, kind = _values(gradient)
            if kind:
                self.probe.note_kind(name, kind)
            local_shape = None if values.shape == gradient.shape else tuple(values.shape)
            if values.device.type != "cpu":
                step = devices.setdefault(values.device, DeviceStep(values.device, self.probe.fields))
                return step.add(name, values, shape, local_shape)
            return self._measured(name, values, shape, local_shape)

    def _measured(
        self, name: str, values: torch.Tensor, shape: tuple[int, ...], local_shape: tuple[int, ...] | None
    ) -> Entry:
        """``values``: in the memory of the host; read where they are, if that can be."""
        fields, count = self.probe.fields, values.numel()
        norm = float(values.norm()) if fields.compat_norm and count else None
        if values.dtype not in _NUMPY:
            values = values.to(torch.float32)
        if not values.is_contiguous():
            values = values.contiguous()
        dtype, address = _NUMPY[values.dtype], address_of(values) if count else 0
        flat = np.frombuffer(native.memory(address, count * dtype.itemsize), dtype)
        return measure(ProbedGradient(name, flat, address, shape, local_shape, norm), fields)


def _fits(gradient: torch.Tensor, dtype: Any) -> bool:
    """True if the elements, which are adjacent and more than none, lie in memory that is there."""
    end = (gradient.storage_offset() + gradient.numel()) * dtype.itemsize
    return bool(address_of(gradient)) and end <= gradient.untyped_storage().nbytes()


def _values(gradient: torch.Tensor) -> tuple[torch.Tensor, str]:
    """A plain real tensor with the elements that are here, and what is unusual of the gradient."""
    unwrapped = unwrap(gradient)
    values = unwrapped.values
    if values is None:
        raise TypeError(unwrapped.unsupported or said("no-elements-here"))
    kind = ""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
        kind = "gradient-is-complex"
    if unwrapped.sparse is not None:
        kind = kind or "gradient-is-sparse"
    elif not values.numel():
        kind = kind or "gradient-is-empty"
    return values if values.is_floating_point() else values.to(torch.float32), kind
