"""What backward passes have added up in the gradient of each parameter, reported to listeners as soon as it is there.

Torch calls the hooks that are used here behind each addition to ``.grad``, before wrappers begin to reduce it over
ranks. They stay in place while the listeners stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from msprobe.capture.events import AccumulatedGradient
from msprobe.capture.routes import Listening, Route
from msprobe.capture.torch import private
from msprobe.capture.torch.context import Context
from msprobe.capture.torch.modules.models import name_modules
from msprobe.guard import report

_without_functions = private.without_functions


class AccumulatedGradients:
    """Hooks on the parameters of the models that were given to start, as far as somebody wants to be notified of
    them.
    """

    def __init__(self, context: Context) -> None:
        self._models = context.models
        self._session = context.session
        self._bus = context.bus
        self._hooks: list[_Hook] = []

    def attach(self) -> None:
        """See the parameters from now on."""
        seen: set[int] = set()
        if self._models.given is None:
            return
        for name, module in name_modules(self._models.given, True):
            for key, parameter in module._parameters.items():
                if parameter is None or not parameter.requires_grad or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                routes = self._bus.routes("accumulated_gradient", name)
                if routes and parameter.is_leaf:
                    self._hooks.append(_Hook(self, name, key, parameter))

    def detach(self) -> None:
        """Take the hooks away."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.handle.remove()

    def show(self, hook: _Hook, weight: torch.Tensor) -> None:
        """A backward pass has added to the gradient of ``weight``. One careful listener is notified without detours:
        this happens for every parameter in every step of a long training.
        """
        session, bus = self._session, self._bus
        thread = session.thread
        if not session.recording or thread.muted:
            return
        try:
            if hook.generation != session.generation:
                hook.renew(session.generation, bus.routes("accumulated_gradient", hook.key))
            number = hook.number
            hook.number = number + 1
            only = hook.only
            routes = None if only is not None else [route for route in hook.routes if route.is_open(number, ())]
            if routes == [] or (only is not None and only.dropped):
                return
            with _without_functions():
                gradient = weight.grad
                if gradient is None:
                    return
                event = AccumulatedGradient(
                    hook.entry, session.step, bus.rank, hook.key, hook.parameter, number, weight, gradient
                )
                if only is not None:
                    bus.call(only, only.listener.gradient, event)
                elif routes:
                    bus.show_gradient(routes, event)
        except Exception as error:
            session.fault(hook.entry, error)


class _Hook:
    """What torch calls for one parameter."""

    __slots__ = ("entry", "generation", "handle", "key", "number", "only", "owner", "parameter", "routes")

    def __init__(self, owner: AccumulatedGradients, key: str, parameter: str, weight: torch.Tensor) -> None:
        self.owner = owner
        self.key = key
        self.entry = f"{key}.parameters_grad"
        self.parameter = parameter
        self.number = 0
        self.generation = -1
        self.routes: Sequence[Route] = ()
        # The one listener, if it is careful and wants all.
        self.only: Listening | None = None
        self.handle: Any = weight.register_post_accumulate_grad_hook(self)  # type: ignore[no-untyped-call]

    def renew(self, generation: int, routes: Sequence[Route]) -> None:
        """A new step."""
        self.generation, self.number, self.routes = generation, 0, routes
        self.only = None
        if len(routes) == 1 and routes[0].numbers is None and routes[0].backward and routes[0].listening.careful:
            self.only = routes[0].listening

    def __call__(self, weight: torch.Tensor) -> None:
        try:
            self.owner.show(self, weight)
        except Exception as error:
            report(self.entry, error)
