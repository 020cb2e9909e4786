"""What a dump says of a tensor whose values are a numpy array: type, shape, statistics, digest.

For adapters that read values on the host (MindSpore), and for values that never were on a device. The numbers are
those of :mod:`msprobe.capture.native` where it is built, else numpy's; both sum in double.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import xxhash

from msprobe.capture import native
from msprobe.capture.array_numbers import Numbers, numbers_of
from msprobe.capture.native import in_one_line
from msprobe.capture.statistics_text import SEPARATOR, StatisticsText, statistics_in
from msprobe.capture.tensor_rows import TensorRows, pieces_of, row_of, row_of_memory
from msprobe.store.dtypes import ELEMENT_TYPES, Array, to_meant

# The text of a description whose values have not come.
NOT_READ = b'{"unsupported":"not read back"}'
_MOST_PREFIXES = 100_000


class HostArray(NamedTuple):
    """The values of a tensor on the host.

    ``stored``: the elements as they are in memory, C order (``uint16`` for bfloat16). ``kind``: the name of the element
    type without any prefix, a key of :data:`msprobe.store.dtypes.ELEMENT_TYPES`.
    """

    stored: Array
    kind: str

    @property
    def meant(self) -> Array:
        """The same numbers in a type that numpy calculates with: bfloat16 as float32."""
        return to_meant(self.stored, ELEMENT_TYPES[self.kind])


class ArrayInfo:
    """The description of one tensor.

    ``text``: JSON object, written for depth 0. ``nonfinite``: whether an element is NaN or infinite, None when not
    known. ``data_name``: the file that keeps the values, if one does.
    """

    __slots__ = ("cut", "data_name", "nonfinite", "text")

    def __init__(self, text: bytes, cut: int, nonfinite: bool | None, data_name: str | None = None) -> None:
        self.text = text
        # Where data_name belongs in the text: behind the reference's keys, before ours.
        self.cut = cut
        self.nonfinite = nonfinite
        self.data_name = data_name

    def with_file(self, data_name: str) -> ArrayInfo:
        """The same description, naming the file that keeps the values."""
        entry = b',"data_name":' + in_one_line(data_name)
        text = self.text[: self.cut] + entry + self.text[self.cut :]
        return ArrayInfo(text, self.cut + len(entry), self.nonfinite, data_name)

    @property
    def statistics(self) -> dict[str, Any]:
        """The statistics by their keys in the file; null as None, empty where they are still to be read."""
        return statistics_in(self.text)

    def __repr__(self) -> str:
        return f"ArrayInfo({self.text.decode(errors='replace')})"


class LateArrayInfo(ArrayInfo):
    """A description whose values come later: :meth:`fill` puts them in, also where a file was named meanwhile."""

    __slots__ = ("named",)

    def __init__(self, data_name: str | None = None) -> None:
        super().__init__(NOT_READ, 0, None, data_name)
        self.named: list[LateArrayInfo] = []

    def with_file(self, data_name: str) -> ArrayInfo:
        """The same description, naming the file that will keep the values."""
        named = LateArrayInfo(data_name)
        self.named.append(named)
        return named

    def fill(self, array_info: ArrayInfo) -> None:
        """The values are there: take over their description."""
        if self.data_name is not None:
            array_info = array_info.with_file(self.data_name)
        self.text, self.cut, self.nonfinite = array_info.text, array_info.cut, array_info.nonfinite
        for named in self.named:
            named.fill(array_info)


class ArrayStatistics:
    """Describes tensors by their values on the host.

    ``summary_mode``: "statistics"; "md5" (statistics and a CRC-32); "xor" (a 64-bit XOR in place of statistics); "xxh3"
    (statistics and an order-sensitive digest of every tensor); "structure" (neither, and no value is read). Tensors of
    whole numbers have the digest in every mode but "structure". ``high_precision`` leaves mean and norm of half types
    in float32. ``names``: of the statistics only these, by their names in :data:`msprobe.statistics_table.TABLE`; none
    given means the usual ones.
    """

    def __init__(
        self, summary_mode: str = "statistics", high_precision: bool = False, names: Sequence[str] = ()
    ) -> None:
        self.structure = summary_mode == "structure"
        self._crc = summary_mode == "md5"
        self._xor = summary_mode == "xor"
        self._digest_all = summary_mode == "xxh3"
        self._high = high_precision
        self.text = StatisticsText(names)
        #: Where tensors get rows: whoever records them says so.
        self.rows: TensorRows | None = None
        self._prefixes: dict[Any, bytes] = {}

    def describe(
        self,
        type_name: str,
        dtype: str,
        shape: tuple[int, ...],
        values: HostArray | None,
        further: Sequence[tuple[str, Any]] = (),
    ) -> ArrayInfo:
        """The description of one tensor; without values only in mode "structure". ``further``: keys of its own, behind
        all others.
        """
        head = self._prefix(type_name, dtype, shape)
        behind = b"".join(b"," + in_one_line(key) + b":" + in_one_line(value) for key, value in further)
        if self.structure or values is None:
            return ArrayInfo(head + behind + b"}", len(head), None)
        nonfinite: bool | None = None
        extra = b""
        if self._xor:
            head += b',"md5":' + _xor(values.stored)
        else:
            text, counts, answer = self.text.render(_numbers(values, self._high, self.text.needs))
            head += SEPARATOR + text if text else b""
            extra = SEPARATOR + counts if counts else b""
            nonfinite = answer != 0
        if self._crc:
            head += b',"md5":"%08x"' % crc32(values)
        if (
            self._digest_all
            or values.stored.dtype.kind in "ib"
            or (values.stored.dtype.kind == "u" and _is_whole(values))
        ):
            digest = xxhash.xxh3_64_hexdigest(_bytes(values.stored)).encode()
            extra += b',"digest":"xxh3:%s"' % digest
        if self.rows is not None and self.rows.on and not self._xor and values.stored.size:
            behind += b',"row":%d' % self.rows.add(_row(values))
        return ArrayInfo(head + extra + behind + b"}", len(head), nonfinite)

    def absent(self, type_name: str, dtype: str, shape: tuple[int, ...], reason: str) -> ArrayInfo:
        """The description of a tensor whose values cannot be read."""
        head = self._prefix(type_name, dtype, shape)
        if not self.structure and not self._xor:
            head += SEPARATOR + self.text.nulls if self.text.nulls else b""
        if self._crc or self._xor:
            head += b',"md5":null'
        return ArrayInfo(head + b',"unsupported":' + in_one_line(reason) + b"}", len(head), None)

    def _prefix(self, type_name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
        key = type_name, dtype, shape
        known = self._prefixes.get(key)
        if known is None:
            if len(self._prefixes) >= _MOST_PREFIXES:
                self._prefixes.clear()
            whole = in_one_line({"type": type_name, "dtype": dtype, "shape": [int(n) for n in shape]})
            known = self._prefixes[key] = whole[: -len(b"}")]
        return known


def crc32(values: HostArray) -> int:
    """The CRC-32 of a tensor's bytes in C order; bfloat16 is hashed as float32, as the reference does."""
    return zlib.crc32(_bytes(values.meant))


def _is_whole(values: HostArray) -> bool:
    """Whether an array of unsigned numbers means whole numbers, not the bits of floats."""
    return values.kind.startswith("uint")


def _bytes(array: Array) -> memoryview:
    # Types that numpy has no buffer format for go as what they are: bytes.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _xor(array: Array) -> bytes:
    raw = bytes(_bytes(array))
    if not raw:
        return b"null"
    words = np.frombuffer(raw + b"\0" * (-len(raw) % 8), "<u8")
    return b'"0x%016x"' % int(np.bitwise_xor.reduce(words))


def _numbers(values: HostArray, high_precision: bool, needs: Set[str]) -> Numbers:
    stored = values.stored
    kind = native.KINDS.get(values.kind)
    if (
        native.numbers is not None
        and kind is not None
        and needs <= native.NUMBERS.keys()
        and stored.ndim > 0
        and stored.dtype.kind != "c"
        and stored.flags.c_contiguous
    ):
        flags = native.HIGH_PRECISION if high_precision else 0
        further = native.further_passes(needs)
        return native.numbers(stored.ctypes.data, stored.size, kind, flags, further)
    array = values.meant
    numbers = numbers_of(array, needs)
    if numbers["single"]:
        _leave_single(array, numbers)
    elif array.dtype.kind in "fc":
        for name in ("mean", "norm"):
            if name in numbers:
                numbers[name] = _round(numbers[name], values.kind, high_precision)
    return numbers


def _row(values: HostArray) -> bytes:
    """The row of an array with elements; a complex one counts as its real and imaginary parts."""
    stored = values.stored
    kind = native.KINDS.get(values.kind)
    if native.RowTable is not None and kind is not None and stored.dtype.kind != "c" and stored.flags.c_contiguous:
        return row_of_memory(stored.ctypes.data, (stored.size,), (1,), kind, None)
    flat = np.ascontiguousarray(values.meant).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    return row_of(pieces_of(flat, lambda piece: piece), flat.size)


def _leave_single(array: Array, numbers: Numbers) -> None:
    """One number: it is its own mean, and its magnitude is the norm."""
    if array.dtype.kind != "b":
        value = float(np.abs(array)) if array.dtype.kind == "c" else array.item()
        numbers.update(max=value, min=value, mean=value, norm=abs(value))


def _round(number: float, kind: str, high_precision: bool) -> float:
    """A mean or norm in the type that the framework would answer in; float32 for half types at high precision."""
    if kind in ("float64", "complex128"):
        return number
    with np.errstate(over="ignore"):
        single = np.float32(number)
        if high_precision or kind not in ("float16", "bfloat16") or not np.isfinite(single):
            return float(single)
        return float(np.float16(single)) if kind == "float16" else float(nearest_bfloat16(np.array(single)))


def nearest_bfloat16(array: Array) -> Array:
    """float32 values rounded to the nearest bfloat16, ties to even; still float32."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    result: Array = (rounded & np.uint32(0xFFFF0000)).view(np.float32).reshape(array.shape)
    return np.where(np.isfinite(array), result, array)
