"""What is measured of plain values on the host: numbers, rows and digests of their elements, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from msprobe.capture import native
from msprobe.capture.statistics_text import SEPARATOR, StatisticsText
from msprobe.capture.tensor_rows import TensorRows
from msprobe.capture.torch.devices.device_errors import is_out_of_memory, reason
from msprobe.capture.torch.devices.device_statistics import Measurement
from msprobe.capture.torch.tensors import digest
from msprobe.capture.torch.tensors.remembered import KnownElements
from msprobe.capture.torch.tensors.row_descriptions import RowDescriptions
from msprobe.capture.torch.tensors.statistics_framework import Numbers, OwnWork, reduce
from msprobe.capture.torch.tensors.statistics_info import Content, TensorNumbers, digest_key
from msprobe.messages import said

SummaryMode = Literal["statistics", "md5", "xor", "xxh3", "structure"]

_UNREADABLE: Numbers = {}
# Name, the number that the native reductions know it by, whether every tensor has a digest, values of a one-byte float.
_Known = tuple[str, int, bool, bytes | None]


class HostElements:
    """Measures plain tensors on the CPU, as ``TensorStatistics`` is asked to."""

    def __init__(self, summary_mode: SummaryMode, is_precise: bool, text: StatisticsText) -> None:
        self.text = text
        self.counts = summary_mode not in ("structure", "xor")
        self.is_structure = summary_mode == "structure"
        self.has_crc = summary_mode == "md5"
        self.has_xor = summary_mode == "xor"
        self._digest_all = summary_mode == "xxh3"
        self.is_precise = is_precise
        self.flags = native.HIGH_PRECISION if is_precise else 0
        self.further = native.further_passes(text.needs)
        self.types = _known_types(self.wants_digest)
        #: The rows of this step's tensors; of no use for digests alone.
        self.rows = TensorRows() if self.counts else None
        self.row_descriptions = RowDescriptions(self.rows, self.types)
        #: How often the elements of a tensor were read for its statistics.
        self.reads = 0

    @property
    def reads_all(self) -> bool:
        """Whether digests of all tensors are made."""
        return self.has_crc or self.has_xor or self._digest_all

    def wants_digest(self, dtype: torch.dtype) -> bool:
        """Whether tensors of a type have a digest."""
        whole = not dtype.is_floating_point and not dtype.is_complex
        return not self.is_structure and (whole or self._digest_all)

    def is_hashed(self, dtype: torch.dtype) -> bool:
        """Whether the bytes of elements of a type are read as well."""
        return self.wants_digest(dtype) or self.has_crc or self.has_xor

    def measure(
        self, dtype: str, has_row: bool, share: KnownElements, values: torch.Tensor, stored: torch.Tensor
    ) -> Measurement:
        """What is known of plain values on the CPU, which stand for a tensor of ``dtype``."""
        problem = row = None
        numbers = share.blocks.get(share.block)
        if numbers is None and self.counts:
            try:
                numbers = share.blocks[share.block] = self._read(values)
            except (NotImplementedError, RuntimeError) as error:
                if is_out_of_memory(error):
                    raise
                problem = said("no-statistics-of-dtype", dtype, reason(error))
                numbers = _UNREADABLE
        if has_row and numbers is not _UNREADABLE:
            row = self.row_descriptions.of(values, share.rows, share.block)
        wants_digest = self.wants_digest(stored.dtype)
        raw = digest.tensor_digest(stored) if self.is_hashed(stored.dtype) else b""
        return Measurement(
            numbers,
            row,
            digest.crc32(digest.widen(stored.dtype, raw)) if self.has_crc else b"",
            digest.xxh3(raw) if wants_digest else b"",
            digest.xor_value(stored, raw) if self.has_xor else b"",
            problem,
        )

    def measure_alone(self, dtype: str, has_row: bool, values: torch.Tensor, stored: torch.Tensor) -> Measurement:
        """The same of what nothing is known of."""
        return self.measure(dtype, has_row, KnownElements({}, None), values, stored)

    def _read(self, values: torch.Tensor) -> Numbers:
        """Numbers of a plain CPU tensor."""
        self.reads += 1
        known, needs = self.types.get(values.dtype), self.text.needs
        if known is None or native.numbers is None or not needs <= native.NUMBERS.keys():
            return reduce(values, self.is_precise, needs)
        flags = self.flags if values.dim() else self.flags | native.SCALAR
        pattern = native.pattern(tuple(values.shape), values.stride())
        return native.numbers(digest.address_of(values), pattern, known[1], flags, self.further, known[3])

    def absent(self) -> Content:
        """What is written where there are no elements to read."""
        if self.is_structure:
            return Content(b"", b"", b"", None)
        if self.has_xor:
            return Content(b'"md5":null,', b"", b"", None)
        nulls = self.text.nulls + SEPARATOR if self.text.nulls else b""
        return Content(nulls, b',"md5":null' if self.has_crc else b"", b"", None)

    def content_of(self, known: Measurement) -> Content:
        """What is written of what was measured."""
        if known.numbers is None:
            return Content(b'"md5":' + known.xor + SEPARATOR, b"", digest_key(known.xxh3), None)
        return TensorNumbers(self.text, known.numbers, known.crc, known.xxh3).content()


def _known_types(wants_digest: Callable[[torch.dtype], bool]) -> dict[torch.dtype, _Known]:
    """The types that native reductions take; none without the extension."""
    types: dict[torch.dtype, _Known] = {}
    if native.numbers is None:
        return types
    for name, kind in native.KINDS.items():
        dtype = getattr(torch, name, None)
        if isinstance(dtype, torch.dtype):
            types[dtype] = (str(dtype), kind, wants_digest(dtype), None)
    for name in dir(torch):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and digest.is_float8(dtype):
            with OwnWork():
                table = digest.float8_values(dtype).tobytes()
            types[dtype] = (str(dtype), native.KINDS["float8"], wants_digest(dtype), table)
    return types
