"""The trainer's model, and which of its modules compute what a module of the engine does.

An engine fuses what a trainer writes apart: ``qkv_proj`` is ``q_proj``, ``k_proj`` and ``v_proj``; ``gate_up_proj`` is
``gate_proj`` and ``up_proj``. The rule is the name: stems of siblings, one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from msprobe.errors import InvalidInputError, NotAvailableError

_MOST_FUSED = 8
_ENDINGS = ("_proj", "")


def load(path: str, dtype: str) -> Any:
    """The model of a folder as transformers saves it, with safetensors and its own classes alone.

    Raises NotAvailableError without transformers, and InvalidInputError for a folder that is no model.
    """
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as problem:
        raise NotAvailableError("--trainer loads a model with transformers; pip install transformers.") from problem
    try:
        kind = getattr(torch, dtype.removeprefix("torch."))
        model = AutoModelForCausalLM.from_pretrained(
            path, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=kind
        )
    except (OSError, ValueError, KeyError, ImportError, AttributeError) as problem:
        first = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise InvalidInputError(
            f'"{path}" is no folder of a model in safetensors that transformers loads: {first[:200]}'
        ) from problem
    return model.eval()


@dataclass(frozen=True)
class Part:
    """A module of the trainer and its path."""

    path: str
    module: Any


class Trainer:
    """A model by the paths of an engine."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.modules = dict(model.named_modules())
        self._parts: dict[str, list[Part]] = {}

    def parts(self, path: str) -> list[Part]:
        """The modules that the engine's module at ``path`` is made of, in the order of its results; [] if unknown."""
        if path not in self._parts:
            self._parts[path] = self._found(path)
        return self._parts[path]

    def _found(self, path: str) -> list[Part]:
        if path in self.modules:
            return [Part(path, self.modules[path])]
        parent, _, name = path.rpartition(".")
        around = self.modules.get(parent)
        siblings = [key for key, _ in around.named_children()] if around is not None else []
        for ending in _ENDINGS:
            if not name.endswith(ending):
                continue
            stems = {one.removesuffix(ending): one for one in siblings if one.endswith(ending)}
            chosen = _one_behind_the_other(name.removesuffix(ending), tuple(stems))
            if len(chosen) > 1:
                paths = [f"{parent}.{stems[one]}" for one in chosen]
                return [Part(one, self.modules[one]) for one in paths]
        return []

    def parent_of(self, path: str) -> Any:
        """The module around ``path``."""
        return self.modules.get(path.rpartition(".")[0])

    def head(self) -> Any:
        """What makes logits of hidden states."""
        return self.model.get_output_embeddings()

    def named(self, ending: str) -> Iterator[Part]:
        """All modules whose name is ``ending``."""
        return (Part(path, one) for path, one in self.modules.items() if path.rpartition(".")[2] == ending)


def _one_behind_the_other(text: str, stems: tuple[str, ...]) -> list[str]:
    """The stems that make up a text, with or without ``_`` between; [] where they do not. No stem stands twice."""
    todo: list[tuple[str, list[str]]] = [(text, [])]
    while todo:
        rest, chosen = todo.pop()
        if not rest:
            return chosen
        if len(chosen) == _MOST_FUSED:
            continue
        for stem in stems:
            if stem and stem not in chosen and rest.startswith(stem):
                todo.append((rest[len(stem) :].removeprefix("_"), [*chosen, stem]))
    return []
