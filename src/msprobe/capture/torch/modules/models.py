"""The models of a recording, and what their modules are called in entries."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn

from msprobe import log
from msprobe.capture.torch.modules.user_modules import is_scripted, named_modules_inside
from msprobe.messages import said


class Models:
    """What was given to start. A model is not kept alive: the program may be done with it in the middle of a step."""

    def __init__(self) -> None:
        self._references: list[weakref.ref[Any]] = []
        self._leads: Sequence[str] | None = None
        # More than one were given, or a list of one.
        self._are_several = False

    def give(self, given: Any, leads: Sequence[str] | None = None) -> None:
        """These are to be recorded next: a Module, several, or None. ``leads``: what the names of the parameters of
        each begin with, if it is not the model's index.
        """
        self._are_several = isinstance(given, (list, tuple))
        self._references = [
            weakref.ref(model) for model in (given if self._are_several else [given]) if model is not None
        ]
        self._leads = leads

    def forget(self) -> None:
        """Nothing is recorded."""
        self._references = []

    @property
    def given(self) -> Any:
        """Those that are alive, as they were given: a Module, several, or None."""
        models = [model for model in (reference() for reference in self._references) if model is not None]
        if self._are_several and self._references:
            return models
        return models[0] if models else None

    @property
    def leads(self) -> Sequence[str] | None:
        """What the names of the parameters of each that is alive begin with; None: with its index, if there are
        several.
        """
        if all(reference() is not None for reference in self._references):
            return self._leads
        leads = self._leads
        if leads is None:
            leads = [f"{index}." if self._are_several else "" for index in range(len(self._references))]
        return [lead for lead, reference in zip(leads, self._references, strict=True) if reference() is not None]


def name_modules(model: Any, record_root: bool) -> list[tuple[str, nn.Module]]:
    """The modules to watch and their entry names: ``Module.{[index.]path}.{Class}``."""
    several = isinstance(model, (list, tuple))
    named: list[tuple[str, nn.Module]] = []
    for index, root in enumerate(model if several else [model]):
        lead = f"{index}." if several else ""
        children = named_modules_inside(root)
        if record_root or not children or is_scripted(root):
            if not children and not record_root and not is_scripted(root):
                log.once(
                    ("leaf", type(root).__name__),
                    "info",
                    said("model-of-one-module", type(root).__name__),
                )
            named.append((f"Module.{lead}root.{type(root).__name__}", root))
        named += [(f"Module.{lead}{path}.{type(module).__name__}", module) for path, module in children]
    return named


def roots_besides(model: Any, named: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """The models themselves and their names, as far as they are not among ``named``: listeners may want them."""
    several = isinstance(model, (list, tuple))
    known = {id(module) for _, module in named}
    return [
        (f"Module.{f'{index}.' if several else ''}root.{type(root).__name__}", root)
        for index, root in enumerate(model if several else [model])
        if isinstance(root, nn.Module) and id(root) not in known
    ]
