"""The layouts in which devices keep tensors, and back: only reshape, transpose and cut, so that no bit changes.

C0 and N0 (usually 16) are those of the device's shape; only where a fractal layout is made anew they are 16.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.errors import InvalidInputError
from msprobe.messages import said

Array = npt.NDArray[Any]

FORMATS: dict[int, str] = dict(
    enumerate(
        """
        NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0 FRACTAL_DECONV_TRANSPOSE
        FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT
        FILTER_HWCK HASHTABLE_LOOKUP_LOOKUPS HASHTABLE_LOOKUP_KEYS HASHTABLE_LOOKUP_VALUE HASHTABLE_LOOKUP_OUTPUT
        HASHTABLE_LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ FRACTAL_NZ NCDHW DHWCN NDC1HWC0 FRACTAL_Z_3D CN NC DHWNC
        FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G RESERVED ALL NULL ND_RNN_BIAS FRACTAL_ZN_RNN YUV YUV_A NCL
        FRACTAL_Z_WINO C1HWC0
        """.split()
    )
) | {255: "MAX"}
#: What can be asked for.
TARGETS = ("auto", "raw", "NCHW", "NHWC", "ND", "HWCN", "FRACTAL_Z", "NCDHW")
# What padding to whole cubes may make of an array.
_FREE_ELEMENTS, _MOST_PADDED = 1 << 24, 32
_CUBE = 16
# From NCHW.
_AXES = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "HWCN": (2, 3, 1, 0)}
_PAIRS = {
    "FRACTAL_NZ": ("NCHW", "NHWC", "ND"),
    "HWCN": ("FRACTAL_Z", "NCHW", "NHWC"),
    "NC1HWC0": ("HWCN", "NCHW", "NHWC"),
    "NCHW": ("FRACTAL_Z", "NHWC", "HWCN"),
    "NHWC": ("FRACTAL_Z", "HWCN", "NCHW"),
    "FRACTAL_Z": ("HWCN", "NCHW", "NHWC"),
    "NDC1HWC0": ("NCDHW", "ND"),
}
_AUTO = {"NC1HWC0": "NCHW", "FRACTAL_NZ": "ND", "FRACTAL_Z": "NCHW", "NDC1HWC0": "NCDHW"}


def converted(array: Array, source: str, target: str, logical: tuple[int, ...] = ()) -> tuple[Array, str]:
    """An array in another format, and a remark if it could not be had (the array is as it was then; else empty).

    ``source`` is a name of :data:`FORMATS`, ``target`` one of :data:`TARGETS`, ``logical`` the shape before the device
    padded it (empty where it is not known: the padding stays).
    """
    if target in ("raw", source) or (target == "auto" and source not in _AUTO):
        return array, ""
    wanted = _AUTO[source] if target == "auto" else target
    if wanted not in _PAIRS.get(source, ()):
        return array, said("format-not-convertible", source, wanted)
    try:
        if source == "FRACTAL_NZ":
            return _from_fractal_nz(array, logical), ""
        if source == "NDC1HWC0":
            return _from_blocks_3d(array, logical), ""
        return _to(_to_nchw(array, source, logical), wanted, logical, target == "auto"), ""
    except ValueError as problem:
        return array, said("format-kept", source, problem)


def _to_nchw(array: Array, source: str, logical: tuple[int, ...]) -> Array:
    if source == "NC1HWC0":
        n, c1, h, w, c0 = _shape(array, 5)
        plain = array.transpose(0, 1, 4, 2, 3).reshape(n, c1 * c0, h, w)
        return plain[:, : _channels(logical, (n, h, w), c1 * c0)]
    if source == "FRACTAL_Z":
        if len(logical) != 4:
            raise ValueError(said("format-needs-four-dimensions"))
        blocks, no, ni, c0 = _shape(array, 4)
        for n, c, h, w in (logical, (logical[0], logical[3], logical[1], logical[2])):
            if h * w and blocks % (h * w) == 0 and n <= no * ni and c <= blocks // (h * w) * c0:
                split = array.reshape(blocks // (h * w), h, w, no, ni, c0).transpose(3, 4, 0, 5, 1, 2)
                return split.reshape(no * ni, -1, h, w)[:n, :c]
        raise ValueError(said("format-shape-does-not-hold", list(array.shape), list(logical)))
    _shape(array, 4)
    axes = _AXES[source]
    return array.transpose([axes.index(axis) for axis in range(4)])


def _to(array: Array, wanted: str, logical: tuple[int, ...], auto: bool) -> Array:
    """An array in NCHW as ``wanted``."""
    if wanted == "FRACTAL_Z":
        n, c, h, w = array.shape
        c1, no = -(-c // _CUBE), -(-n // _CUBE)
        if no * _CUBE * c1 * _CUBE * h * w > max(_FREE_ELEMENTS, _MOST_PADDED * array.size):
            raise ValueError(said("format-padded-too-much", list(array.shape), _MOST_PADDED))
        whole = np.zeros((no * _CUBE, c1 * _CUBE, h, w), array.dtype)
        whole[:n, :c] = array
        split = whole.reshape(no, _CUBE, c1, _CUBE, h, w).transpose(2, 4, 5, 0, 1, 3)
        return split.reshape(c1 * h * w, no, _CUBE, _CUBE)
    if auto and len(logical) == 4 and array.shape != logical and array.transpose(_AXES["NHWC"]).shape == logical:
        return array.transpose(_AXES["NHWC"])
    return array.transpose(_AXES[wanted])


def _from_blocks_3d(array: Array, logical: tuple[int, ...]) -> Array:
    n, d, c1, h, w, c0 = _shape(array, 6)
    plain = array.transpose(0, 2, 5, 1, 3, 4).reshape(n, c1 * c0, d, h, w)
    fits = len(logical) == 5 and logical[1] <= c1 * c0
    return plain[:, : logical[1]] if fits else plain


def _from_fractal_nz(array: Array, logical: tuple[int, ...]) -> Array:
    if array.ndim < 4:
        raise ValueError(said("format-under-four-dimensions", list(array.shape)))
    *lead, c1, no, ni, c0 = array.shape
    plain = array.reshape(prod(lead), c1, no, ni, c0).transpose(0, 2, 3, 1, 4).reshape(*lead, no * ni, c1 * c0)
    if not logical:
        return plain
    rows, columns = (1, logical[0]) if len(logical) == 1 else logical[-2:]
    if rows > no * ni or columns > c1 * c0 or prod(logical[:-2]) != prod(lead):
        raise ValueError(said("format-shape-does-not-hold", list(array.shape), list(logical)))
    return plain[..., :rows, :columns].reshape(logical)


def _channels(logical: tuple[int, ...], around: tuple[int, int, int], most: int) -> int:
    """How many channels are no padding: the dimension of the logical shape that is not one of the others."""
    if len(logical) != 4:
        return most
    n, h, w = around
    if (logical[0], logical[2], logical[3]) == (n, h, w) and logical[1] <= most:
        return logical[1]
    if logical[:3] == (n, h, w) and logical[3] <= most:
        return logical[3]
    raise ValueError(said("format-original-does-not-fit", list(logical)))


def _shape(array: Array, dimensions: int) -> tuple[int, ...]:
    if array.ndim != dimensions:
        raise ValueError(said("format-dimensions", list(array.shape), dimensions))
    return tuple(array.shape)


def check_target(name: str) -> str:
    """The format of this name, in its spelling. Raises InvalidInputError for others."""
    known = {target.lower(): target for target in TARGETS}
    if name.lower() not in known:
        raise InvalidInputError(said("format-conversion-unknown", name, ", ".join(TARGETS)))
    return known[name.lower()]
