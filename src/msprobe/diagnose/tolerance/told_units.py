"""What the header of a dump tells of kernels that round float32: TF32, HF32, "medium", bfloat16 in oneDNN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: Kinds of kernels that have a switch of their own.
Kind = Literal["product", "convolution", "recurrent"]
KINDS: tuple[Kind, ...] = ("product", "convolution", "recurrent")

#: The distance of 1 to the next number that has so many digits: of TF32 (and HF32, which keeps at least as many), and
#: of bfloat16.
TEN_BITS = 2.0**-10
SEVEN_BITS = 2.0**-7

_WORDS = {"tf32": TEN_BITS, "bf16": SEVEN_BITS}
_OF_WORD: dict[Kind, str] = {"product": "matmul", "convolution": "conv", "recurrent": "rnn"}
#: Words of :func:`torch.get_float32_matmul_precision`, where nothing newer stands beside them.
_OF_MATMUL = {"high": TEN_BITS, "medium": SEVEN_BITS}
#: Processors that have no kernels of fewer bits, as torch names what they can.
_PLAIN_PROCESSORS = frozenset(("DEFAULT", "NO AVX", "AVX2"))
_OFF = "0"


@dataclass(frozen=True, slots=True)
class Rounding:
    """What products in float32 may round their inputs to: ``unit`` (0: float32's), and whether a header says it."""

    unit: float
    is_told: bool = False


def possible_rounding(candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Rounding]:
    """What the headers of two dumps allow, by the kind of kernel. Where devices differ or a header is lacking, 10 bits
    are thought possible.
    """
    sides = [precision_of(candidate), precision_of(reference)]
    devices = {device_of(side) for side in sides}
    unknown = TEN_BITS if len(devices) > 1 or "" in devices else 0.0
    told = {kind: max(told_unit(side, kind) for side in sides) for kind in KINDS}
    return {kind: Rounding(max(unit, unknown), unit > 0.0) for kind, unit in told.items()}


def precision_of(ours: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a dump tells of its precision; nothing if it was recorded by others, or before that was told."""
    found = ours.get("precision")
    return found if isinstance(found, dict) else {}


def device_of(told: Mapping[str, Any]) -> str:
    """The device that a dump was recorded on; empty if that is not told."""
    return str(told.get("device") or "").lower()


def told_unit(told: Mapping[str, Any], kind: Kind) -> float:
    """The unit to which a kind of kernels rounds its inputs in float32 by what a header tells; 0 where they stay
    float32, or nothing is told.
    """
    device = device_of(told)
    if not device:
        return 0.0
    if device == "cpu":
        return _of_processor(told, kind)
    return max(_of_cuda(told, kind) if "cuda" in told or not _is_ascend(told) else 0.0, _of_ascend(told, kind))


def _of_processor(told: Mapping[str, Any], kind: Kind) -> float:
    if told.get("torch.backends.cpu.get_cpu_capability") in _PLAIN_PROCESSORS:
        return 0.0
    word = told.get(f"torch.backends.mkldnn.{_OF_WORD[kind]}.fp32_precision")
    if word is None and kind == "product" and told.get("torch.get_float32_matmul_precision") == "medium":
        return SEVEN_BITS  # older torch: "high" changes nothing on processors
    return _WORDS.get(str(word), 0.0)


def _of_cuda(told: Mapping[str, Any], kind: Kind) -> float:
    if told.get("NVIDIA_TF32_OVERRIDE") == _OFF:
        return 0.0
    library = "cuda.matmul" if kind == "product" else f"cudnn.{_OF_WORD[kind]}"
    word = told.get(f"torch.backends.{library}.fp32_precision")
    asked = told.get("torch.get_float32_matmul_precision")
    if kind == "product":
        older = TEN_BITS if told.get("torch.backends.cuda.matmul.allow_tf32") is True else 0.0
        # "medium" may keep 7 bits where the kernels know it; the newer switch says "tf32" for both words.
        of_word = _OF_MATMUL.get(str(asked), 0.0) if word in (None, "tf32") else 0.0
        return max(older, of_word, _WORDS.get(str(word), 0.0))
    older = TEN_BITS if word is None and told.get("torch.backends.cudnn.allow_tf32") is True else 0.0
    return max(older, _WORDS.get(str(word), 0.0))


def _is_ascend(told: Mapping[str, Any]) -> bool:
    return "torch_npu" in told or "mindspore" in told


def _of_ascend(told: Mapping[str, Any], kind: Kind) -> float:
    word = "conv" if kind == "convolution" else "matmul"
    # CANN allows it to convolutions, and not to products, unless the program says otherwise.
    of_mindspore = str(told.get(f"mindspore.{word}_allow_hf32"))
    is_on = of_mindspore == "1" or (of_mindspore == "default" and kind == "convolution")
    return TEN_BITS if is_on or told.get(f"torch_npu.npu.{word}.allow_hf32") is True else 0.0
