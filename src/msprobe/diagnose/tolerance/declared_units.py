"""What the header of a dump says of kernels that round float32: TF32, HF32, "medium", bfloat16 in oneDNN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: Kinds of kernels that have a switch of their own.
Multiplication = Literal["product", "convolution", "recurrent"]
KINDS: tuple[Multiplication, ...] = ("product", "convolution", "recurrent")

#: The distance of 1 to the next number that has so many digits: of TF32 (and HF32, which keeps at least as many), and
#: of bfloat16.
TEN_BITS = 2.0**-10
SEVEN_BITS = 2.0**-7

_WORDS = {"tf32": TEN_BITS, "bf16": SEVEN_BITS}
_OF_WORD: dict[Multiplication, str] = {"product": "matmul", "convolution": "conv", "recurrent": "rnn"}
#: Words of :func:`torch.get_float32_matmul_precision`, where nothing newer stands beside them.
_OF_MATMUL = {"high": TEN_BITS, "medium": SEVEN_BITS}
#: Processors that have no kernels of fewer bits, as torch names what they can.
_PLAIN_PROCESSORS = frozenset(("DEFAULT", "NO AVX", "AVX2"))
_OFF = "0"


@dataclass(frozen=True, slots=True)
class Rounding:
    """What products in float32 may round their inputs to: ``unit`` (0: float32's), and whether a header says it."""

    unit: float
    is_declared: bool = False


def possible_rounding(candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Rounding]:
    """What the headers of two dumps allow, by the kind of kernel. Where devices differ or a header is lacking, 10 bits
    are thought possible.
    """
    sides = [precision_of(candidate), precision_of(reference)]
    devices = {device_of(side) for side in sides}
    unknown = TEN_BITS if len(devices) > 1 or "" in devices else 0.0
    environment = {kind: max(declared_unit(side, kind) for side in sides) for kind in KINDS}
    return {kind: Rounding(max(unit, unknown), unit > 0.0) for kind, unit in environment.items()}


def precision_of(ours: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a dump says of its precision; nothing if it was recorded by others, or before that was written."""
    precision = ours.get("precision")
    return precision if isinstance(precision, dict) else {}


def device_of(environment: Mapping[str, Any]) -> str:
    """The device that a dump was recorded on; empty if that is not known."""
    return str(environment.get("device") or "").lower()


def declared_unit(environment: Mapping[str, Any], kind: Multiplication) -> float:
    """The unit to which a kind of kernels rounds its inputs in float32 by what a header says; 0 where they stay
    float32, or nothing is known.
    """
    device = device_of(environment)
    if not device:
        return 0.0
    if device == "cpu":
        return _unit_on_processor(environment, kind)
    return max(
        _unit_on_cuda(environment, kind) if "cuda" in environment or not _is_ascend(environment) else 0.0,
        _unit_on_ascend(environment, kind),
    )


def _unit_on_processor(environment: Mapping[str, Any], kind: Multiplication) -> float:
    if environment.get("torch.backends.cpu.get_cpu_capability") in _PLAIN_PROCESSORS:
        return 0.0
    word = environment.get(f"torch.backends.mkldnn.{_OF_WORD[kind]}.fp32_precision")
    if word is None and kind == "product" and environment.get("torch.get_float32_matmul_precision") == "medium":
        return SEVEN_BITS  # older torch: "high" changes nothing on processors
    return _WORDS.get(str(word), 0.0)


def _unit_on_cuda(environment: Mapping[str, Any], kind: Multiplication) -> float:
    if environment.get("NVIDIA_TF32_OVERRIDE") == _OFF:
        return 0.0
    library = "cuda.matmul" if kind == "product" else f"cudnn.{_OF_WORD[kind]}"
    word = environment.get(f"torch.backends.{library}.fp32_precision")
    asked = environment.get("torch.get_float32_matmul_precision")
    if kind == "product":
        older = TEN_BITS if environment.get("torch.backends.cuda.matmul.allow_tf32") is True else 0.0
        # "medium" may keep 7 bits where the kernels know it; the newer switch says "tf32" for both words.
        matmul_unit = _OF_MATMUL.get(str(asked), 0.0) if word in (None, "tf32") else 0.0
        return max(older, matmul_unit, _WORDS.get(str(word), 0.0))
    older = TEN_BITS if word is None and environment.get("torch.backends.cudnn.allow_tf32") is True else 0.0
    return max(older, _WORDS.get(str(word), 0.0))


def _is_ascend(environment: Mapping[str, Any]) -> bool:
    return "torch_npu" in environment or "mindspore" in environment


def _unit_on_ascend(environment: Mapping[str, Any], kind: Multiplication) -> float:
    word = "conv" if kind == "convolution" else "matmul"
    # CANN allows it to convolutions, and not to products, unless the program says otherwise.
    allowed = str(environment.get(f"mindspore.{word}_allow_hf32"))
    is_on = allowed == "1" or (allowed == "default" and kind == "convolution")
    return TEN_BITS if is_on or environment.get(f"torch_npu.npu.{word}.allow_hf32") is True else 0.0
