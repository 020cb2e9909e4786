"""The numbers by which results are judged: one row for each element type, one profile for each ``--standard``.

Source of the values: documentation and behaviour of mindstudio-probe 8.1.1 and 26.2; ``strict`` is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Literal

Standard = Literal["benchmark", "absolute", "binary", "ulp", "thousandth", "accumulative"]
ProfileName = Literal["strict", "assert_close", "compiler", "26.2", "8.1.1"]

#: What the files call each standard.
LABELS: dict[Standard, str] = {
    "benchmark": "标杆比对法",
    "ulp": "ULP误差比对法",
    "binary": "二进制一致法",
    "absolute": "绝对阈值法",
    "thousandth": "双千指标法",
    "accumulative": "累积误差比对法",
}


@dataclass(frozen=True)
class Thresholds:
    """The constants of one element type of the device's result."""

    small_value: float
    absolute_atol: float
    benchmark_atol: float
    rtol: float
    least_error: float
    strict_least_error: float
    accumulated_bound: float
    accumulated_balance: float
    ulp_least_exponent: int
    ulp_mantissa: int
    ulp_count_over: int


THRESHOLDS: dict[str, Thresholds] = {
    "float16": Thresholds(2**-10, 2**-16, 1e-16, 2**-10, 2**-11, 2**-11, 2**-8, 2**-20, -14, 10, 1),
    "bfloat16": Thresholds(2**-10, 1e-16, 1e-16, 2**-8, 2**-8, 2**-8, 2**-7, 2**-7, -126, 7, 1),
    "float32": Thresholds(2**-20, 2**-30, 2**-30, 2**-20, 2**-14, 2**-22, 2**-11, 2**-14, -126, 23, 32),
}


#: 8-bit floats: (largest exponent, stored digits) and the least exponent of the ULP that 26.2 counts in for all of
#: them, which is that of hif8 (HiFloat8, a type of Ascend NPUs). Their results are judged by ULP there, and what is
#: computed from them absolutely.
FLOAT8_DIGITS = ((3, 3), (7, 2), (15, 1))
FLOAT8_LEAST_EXPONENT = -22


def is_float8(dtype: str) -> bool:
    """True for the name of an 8-bit float: ``float8_e4m3fn``, and hif8 by any of its names."""
    word = dtype.lower()
    return "float8" in word or is_hif8(word)


def is_hif8(dtype: str) -> bool:
    """True for a name of HiFloat8: ``hif8``, ``hifloat8``, ``torch_npu.HiFloat8Tensor``."""
    return dtype.lower().rpartition(".")[2].startswith(("hif8", "hifloat8"))


def thresholds_of(dtype: str) -> Thresholds:
    """The row of an element type (``float16``); every type without one has that of float32.

    Of 8-bit floats one unit counts as in the half types.
    """
    if is_float8(dtype):
        return replace(THRESHOLDS["float32"], ulp_count_over=1)
    return THRESHOLDS.get(dtype, THRESHOLDS["float32"])


#: Largest finite bfloat16, (2 - 2**-7) * 2**127.
BFLOAT16_MAX = 3.3895313892515355e38
#: Added to the reference's size in relative errors where the device's result is bfloat16.
BFLOAT16_RELATIVE_EPS = 2**-8

COSINE_OVER = 0.99
MAX_ABS_BELOW = 0.001
HUNDREDTH, THOUSANDTH, TEN_THOUSANDTH = 0.01, 0.001, 0.0001
ALL_ZERO = 2.220446049250313e-16
ACCUMULATED_SMALL_VALUE = 1.0

DROPOUT_LEAST_ELEMENTS = 100
DROPOUT_ZERO_SHARE = 0.1


@dataclass(frozen=True)
class Ratios:
    """A ratio of the candidate's error to the control's above which a metric is an error."""

    small_value: float = 2
    rmse: float = 2
    max_relative: float = 10
    mean_relative: float = 2
    balance: float = 2


@dataclass(frozen=True)
class Profile:
    """What one ``--standard`` does differently from the others.

    - ``warning``: the word in the files.
    - ``double_reference``: the reference is computed in double precision from inputs rounded to the candidate's type;
      else as 8.1.1 promotes them (fp16 and bf16 to fp32, fp32 to fp64).
    - ``empty_result``: the status of results without elements.
    - ``small_integers``: the integer types beside int32, int64, uint8 and bool that can be compared.
    - ``all_gradients``: gradients of keyword arguments and through several results are compared, too.
    - ``by_element``: each element is judged by what rounding explains (:mod:`msprobe.precheck.side.strict`).
    - ``by_tolerance``: each element is judged by :data:`TOLERANCES`.
    - ``by_control``: a result of floats is judged by its root mean square error beside that of a control
      (:mod:`msprobe.precheck.compiler_rule`).
    - ``levels``: ratios by the level of an API, in ``api_precision_compare``.
    """

    name: ProfileName
    warning: str
    double_reference: bool
    empty_result: str
    small_integers: frozenset[str]
    all_gradients: bool
    by_element: bool
    benchmark_for_floats: bool
    levels: bool
    by_tolerance: bool = False
    by_control: bool = False

    @property
    def own(self) -> bool:
        """True for standards of ours: all types are compared, random calls by how they are spread."""
        return self.by_element or self.by_tolerance


#: Type -> relative and absolute tolerance of torch.testing.assert_close (torch 2.13); of two types the looser counts.
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    # Which torch has no tolerance for: one unit.
    "float8_e4m3fn": (2.0**-3, 1e-5),
    "float8_e5m2": (2.0**-2, 1e-5),
}
_WIDTHS = frozenset(("int8", "int16", "uint16", "uint32", "uint64"))
PROFILES: dict[str, Profile] = {
    "strict": Profile("strict", "Warning", True, "pass", _WIDTHS, True, True, False, False),
    "assert_close": Profile(
        "assert_close", "Warning", True, "pass", _WIDTHS, True, False, False, False, by_tolerance=True
    ),
    "compiler": Profile(
        "compiler", "Warning", True, "pass", _WIDTHS, True, False, False, False, by_tolerance=True, by_control=True
    ),
    "26.2": Profile("26.2", "warning", False, "SKIP", frozenset(("int8",)), False, False, True, True),
    "8.1.1": Profile("8.1.1", "Warning", False, "error", frozenset(), False, False, False, False),
}

_LEVEL_1 = frozenset("embedding npu_fusion_attention_grad npu_fusion_attention scatter_ scatter_add_".split())
_LEVEL_2 = frozenset(
    """addmm npu_cross_entropy_loss npu_cross_entropy_loss_backward GELU layer_norm matmul mm index one_hot sum
    npu_rms_norm npu_rms_norm_backward nonzero""".split()
)


def ratios_of(api: str, profile: Profile) -> Ratios:
    """The limits for one API, by its name without type and number."""
    if not profile.levels:
        return Ratios()
    if api in _LEVEL_2:
        return Ratios(rmse=1.2, max_relative=2, mean_relative=1.2)
    if api in _LEVEL_1:
        return Ratios(rmse=1.5, max_relative=5, mean_relative=1.5)
    return Ratios()


@lru_cache(maxsize=1)
def _table() -> dict[str, Standard]:
    from msprobe.foreign import yaml_text

    text = files("msprobe.precheck").joinpath("api_standards.yaml").read_text(encoding="utf-8")
    groups = yaml_text.load(text, "api_standards.yaml")
    return {str(name): standard for standard, names in groups.items() for name in names}


def standard_of(api: str) -> Standard:
    """The standard by which an API is judged, by its name without type and number."""
    return _table().get(api, "benchmark")
