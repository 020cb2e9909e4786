"""What a dump says of a tensor: type, shape, statistics, digest.

A tensor met again is not read again. Results are remembered by the memory they lie in (the StorageImpl, held
weakly so that its address cannot come to mean another) and its version counter; any view of the same
elements, in whatever order, shares the statistics.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from msprobe import log
from msprobe.capture import native
from msprobe.capture.torch import digest
from msprobe.capture.torch.statistics_framework import NO_NUMBERS, Numbers, Quiet, reduce

SummaryMode = Literal["statistics", "md5", "xor", "xxh3", "structure"]
Precision = Literal["low", "high"]

MEMO_LIMIT = 100_000  # storages

_ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter})
_REQUIRES = b'"requires_grad": true'
_REQUIRES_NOT = b'"requires_grad": false'
# Reading an address must not make a lazily copied tensor copy itself.
_address_of: Any = getattr(torch.Tensor, "const_data_ptr", torch.Tensor.data_ptr)


class TensorInfo:
    """The description of one tensor.

    ``text``: JSON object, written for depth 0. ``nonfinite``: whether an element is NaN or infinite, None
    when not known. ``late``: the numbers are still on the device; ``text`` is filled by
    ``TensorStatistics.flush()``. ``data_name``: the file that keeps the values, if one does.
    """

    __slots__ = ("_cut", "data_name", "late", "nonfinite", "text")

    def __init__(self, text: bytes, cut: int, nonfinite: bool | None) -> None:
        self.text = text
        self._cut = cut  # where data_name belongs: behind the reference's keys, before ours
        self.nonfinite = nonfinite
        self.late = False
        self.data_name: str | None = None

    def with_file(self, data_name: str) -> TensorInfo:
        """The same description, naming the file that keeps the values."""
        entry = b',\n "data_name": ' + native.encode(data_name, 0)
        cut = self._cut
        named = TensorInfo(self.text[:cut] + entry + self.text[cut:], cut + len(entry), self.nonfinite)
        named.data_name = data_name
        return named

    def __repr__(self) -> str:
        return f"TensorInfo({self.text.decode(errors='replace')})"


class _Remembered:
    """What is known of the elements in one storage at one version."""

    __slots__ = ("blocks", "version", "views", "weak")

    def __init__(self, version: int, weak: int) -> None:
        self.version = version
        self.weak = weak
        self.views: dict[Any, TensorInfo] = {}
        self.blocks: dict[Any, Any] = {}


class TensorStatistics:
    """Describes tensors.

    ``summary_mode``: "statistics"; "md5" (statistics and a CRC-32); "xor" (a 64-bit XOR in place of
    statistics); "xxh3" (statistics and an order-sensitive digest of every tensor); "structure" (neither).
    ``precision``: "high" leaves mean and norm of half types in float32, as they were computed.
    """

    def __init__(self, summary_mode: SummaryMode = "statistics", precision: Precision = "low") -> None:
        self.summary_mode = summary_mode
        self.errors = 0
        self._structure = summary_mode == "structure"
        self._crc = summary_mode == "md5"
        self._digest_all = summary_mode == "xxh3"
        self._high = precision == "high"
        self._flags = native.HIGH_PRECISION if self._high else 0
        self._memo: dict[int, _Remembered] = {}
        self._prefixes: dict[Any, bytes] = {}
        # dtype -> (native kind, bytes of an element, digest of every tensor, table of values)
        self._kinds: dict[torch.dtype, tuple[int, int, bool, bytes | None]] = {}
        self._learn_kinds()

    def _learn_kinds(self) -> None:
        for name, kind in native.KINDS.items():
            dtype = getattr(torch, name, None)
            if isinstance(dtype, torch.dtype):
                whole = not dtype.is_floating_point and not dtype.is_complex
                self._kinds[dtype] = (kind, dtype.itemsize, whole or self._digest_all, None)
        if "float8" in native.KINDS:
            for name in dir(torch):
                dtype = getattr(torch, name)
                if name.startswith("float8_") and isinstance(dtype, torch.dtype):
                    with Quiet():
                        table = digest.float8_values(dtype).tobytes()
                    self._kinds[dtype] = (native.KINDS["float8"], 1, self._digest_all, table)

    # ---- the way nearly all tensors go ----

    def describe(self, tensor: torch.Tensor, remember: bool = True) -> TensorInfo:
        """The description of ``tensor`` as it is now. Never raises.

        ``remember`` = False for memory that may be written without torch knowing (a tensor that came from
        elsewhere may be shared with numpy): what is known is used, but nothing is added.

        Call inside ``torch._C.DisableTorchFunction()``: with a function mode active even ``tensor.shape``
        would call the mode.
        """
        try:
            if type(tensor) not in _ORDINARY:
                return self._describe_unusual(tensor)
            storage = tensor.untyped_storage()
            version = tensor._version
            view = (
                _address_of(tensor),
                tensor.dtype,
                tensor.shape,
                tensor.stride(),
                tensor.requires_grad,
                tensor.is_neg(),
            )
            remembered = self._memo.get(storage._cdata)
            if remembered is None:
                remembered = _Remembered(version, 0)
            elif remembered.version == version:
                known = remembered.views.get(view)
                if known is not None:
                    return known
            else:
                remembered.version = version
                remembered.views = {}
                remembered.blocks = {}
            info = self._describe_new(tensor, view, storage, remembered)
            if info is None:
                return self._describe_unusual(tensor)
            if remember:
                if not remembered.weak:
                    self._remember(storage, remembered)
                remembered.views[view] = info
            return info
        except Exception:
            return self._describe_unusual(tensor)

    def _remember(self, storage: Any, remembered: _Remembered) -> None:
        if len(self._memo) >= MEMO_LIMIT:
            self.reset()
        remembered.weak = storage._weak_ref()
        self._memo[storage._cdata] = remembered

    def _describe_new(
        self, tensor: torch.Tensor, view: tuple[Any, ...], storage: Any, remembered: _Remembered
    ) -> TensorInfo | None:
        """Describe a strided CPU tensor whose type the compiled reductions know; None if it is another."""
        address, dtype, shape, stride, requires_grad, negated = view
        known = self._kinds.get(dtype)
        if known is None or negated or not tensor.is_cpu or native.statistics is None or dtype.is_complex:
            return None
        kind, itemsize, wants_digest, table = known
        contiguous = tensor.is_contiguous()
        pattern: Any = (tensor.numel(), 1) if contiguous else native.pattern(shape, stride)
        extent = tensor.storage_offset()
        for place in range(0, len(pattern), 2):
            extent += (pattern[place] - 1) * pattern[place + 1]
        if (extent + 1) * itemsize > storage.nbytes() or (address == 0 and pattern[0]):
            return None
        flags = self._flags if shape else self._flags | native.SCALAR
        block = (address, dtype, pattern if shape else None)
        numbers: Numbers | None = remembered.blocks.get(block)
        if numbers is None:
            numbers = native.statistics(address, pattern[0] if contiguous else pattern, kind, flags, table)
            remembered.blocks[block] = numbers
        text, counts, answer = numbers
        md5 = extra = b""
        if wants_digest or self._crc:
            raw = digest.elements(address, shape, stride, itemsize, contiguous)
            if wants_digest:
                extra = b',\n "digest": "%s"' % digest.xxh3(raw)
            if self._crc:
                if dtype == torch.bfloat16:
                    raw = digest.widen_bfloat16(raw)
                md5 = b',\n "md5": "%s"' % digest.crc32(raw)
        if counts:
            extra = b",\n " + counts + extra
        if not contiguous:
            extra = b',\n "stride": ' + native.encode(stride, 1) + extra
        head = (
            self._prefix(dtype, shape)
            + text
            + b",\n "
            + (_REQUIRES if requires_grad else _REQUIRES_NOT)
            + md5
        )
        return TensorInfo(head + extra + b"\n}", len(head), answer != 0)

    def _prefix(self, dtype: torch.dtype, shape: Any) -> bytes:
        key = (dtype, shape)
        prefix = self._prefixes.get(key)
        if prefix is None:
            sizes = native.encode([int(n) for n in shape], 1)
            prefix = b'{\n "type": "torch.Tensor",\n "dtype": "%s",\n "shape": %s,\n ' % (
                str(dtype).encode(),
                sizes,
            )
            if len(self._prefixes) > MEMO_LIMIT:
                self._prefixes.clear()
            self._prefixes[key] = prefix
        return prefix

    # ---- the rest ----

    def _describe_unusual(self, tensor: torch.Tensor) -> TensorInfo:
        try:
            with Quiet():
                dtype, shape = tensor.dtype, tuple(int(n) for n in tensor.shape)
                numbers = NO_NUMBERS if tensor.is_meta else reduce(tensor.detach(), self._high)
                head = self._prefix(dtype, shape) + numbers[0] + b",\n "
                head += _REQUIRES if tensor.requires_grad else _REQUIRES_NOT
                extra = b",\n " + numbers[1] if numbers[1] else b""
            return TensorInfo(head + extra + b"\n}", len(head), numbers[2] != 0)
        except Exception as error:
            self.errors += 1
            log.debug(f"A tensor could not be described: {type(error).__name__}: {error}")
            head = b'{\n "type": "torch.Tensor",\n "dtype": null,\n "shape": [],\n ' + NO_NUMBERS[0]
            reason = native.encode(f"{type(error).__name__}: {error}", 0)
            return TensorInfo(head + b',\n "unsupported": ' + reason + b"\n}", len(head), None)

    def invalidate(self, tensor: torch.Tensor) -> None:
        """Forget what is known of the memory of ``tensor``: it was written in a way no version counter shows.
        """
        try:
            remembered = self._memo.get(tensor.untyped_storage()._cdata)
        except Exception:
            return  # no memory of its own, so nothing is remembered
        if remembered is not None:
            remembered.views = {}
            remembered.blocks = {}

    def flush(self) -> None:
        """Fill in every description that is ``late``; waits for the device, once for all of them."""

    def reset(self) -> None:
        """Forget all tensors; to be called at the end of a step."""
        memo, self._memo = self._memo, {}
        for remembered in memo.values():
            torch.UntypedStorage._free_weak_ref(remembered.weak)
