"""Texts that name a type of elements, a layout or a format of memory, as records have them: the list of all.

A text that names one is looked up here, or in the table that a framework's room builds from these words; it is never
looked up in a module, where a function has a name as well.
"""

from __future__ import annotations

#: Types of elements of torch, without ``torch.``, in all versions.
TORCH_DTYPES = frozenset(
    """bool uint8 byte int8 char int16 short int32 int int64 long uint16 uint32 uint64 int1 int2 int3 int4 int5 int6
    int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 float16 half bfloat16 float32 float float64 double float8_e4m3fn
    float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 complex32 chalf complex64 cfloat
    complex128 cdouble qint8 quint8 qint32 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 bit""".split()
)
TORCH_LAYOUTS = frozenset("strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged _mkldnn".split())
TORCH_MEMORY_FORMATS = frozenset("contiguous_format channels_last channels_last_3d preserve_format".split())
#: Types of elements of MindSpore, in small letters, without ``mindspore.``.
MINDSPORE_DTYPES = frozenset(
    """bool bool_ int8 byte int16 short int32 intc int64 intp uint8 ubyte uint16 ushort uint32 uintc uint64 uintp
    float16 half float32 single float64 double bfloat16 complex64 complex128 int4 qint4x2 hifloat8
    float8_e4m3fn float8_e5m2 float8_e4m3 float8_e8m0 hif8 float_ int_ uint number""".split()
)
#: Recorded type of a value -> the words that its texts may be, without the name of the framework before them.
CONSTANTS = {
    "torch.dtype": TORCH_DTYPES,
    "torch.layout": TORCH_LAYOUTS,
    "torch.memory_format": TORCH_MEMORY_FORMATS,
    "mindspore.dtype": MINDSPORE_DTYPES,
}


def is_known_constant(kind: str, text: object) -> bool:
    """False for a text that should name a constant of this recorded type, and names none. Other types may be anything.

    >>> is_known_constant("torch.dtype", "torch.float16"), is_known_constant("torch.dtype", "torch.set_num_threads")
    (True, False)
    """
    words = CONSTANTS.get(kind)
    return words is None or word_of(kind, text) in words


def word_of(kind: str, text: object) -> str:
    """The word of a text, without the name of the framework: ``float16`` of ``torch.float16``.

    MindSpore writes its types with capital letters in some versions.
    """
    framework = kind.partition(".")[0]
    word = str(text).removeprefix(f"{framework}.").removeprefix("dtype.")
    return word.lower() if framework == "mindspore" else word


def is_known_dtype(word: str) -> bool:
    """Whether a record's type of elements is one of a framework. ``word`` has no framework before it."""
    return word in TORCH_DTYPES or word in MINDSPORE_DTYPES
