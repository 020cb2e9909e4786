"""What two runs compute otherwise before any call is looked at, in plain words: TF32, devices, autocast, versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msprobe.diagnose.tolerance.declared_units import KINDS, SEVEN_BITS, Multiplication, declared_unit, device_of
from msprobe.messages import joined, said

_WORK: dict[Multiplication, str] = {
    "product": "multiplies float32 matrices",
    "convolution": "computes float32 convolutions",
    "recurrent": "computes float32 recurrent layers",
}
#: Switches that are on or off, and what a run does where they are on.
_SWITCHES = {
    "torch.are_deterministic_algorithms_enabled": "uses deterministic algorithms",
    "mindspore.deterministic": "uses deterministic algorithms",
    "torch.backends.cudnn.deterministic": "uses deterministic kernels of cuDNN",
    "torch.backends.cudnn.benchmark": "lets cuDNN choose kernels by their speed",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": "rounds sums of float16 products early",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": "rounds sums of bfloat16 products early",
    "torch.backends.cuda.matmul.allow_fp16_accumulation": "sums float16 products in float16",
}
_VERSIONS = ("torch", "torch_npu", "mindspore", "cuda", "cann", "cudnn")
_AUTOCAST = "autocast."


def precision_in_words(candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> tuple[str, ...]:
    """One sentence for each difference; nothing where one side says nothing. What weighs most comes first."""
    if not candidate or not reference:
        return ()
    sides = candidate, reference
    texts = [_kind_in_words(kind, *sides) for kind in KINDS]
    if device_of(candidate) != device_of(reference):
        texts.append(
            said(
                "device-differs",
                *(str(side.get("device") or "an unknown device") for side in sides),
            )
        )
    texts += [_autocast_in_words(*sides), _type_in_words(*sides)]
    texts += [_switch_in_words(name, text, *sides) for name, text in _SWITCHES.items()]
    texts += [
        said("version-differs", name, str(candidate[name]), name, str(reference[name]))
        for name in _VERSIONS
        if name in candidate and name in reference and candidate[name] != reference[name]
    ]
    return tuple(text for text in texts if text)


def _kind_in_words(kind: Multiplication, candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    mine, theirs = declared_unit(candidate, kind), declared_unit(reference, kind)
    if mine == theirs:
        return ""
    return said("multiplication-precision-differs", _WORK[kind], _type(mine, candidate), _type(theirs, reference))


def _type(unit: float, environment: Mapping[str, Any]) -> str:
    if not unit:
        return "float32"
    if device_of(environment) == "cpu":  # it is allowed, and few processors know how
        return said("where-the-processor-can", "bfloat16 (7 bits)" if unit == SEVEN_BITS else "TF32 (10 bits)")
    if unit == SEVEN_BITS:
        return "bfloat16 (7 bits)"
    return "HF32 (10 bits or more)" if "torch_npu" in environment or "mindspore" in environment else "TF32 (10 bits)"


def _autocast_in_words(candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    mine, theirs = (
        {str(value).removeprefix("torch.") for name, value in side.items() if name.startswith(_AUTOCAST)}
        for side in (candidate, reference)
    )
    if mine == theirs:
        return ""
    words = [
        said("under-autocast-to", joined(" and ", sorted(types))) if types else "without autocast"
        for types in (mine, theirs)
    ]
    return said("autocast-differs", words[0], words[1])


def _type_in_words(candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    mine, theirs = (str(side.get("torch.get_default_dtype", "")) for side in (candidate, reference))
    if mine == theirs or not (mine and theirs):
        return ""
    left, right = (dtype.removeprefix("torch.") for dtype in (mine, theirs))
    return said("default-dtype-differs", left, right)


def _switch_in_words(name: str, text: str, candidate: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    mine, theirs = candidate.get(name), reference.get(name)
    if mine is None or theirs is None or mine == theirs:
        return ""
    on, off = ("candidate", "reference") if mine in (True, "ON") else ("reference", "candidate")
    return said("switch-differs", on, text, off)
