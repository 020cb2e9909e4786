"""The part of a script that knows what the texts of a record name: types, layouts and formats of memory.

They are looked up in lists. A text of a record is never a name in a module: a function has a name as well.
"""

from __future__ import annotations

from typing import Any

import torch

from msprobe.messages import said

_TYPES = """
bool uint8 byte int8 char int16 short int32 int int64 long uint16 uint32 uint64 int1 int2 int3 int4 int5 int6 int7 uint1
uint2 uint3 uint4 uint5 uint6 uint7 float16 half bfloat16 float32 float float64 double float8_e4m3fn float8_e4m3fnuz
float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 complex32 chalf complex64 cfloat complex128 cdouble qint8
quint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16
"""
_LAYOUTS = "strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged _mkldnn"
_FORMATS = "contiguous_format channels_last channels_last_3d preserve_format"

#: The recorded type of a value -> what its texts name, of this version of torch.
CONSTANTS: dict[str, dict[str, Any]] = {
    kind: {name: getattr(torch, name) for name in names.split() if isinstance(getattr(torch, name, None), of)}
    for kind, names, of in (
        ("torch.dtype", _TYPES, torch.dtype),
        ("torch.layout", _LAYOUTS, torch.layout),
        ("torch.memory_format", _FORMATS, torch.memory_format),
    )
}


def constant_of(kind: str, text: object) -> Any:
    """What a text such as ``torch.float16`` names, by its recorded type. Raises LookupError where nothing has it."""
    name = str(text).removeprefix("torch.")
    if kind not in CONSTANTS or name not in CONSTANTS[kind]:
        raise LookupError(said("constant-not-in-torch", torch.__version__, kind.removeprefix("torch."), str(text)[:80]))
    return CONSTANTS[kind][name]


def dtype_of(text: object) -> torch.dtype:
    """The type of elements that a text names, with or without ``torch.``. Raises LookupError."""
    dtype: torch.dtype = constant_of("torch.dtype", text)
    return dtype
