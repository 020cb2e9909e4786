"""Environment variables that change the numbers or the speed of a training: the table, and files that extend it.

Names, defaults and meanings are those of the documentation of CUDA, NCCL, cuBLAS, PyTorch, TransformerEngine, oneDNN,
MKL, CANN and MindSpore. The first six rows are those that mindstudio-probe compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msprobe.environment.hyperparameters.effects import EFFECTS, Effect
from msprobe.errors import InvalidInputError
from msprobe.messages import Wording, both, joined, said

Level = Literal["error", "warning", "info"]
DeviceKind = Literal["npu", "gpu"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
#: Means: not set, and then the library decides.
UNSET = "None"


@dataclass(frozen=True)
class Variable:
    """One thing that may be set, under the name it has on each kind of device; None where that kind has none."""

    npu: str | None
    gpu: str | None
    npu_default: str
    gpu_default: str
    level: Level
    effect: Effect
    why: str

    def name(self, kind: DeviceKind) -> str | None:
        """Its name on this kind of device."""
        return self.npu if kind == "npu" else self.gpu

    def default(self, kind: DeviceKind) -> str:
        """What holds where it is not set."""
        return self.npu_default if kind == "npu" else self.gpu_default


def _same(level: Level, effect: Effect, why: str, *names: str) -> tuple[Variable, ...]:
    """Variables with one name everywhere, written ``NAME=DEFAULT``."""
    pairs = (name.partition("=") for name in names)
    return tuple(
        Variable(name, name, default or UNSET, default or UNSET, level, effect, why) for name, _, default in pairs
    )


_ORDER = both("the order in which ranks are summed up, and so the last digits", "各 rank 求和的次序，影响末位")
_DETERMINISM = both("whether a second run gives the same digits", "重复运行的结果是否逐位相同")
_ATTENTION = both("which kernel computes attention", "由哪个 kernel 计算注意力")
_PRECISION = both("how many digits matrix products keep", "矩阵乘保留的精度")
_COMPILER = both("whether operators are fused, and so where they round", "算子是否融合，因而在何处舍入")
_THREADS = both("how sums on the CPU are split, and so their last digits", "CPU 上求和如何拆分，影响末位")
_OVERFLOW = both("whether an overflow becomes an infinity or the largest number", "溢出变为无穷还是最大值")
_TIME = both("how long a step takes, not what it computes", "一个 step 的耗时，不影响结果")
_LINKS = both("how ranks of a machine are connected", "同一机器的 rank 之间如何连接")
_RANKS = both("how many ranks share the work", "多少个 rank 分担工作")
_SETS = both("the order of sets, and of all that is made of them", "集合的次序，以及由其得到的一切的次序")
_BLAS = both("which library or kernel multiplies matrices", "由哪个库或 kernel 做矩阵乘")
_OVERLAP = both("whether kernels overlap", "kernel 是否重叠执行")
_DEVICES = both("which devices", "使用哪些设备")

TABLE: tuple[Variable, ...] = (
    Variable("HCCL_DETERMINISTIC", "NCCL_DETERMINISTIC", "False", "False", "error", "rounding", _DETERMINISM),
    Variable("HCCL_ALGO", "NCCL_ALGO", UNSET, UNSET, "error", "rounding", _ORDER),
    Variable("HCCL_INTRA_ROCE_ENABLE", None, "0", UNSET, "error", "rounding", _LINKS),
    Variable("HCCL_INTRA_PCIE_ENABLE", None, "1", UNSET, "error", "rounding", _LINKS),
    Variable("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "0", "0", "error", "speed", _OVERLAP),
    Variable("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", UNSET, UNSET, "error", "speed", _DEVICES),
    Variable("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", UNSET, UNSET, "warning", "speed", _TIME),
    *_same("error", "later steps", _RANKS, "WORLD_SIZE=1"),
    *_same("error", "first step", _SETS, "PYTHONHASHSEED"),
    *_same(
        "error", "first step", _OVERFLOW,
        "INF_NAN_MODE_ENABLE=1", "INF_NAN_MODE_FORCE_DISABLE=0", "MS_ASCEND_CHECK_OVERFLOW_MODE",
    ),
    *_same(
        "error", "rounding", _PRECISION,
        "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=0", "ONEDNN_DEFAULT_FPMATH_MODE=STRICT",
        "DNNL_DEFAULT_FPMATH_MODE=STRICT", "NVTE_APPLY_QK_LAYER_SCALING=0", "NVTE_FP8_DPA_BWD=1",
    ),
    *_same(
        "error", "rounding", _DETERMINISM,
        "CUBLAS_WORKSPACE_CONFIG", "NVTE_ALLOW_NONDETERMINISTIC_ALGO=1", "FLASH_ATTENTION_DETERMINISTIC=0",
        "LCCL_DETERMINISTIC=0", "ATB_MATMUL_SHUFFLE_K_ENABLE=1", "CLOSE_MATMUL_K_SHIFT=0",
        "PYTORCH_TUNABLEOP_ENABLED=0",
    ),
    *_same(
        "error", "rounding", _ATTENTION,
        "NVTE_FLASH_ATTN=1", "NVTE_FUSED_ATTN=1", "NVTE_UNFUSED_ATTN=1", "NVTE_FUSED_ATTN_BACKEND",
        "VLLM_ATTENTION_BACKEND", "XFORMERS_FORCE_DISABLE_TRITON=0",
    ),
    *_same(
        "warning", "rounding", _ORDER,
        "NCCL_PROTO", "NCCL_NVLS_ENABLE=2", "NCCL_COLLNET_ENABLE=0", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
        "HCCL_OP_EXPANSION_MODE", "HCCL_INTRA_COMM_ENABLE",
    ),
    *_same(
        "warning", "rounding", _BLAS,
        "TORCH_BLAS_PREFER_CUBLASLT=0", "TORCH_CUDNN_V8_API_DISABLED=0", "TORCH_CUDNN_USE_HEURISTIC_MODE_B=0",
        "VLLM_ASCEND_ENABLE_NZ=0", "MS_ENABLE_INTERNAL_BOOST", "MS_INTERNAL_DISABLE_CUSTOM_KERNEL_LIST",
        "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
    ),
    *_same(
        "warning", "rounding", _COMPILER,
        "TORCH_COMPILE_DISABLE=0", "TORCHDYNAMO_DISABLE=0", "TORCHINDUCTOR_MAX_AUTOTUNE=0", "PYTORCH_JIT=1",
        "TORCHINDUCTOR_EMULATE_PRECISION_CASTS=0", "NVTE_TORCH_COMPILE=1", "NVTE_BIAS_GELU_NVFUSION=1", "XLA_FLAGS",
        "MS_DEV_GRAPH_KERNEL_FLAGS",
    ),
    *_same("warning", "rounding", _THREADS, "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *_same(
        "warning", "speed", _TIME,
        "CUDA_DEVICE_MAX_CONNECTIONS=8", "PYTORCH_NO_CUDA_MEMORY_CACHING=0", "TORCH_NCCL_AVOID_RECORD_STREAMS=0",
        "TORCH_NCCL_BLOCKING_WAIT=0", "NCCL_P2P_DISABLE=0", "NCCL_SHM_DISABLE=0", "NCCL_IB_DISABLE=0",
        "NCCL_BUFFSIZE=4194304",
        "HCCL_BUFFSIZE=200", "TASK_QUEUE_ENABLE=1", "CPU_AFFINITY_CONF", "MULTI_STREAM_MEMORY_REUSE=1",
        "COMBINED_ENABLE=0",
        "MS_ALLOC_CONF", "MS_DEV_RUNTIME_CONF", "OMP_PROC_BIND", "KMP_AFFINITY",
    ),
)  # fmt: skip

NAMES = frozenset(name for variable in TABLE for name in (variable.npu, variable.gpu) if name)
_FIELDS = ("level", "default", "effect", "why", "npu")


def extended(path: str) -> tuple[Variable, ...]:
    """The table, extended by a YAML file of ``NAME: level`` or ``NAME: {level, default, effect, why, npu}``.

    ``npu`` is the name of the same thing on an NPU. Raises PathError, InvalidInputError with all that is wrong.
    """
    from msprobe.config.yaml_source import read_yaml

    source = read_yaml(path, "table of variables")
    content = source.document.value
    if not isinstance(content, dict) or not content:
        raise InvalidInputError(said("variables-file-form", path))
    mistakes: list[str] = []
    own = [_variable(name, value, mistakes) for name, value in content.items()]
    if mistakes:
        raise InvalidInputError(Wording('"{}": {}.', path, joined("; ", mistakes)))
    names = {name for variable in own for name in (variable.npu, variable.gpu)}
    return (*own, *(variable for variable in TABLE if not {variable.npu, variable.gpu} & names))


def _variable(name: str, given: Any, mistakes: list[str]) -> Variable:
    fields: Mapping[str, Any] = given if isinstance(given, dict) else {"level": given}
    unknown = [field for field in fields if field not in _FIELDS]
    if unknown:
        mistakes.append(said("variables-field-unknown", name, unknown[0], ", ".join(_FIELDS)))
    level, effect = fields.get("level", "error"), fields.get("effect", "unknown")
    if level not in LEVELS:
        mistakes.append(said("variables-level-wrong", name, ", ".join(LEVELS), repr(level)))
    if effect not in EFFECTS:
        mistakes.append(said("variables-effect-wrong", name, ", ".join(EFFECTS), repr(effect)))
    default, why = (fields.get(key) for key in ("default", "why"))
    text = UNSET if default is None else str(default)
    other = str(fields.get("npu") or name)
    return Variable(other, name, text, text, level, effect, str(why or ""))
