"""A trainer's LoRA adapter, as PEFT saves it, beside the linear layers of its base model.

What an engine binds is one matrix A and one scaled matrix B for each layer, so the trainer's are kept in that form:
``base(x) + (x A^T) (scale B)^T``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.messages import said

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."


class Adapted(torch.nn.Linear):
    """A linear layer with its adapter. ``lora_a``: [rank, inputs]; ``lora_b``: [outputs, rank], scaled."""

    lora_a: torch.Tensor
    lora_b: torch.Tensor

    def __init__(self, base: torch.nn.Linear, lora_a: torch.Tensor, lora_b: torch.Tensor) -> None:
        super().__init__(base.in_features, base.out_features, bias=False, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.register_buffer("lora_a", lora_a)
        self.register_buffer("lora_b", lora_b)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The layer's result with its adapter."""
        return super().forward(given) + (given @ self.lora_a.t()) @ self.lora_b.t()


def without_adapters(layers: Sequence[Any], given: torch.Tensor) -> torch.Tensor | None:
    """What layers give side by side without their adapters; None where none has one."""
    if not any(isinstance(layer, Adapted) for layer in layers) or not all(
        isinstance(layer, torch.nn.Linear) for layer in layers
    ):
        return None
    return torch.cat([torch.nn.functional.linear(given, layer.weight, layer.bias) for layer in layers], -1)


def is_adapter(folder: str) -> bool:
    """Has a folder an adapter and no model of its own?"""
    return os.path.isfile(os.path.join(folder, CONFIG))


def base_of(folder: str) -> str:
    """The folder of the model that an adapter belongs to. Raises InvalidInputError."""
    base = read_json(os.path.join(folder, CONFIG)).get("base_model_name_or_path")
    folder_tried = [
        folder_tried
        for folder_tried in (base, os.path.join(folder, str(base)))
        if isinstance(base, str) and os.path.isdir(folder_tried)
    ]
    if not folder_tried:
        raise InvalidInputError(said("adapter-base-missing", os.path.join(folder, CONFIG), base))
    return str(folder_tried[0])


def adapt(model: Any, folder: str, kind: torch.dtype) -> None:
    """Put the adapter of a folder into a model. Raises InvalidInputError for one that is no plain LoRA."""
    from safetensors.torch import load_file

    config = read_json(os.path.join(folder, CONFIG))
    try:
        tensors = load_file(os.path.join(folder, WEIGHTS))
    except (OSError, ValueError) as problem:
        file = os.path.join(folder, WEIGHTS)
        raise InvalidInputError(said("adapter-unreadable", file, str(problem)[:120])) from problem
    if config.get("peft_type") != "LORA" or config.get("use_dora") or not isinstance(config.get("r"), int):
        settings = f"{config.get('peft_type')!r}, r = {config.get('r')!r}"
        raise InvalidInputError(said("adapter-unreadable", os.path.join(folder, CONFIG), settings))
    root = float(config["r"]) ** 0.5 if config.get("use_rslora") else float(config["r"])
    scale = float(config.get("lora_alpha", config["r"])) / root
    strange = []
    for name in sorted(name for name in tensors if name.endswith(".lora_A.weight")):
        path = name.removeprefix(_PREFIX).removesuffix(".lora_A.weight")
        other = tensors.get(name.replace(".lora_A.", ".lora_B."))
        try:
            base = model.get_submodule(path)
        except AttributeError:
            base = None
        if not isinstance(base, torch.nn.Linear) or other is None:
            strange.append(path)
            continue
        around, _, last = path.rpartition(".")
        adapted = Adapted(base, tensors[name].to(kind), other.to(kind) * scale)
        setattr(model.get_submodule(around), last, adapted)
    if strange or not any(isinstance(module, Adapted) for module in model.modules()):
        shown = ", ".join(strange[:5]) or said("no-layer-at-all")
        raise InvalidInputError(said("adapter-of-another-model", folder, shown))
