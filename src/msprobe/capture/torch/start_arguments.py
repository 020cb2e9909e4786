"""What the recorder of PyTorch may be asked for: which settings, and which model ``start`` may be given."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.config.settings import TENSOR_KINDS, Settings, quoted
from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import said


def check_settings(settings: Settings) -> None:
    """Raise NotAvailableError or InvalidInputError for what is there for MindSpore only."""
    if settings.task == "exception_dump":
        raise NotAvailableError(said("exception-dump-for-torch"))
    unknown = [kind for kind in settings.summary_kinds if kind not in TENSOR_KINDS]
    if unknown:
        raise InvalidInputError(said("summary-mode-for-torch", quoted(unknown), quoted(TENSOR_KINDS)))
    if settings.async_dump:
        log.warning(said("async-dump-for-torch"))
    mindspore_only = {
        "device": settings.device != "host",
        "precision": settings.device_precision != "high",
        "file_format": settings.file_format is not None,
        "check_mode": settings.check_mode != "all",
    }
    given = [name for name, is_given in mindspore_only.items() if is_given]
    if given:
        log.warning(said("fields-for-torch", ", ".join(given)))


class ModelReference:
    """The model that was given once, for later starts: a Module, several, or None. Does not keep it alive."""

    def __init__(self, model: Any) -> None:
        self._several = isinstance(model, (list, tuple))
        given = model if self._several else () if model is None else (model,)
        self._references = [weakref.ref(module) for module in given]

    def __call__(self) -> Any:
        """The model; None if there is none, or not all of it any more."""
        models = [reference() for reference in self._references]
        if not models or any(model is None for model in models):
            return None
        return models if self._several else models[0]


def check_model(model: Any) -> None:
    """Raise InvalidInputError unless ``model`` is a Module or a non-empty list or tuple of Modules."""
    allowed = said("torch-module-allowed")
    if isinstance(model, (list, tuple)):
        if not model:
            raise InvalidInputError(said("start-of-empty-list", type(model).__name__, allowed))
        for i, part in enumerate(model):
            _check_module(part, f"model[{i}]", allowed)
        return
    _check_module(model, "model", allowed)


def _check_module(module: Any, where: str, allowed: str) -> None:
    kind = type(module).__name__
    if not isinstance(module, nn.Module):
        given = said("the-class", module.__name__) if isinstance(module, type) else kind
        raise InvalidInputError(said("start-of-wrong-model", where, allowed, given))
    if isinstance(module, torch.jit.ScriptModule):
        raise InvalidInputError(said("start-of-script-module", where, kind, allowed))
