"""The trainer's model, and which of its modules compute what a module of the engine does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import said
from msprobe.rollout.torch.adapters import adapt, base_of, is_adapter
from msprobe.rollout.torch.fused import Paths


def load(path: str, dtype: str) -> Any:
    """The model of a folder as transformers saves it, or an adapter as PEFT does; safetensors and known classes alone.

    Raises NotAvailableError without transformers, and InvalidInputError for a folder that is no model.
    """
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as problem:
        raise NotAvailableError(said("trainer-needs-transformers")) from problem
    try:
        kind = getattr(torch, dtype.removeprefix("torch."))
        model = AutoModelForCausalLM.from_pretrained(
            base_of(path) if is_adapter(path) else path,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=kind,
        )
    except (OSError, ValueError, KeyError, ImportError, AttributeError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise InvalidInputError(said("trainer-unreadable", path, first[:200])) from problem
    if is_adapter(path):
        adapt(model, path, kind)
    return model.eval()


@dataclass(frozen=True)
class TrainerPart:
    """A module of the trainer and its path."""

    path: str
    module: Any


class Trainer:
    """A model by the paths of an engine."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.modules = dict(model.named_modules())
        self._paths = Paths(self.modules)

    def parts(self, path: str) -> list[TrainerPart]:
        """The modules that the engine's module at ``path`` is made of, in the order of its results; [] if unknown."""
        return [TrainerPart(path_of_part, self.modules[path_of_part]) for path_of_part in self._paths.parts(path)]

    def parent_of(self, path: str) -> Any:
        """The module around ``path``."""
        return self.modules.get(self._paths.named(path.rpartition(".")[0]))

    def module(self, path: str) -> Any:
        """The module that the engine has at ``path``, where it is one; else None."""
        return self.modules.get(self._paths.named(path))

    def named_path(self, path: str) -> str:
        """A path of the engine in the trainer's names."""
        return self._paths.named(path)

    def head(self) -> Any:
        """What makes logits of hidden states."""
        return self.model.get_output_embeddings()

    def named(self, ending: str) -> Iterator[TrainerPart]:
        """All modules whose name is ``ending``."""
        return (TrainerPart(path, module) for path, module in self.modules.items() if path.rpartition(".")[2] == ending)
