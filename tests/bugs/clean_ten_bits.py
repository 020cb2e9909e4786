"""Pairs in which nothing is wrong but that the candidate multiplies as an accelerator does: with inputs of ten bits.

Told: its header names a device and TF32. Untold: headers of either side say nothing, as those of other recorders.
"""

from __future__ import annotations

from typing import Any

from bugs.clean_further import QUIET, clean_pair
from bugs.planting import Pattern

_TORCH_NN = "from torch import nn\n"
_STEP = "    def step(self, number: int) -> None:\n"
#: Products and convolutions of the candidate round their inputs to ten bits, as TF32 does: forward and backward.
_EDITS = (
    (_TORCH_NN, _TORCH_NN + "from bugs.ten_bits import rounded_products\n"),
    (_STEP, f"    @rounded_products\n{_STEP}"),
)
_ACCELERATOR = {
    "device": "accelerator",
    "cuda": "12.8",
    "torch.get_float32_matmul_precision": "high",
    "torch.backends.cuda.matmul.fp32_precision": "tf32",
    "torch.backends.cudnn.conv.fp32_precision": "tf32",
    "torch.backends.cudnn.rnn.fp32_precision": "tf32",
}
_HEADERS: dict[str, dict[str, Any]] = {
    "told": {"candidate": _ACCELERATOR},
    "untold": {"candidate": None, "reference": None},
}


def _pair(number: int, title: str, program: str, told: str) -> Pattern:
    name = f"Q0{number}" + ("U" if told == "untold" else "")
    title = f"{title} in ten bits, {told}"
    return clean_pair(
        name, title, *_EDITS, expected=QUIET, program=program, precisions=("float32",), headers=_HEADERS[told]
    )


TEN_BITS = tuple(
    _pair(number, title, program, told)
    for told in _HEADERS
    for number, title, program in (
        (1, "products of the decoder", "single"),
        (2, "convolutions and products", "images"),
        (3, "recurrent layers and experts", "recurrent"),
    )
)
