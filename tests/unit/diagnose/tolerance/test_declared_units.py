"""What headers tell of kernels that round float32, and how the differences are told."""

from __future__ import annotations

from typing import Any

from support.row_by_row import for_each

from msprobe.diagnose.tolerance.declared_units import SEVEN_BITS, TEN_BITS, Multiplication, declared_unit
from msprobe.diagnose.verdict.precision_words import precision_in_words
from msprobe.messages import said

CPU = {"device": "cpu", "torch.backends.cpu.get_cpu_capability": "AVX512"}
CUDA = {"device": "NVIDIA H100 80GB HBM3", "cuda": "12.8"}
ASCEND = {"device": "Ascend910B", "torch_npu": "2.7.1"}
MATMUL = "torch.backends.cuda.matmul.fp32_precision"


@for_each(
    ("told", "kind", "unit"),
    [
        ({}, "product", 0.0),
        ({**CPU, MATMUL: "tf32", "torch.get_float32_matmul_precision": "high"}, "product", 0.0),
        ({**CPU, "torch.backends.mkldnn.matmul.fp32_precision": "bf16"}, "product", SEVEN_BITS),
        ({**CPU, "torch.backends.mkldnn.conv.fp32_precision": "none"}, "convolution", 0.0),
        ({**CUDA, MATMUL: "tf32"}, "product", TEN_BITS),
        ({**CUDA, MATMUL: "ieee"}, "product", 0.0),
        ({**CUDA, MATMUL: "none", "torch.get_float32_matmul_precision": "highest"}, "product", 0.0),
        ({**CUDA, "torch.backends.cuda.matmul.allow_tf32": True}, "product", TEN_BITS),
        ({**CUDA, "torch.get_float32_matmul_precision": "medium"}, "product", SEVEN_BITS),
        ({**CUDA, "torch.backends.cudnn.allow_tf32": True}, "convolution", TEN_BITS),
        ({**CUDA, "torch.backends.cudnn.allow_tf32": True}, "product", 0.0),
        ({**CUDA, "torch.backends.cudnn.rnn.fp32_precision": "tf32"}, "recurrent", TEN_BITS),
        ({**CUDA, MATMUL: "tf32", "NVIDIA_TF32_OVERRIDE": "0"}, "product", 0.0),
        ({**ASCEND, "torch_npu.npu.matmul.allow_hf32": True}, "product", TEN_BITS),
        ({**ASCEND, "torch_npu.npu.matmul.allow_hf32": True}, "convolution", 0.0),
        ({**ASCEND, "torch.backends.cudnn.allow_tf32": True}, "convolution", 0.0),
        (
            {"device": "Ascend910B", "mindspore": "2.10", "mindspore.conv_allow_hf32": "default"},
            "convolution",
            TEN_BITS,
        ),
        ({"device": "Ascend910B", "mindspore": "2.10", "mindspore.matmul_allow_hf32": "default"}, "product", 0.0),
    ],
)
def test_the_unit_follows_the_switch_of_the_device_that_was_used(
    told: dict[str, Any], kind: Multiplication, unit: float
) -> None:
    assert declared_unit(told, kind) == unit


def test_differences_are_told_in_plain_words() -> None:
    told = precision_in_words(
        {**CUDA, MATMUL: "tf32", "autocast.cuda": "torch.bfloat16", "torch": "2.9.0", "mindspore.deterministic": "ON"},
        {**CPU, "torch": "2.11.0", "mindspore.deterministic": "OFF"},
    )
    assert told == (
        said("multiplication-precision-differs", "multiplies float32 matrices", "TF32 (10 bits)", "float32"),
        said("device-differs", "NVIDIA H100 80GB HBM3", "cpu"),
        said("autocast-differs", said("under-autocast-to", "bfloat16"), "without autocast"),
        said("switch-differs", "candidate", "uses deterministic algorithms", "reference"),
        said("version-differs", "torch", "2.9.0", "torch", "2.11.0"),
    )


def test_of_a_processor_it_is_said_that_it_need_not_be_so() -> None:
    mine = {**CPU, "torch.backends.mkldnn.matmul.fp32_precision": "tf32"}
    assert precision_in_words(mine, CPU) == (
        said(
            "multiplication-precision-differs",
            "multiplies float32 matrices",
            said("where-the-processor-can", "TF32 (10 bits)"),
            "float32",
        ),
    )


def test_nothing_is_told_of_dumps_that_tell_nothing_or_the_same() -> None:
    assert precision_in_words({}, CPU) == precision_in_words(CUDA, {}) == precision_in_words(CUDA, CUDA) == ()
