"""What the parameters of an optimizer are called: as in the model, or by their place in the optimizer."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from msprobe.capture.torch.modules.user_modules import named_parameters


class ParameterNames:
    """Names of parameters.

    A parameter of the models given to start is called what ``named_parameters()`` calls it, with the model's
    index before it if there are several, or what was given as its lead; one that the optimizer was given a name for,
    so; any other ``g{group}.p{place}``.
    """

    def __init__(self) -> None:
        self._models: list[weakref.ref[nn.Module]] = []
        self._leads: Sequence[str] | None = None
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], str]] | None = None

    def learn(self, models: Any, leads: Sequence[str] | None = None) -> None:
        """``models``: what was given to start, a Module, several, or None; ``leads``: what names of each begin with, if
        it is not the index. Names are read when needed.
        """
        listed = models if isinstance(models, (list, tuple)) else [models]
        self._leads = leads
        self._models = [weakref.ref(model) for model in listed if isinstance(model, nn.Module)]
        self._known = None

    def forget(self) -> None:
        """Recording pauses."""
        self._models = []
        self._known = None

    def of(self, optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and parameter, in the optimizer's order; no name comes twice."""
        used: set[str] = set()
        for g, group in enumerate(optimizer.param_groups):
            given = group.get("param_names") or ()
            for p, parameter in enumerate(group["params"]):
                place = f"g{g}.p{p}"
                name = self._find(parameter) or (str(given[p]) if p < len(given) else place)
                if name in used:
                    name = place
                used.add(name)
                yield name, parameter

    def _find(self, parameter: torch.Tensor) -> str | None:
        if self._known is None:
            self._known = self._read()
        entry = self._known.get(id(parameter))
        return entry[1] if entry is not None and entry[0]() is parameter else None

    def _read(self) -> dict[int, tuple[weakref.ref[torch.Tensor], str]]:
        known: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        for index, reference in enumerate(self._models):
            model = reference()
            if model is None:
                continue
            lead = f"{index}." if len(self._models) > 1 else ""
            if self._leads is not None:
                lead = self._leads[index]
            for name, parameter in named_parameters(model):
                known.setdefault(id(parameter), (weakref.ref(parameter), lead + name))
        return known
