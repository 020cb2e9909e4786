"""The names that MindSpore and PyTorch give to the same function: the shipped table, and the mint interface."""

from __future__ import annotations

import csv
import functools
from importlib import resources

# mindspore.mint follows torch name by name.
_KINDS = {"Mint": "Torch", "MintFunctional": "Functional"}

# What MindSpore calls parameters of layers that PyTorch has under another name.
PARAMETER_NAMES = {
    "gamma": "weight",
    "beta": "bias",
    "embedding_table": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


@functools.lru_cache(maxsize=1)
def name_table() -> dict[str, str]:
    """MindSpore's name -> PyTorch's, both with their kind: ``{"Functional.dense": "Functional.linear"}``."""
    text = resources.files("msprobe.compare").joinpath("ms_to_pt_api.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["mindspore_api"]: row["pytorch_api"] for row in rows}


def torch_name(api: str) -> str:
    """PyTorch's name for an API of MindSpore, the same name where none is known.

    >>> torch_name("Functional.equal"), torch_name("MintFunctional.relu"), torch_name("Primitive.matmul.MatMul")
    ('Torch.eq', 'Functional.relu', 'Primitive.matmul.MatMul')
    """
    kind, _, rest = api.partition(".")
    if kind in _KINDS and rest:
        return f"{_KINDS[kind]}.{rest}"
    return name_table().get(api, api)
