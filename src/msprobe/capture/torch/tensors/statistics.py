"""What a dump says of a tensor: type, shape, statistics, digest.

A tensor met again is not described again. Results are remembered by the memory they lie in (the StorageImpl, by
its address, as long as that cannot have come to mean another) and its version counter; any view of the same
elements, in whatever order, shares the statistics. A write that does not raise the version is found by the elements
themselves and by what happened since: see :mod:`msprobe.capture.torch.tensors.remembered`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import torch

from msprobe import log
from msprobe.capture import native
from msprobe.capture.statistics_text import StatisticsText
from msprobe.capture.torch import private
from msprobe.capture.torch.devices.device_chunks import is_capturing
from msprobe.capture.torch.devices.device_errors import is_out_of_memory, reason
from msprobe.capture.torch.devices.device_statistics import (
    DeviceStatistics,
    LateElements,
    Measurement,
)
from msprobe.capture.torch.devices.late_descriptions import LateDescriptions
from msprobe.capture.torch.graphs.graph_slots import GraphSlots
from msprobe.capture.torch.tensors import digest, remembered
from msprobe.capture.torch.tensors.host_elements import HostElements, SummaryMode
from msprobe.capture.torch.tensors.remembered import KnownElements, Memory, Remembered
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.capture.torch.tensors.statistics_info import (
    IN_GRAPH,
    Content,
    Envelope,
    LateInfo,
    MeasuredInfo,
    SlotInfo,
    TensorInfo,
    TensorNumbers,
    keys,
    prefix,
    row_key,
    unset,
)
from msprobe.capture.torch.tensors.statistics_unusual import ORDINARY, Unwrapped, fits, inside_of, is_plain, unwrap
from msprobe.capture.torch.tensors.storages import (
    address_of_storage,
    in_backward,
    is_expired,
    may_be_passing,
    storage_of,
)
from msprobe.capture.torch.tensors.unwritten import Write
from msprobe.guard import pass_on
from msprobe.messages import said

__all__ = ["Precision", "SummaryMode", "TensorInfo", "TensorStatistics"]

Precision = Literal["low", "high"]

MEMO_LIMIT = 100_000  # storages


class TensorStatistics:
    """Describes tensors.

    ``summary_mode``: "statistics"; "md5" (statistics and a CRC-32); "xor" (a 64-bit XOR in place of
    statistics); "xxh3" (statistics and an order-sensitive digest of every tensor); "structure" (neither).
    Integer and bool tensors have the digest in every mode but "structure".
    ``precision``: "high" leaves mean and norm of half types in float32, as they were computed.
    ``defer``: treat CPU tensors as those of an accelerator: descriptions are ``late`` until the numbers of their
    chunk are on the host (:attr:`late`), or :meth:`flush`.
    ``saves``: the values of what is described go to files as well, once for each description: a description is only
    given again for what certainly holds the same values, and waiting for a device is no matter.
    ``exact``: on the CPU all elements are hashed before a tensor is taken for what was described, however many; so in
    modes with digests, and if ``saves``.

    ``errors`` counts the tensors that could not be described.
    """

    def __init__(
        self,
        summary_mode: SummaryMode = "statistics",
        precision: Precision = "low",
        defer: bool = False,
        saves: bool = False,
        exact: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        self.summary_mode = summary_mode
        self.errors = 0
        self._defer = defer
        self.text = StatisticsText(names)
        self._host = host = HostElements(summary_mode, precision == "high", self.text)
        self.rows = host.rows
        self._device = DeviceStatistics(host.is_precise, self.text.needs)
        self._saves = saves
        self.late = LateDescriptions(self._device, host.content_of, host.absent)
        self._memory = Memory(MEMO_LIMIT)
        # Where replays of the graph that is captured now put what is measured; None: in graphs nothing is measured.
        self.slots: GraphSlots | None = None
        self._prefixes: dict[Any, bytes] = {}
        self.native_memo: Any = None
        with_memo = self.text.needs <= native.NUMBERS.keys() and private.has("memory")
        if native.Memo is not None and not native.is_memo_off() and not defer and with_memo:
            self.native_memo = native.Memo(
                ordinary=tuple(ORDINARY),
                types=host.types,
                info_class=TensorInfo,
                address_of=digest.address_of,
                digest=_digest_of,
                otherwise=self._describe_otherwise,
                free_weak=private.free_weak_reference,
                is_expired=is_expired,
                parameter=torch.nn.Parameter,
                storage_of=storage_of,
                in_backward=in_backward,
                is_lazy=private.is_lazily_copied,
                exchange=getattr(torch.Tensor, "__dlpack_c_exchange_api__", None),
                flags=host.flags,
                render=None if self.text.is_usual else self.text.render,
                further=host.further,
                mode=native.XOR if host.has_xor else native.STRUCTURE if host.is_structure else native.STATISTICS,
                crc=host.has_crc,
                exact=exact or saves or host.reads_all,
                limit=MEMO_LIMIT,
                fault=native.fault_of_memo,
                rows=None if self.rows is None else self.rows.table,
            )
            # The method below, without a step through Python.
            self.describe = self.native_memo.describe  # type: ignore[method-assign]

    @property
    def reads(self) -> int:
        """How often the elements of a tensor on the CPU were read for its statistics."""
        return self._host.reads + (0 if self.native_memo is None else int(self.native_memo.reads))

    def is_native(self) -> bool:
        """Whether :meth:`describe` is that of the native memo."""
        return self.native_memo is not None and self.describe == self.native_memo.describe

    # ---- what was described before is not read again ----

    def describe(self, tensor: torch.Tensor, remember: bool = True) -> TensorInfo:
        """The description of ``tensor`` as it is now. Never raises.

        ``remember`` = False for memory that may be written without torch knowing (a tensor that came from
        elsewhere may be shared with numpy): what is known is used, but nothing is added.

        Call inside ``private.without_functions()``: with a function mode active even ``tensor.shape``
        would call the mode.
        """
        return self._describe_otherwise(tensor, remember)

    def _describe_otherwise(self, tensor: torch.Tensor, remember: bool) -> TensorInfo:
        """Tensors that the native memo does not take: unusual ones, or all where there is none."""
        try:
            memory = self._memory_of(tensor)
            if memory is None:
                return self._describe_unusual(tensor, why_not_read=IN_GRAPH)
            if type(tensor) not in ORDINARY:
                return self._describe_unusual(tensor, is_wrapper=True)
            storage = address_of_storage(tensor)
            dtype, shape, stride = tensor.dtype, tensor.shape, tensor.stride()
            address, requires_grad, negated = digest.address_of(tensor), tensor.requires_grad, tensor.is_neg()
            known = memory.of(storage, tensor._version, tensor)
            unwritten = self._describe_unwritten(tensor, known) if memory.is_unwritten(known) else None
            if unwritten is not None:
                return unwritten
            # A conjugate view has the same place and sizes as what it is the conjugate of.
            if negated or dtype.is_complex or tensor.is_quantized or tensor.device.type == "meta":
                return self._describe_unusual(tensor)
            share = self._share_of(tensor, known)
            if share is None:
                return self._describe_unusual(tensor)
            view = (address, dtype, shape, stride, requires_grad)
            info: TensorInfo | None = known.views.get(view)
            if info is not None:
                return info
            info = self._describe_unusual(tensor, share)
            if remember and not (not may_be_passing(tensor) and remembered.is_shared(tensor)):
                memory.keep(storage, known, tensor)
                known.views[view] = info
            return info
        except Exception as error:
            pass_on(error)
            # No storage, no version counter, no sizes: not an everyday tensor.
            return self._describe_unusual(tensor)

    def _memory_of(self, tensor: torch.Tensor) -> Memory | None:
        """Where what is known of a tensor is remembered; None inside of a graph in which nothing is measured."""
        if not _is_captured(tensor):
            return self._memory
        slots = self.slots
        return None if slots is None else slots.memory

    def _memories(self) -> list[Memory]:
        return [self._memory] if self.slots is None else [self._memory, self.slots.memory]

    def _share_of(self, tensor: torch.Tensor, known: Remembered) -> KnownElements | None:
        """What is known of the elements of a plain tensor, by ``known``, what is of its storage; None where nothing may
        be remembered.
        """
        if known.trust or not fits(tensor):
            return None
        address, dtype, shape, stride = digest.address_of(tensor), tensor.dtype, tensor.shape, tensor.stride()
        pattern = native.pattern(tuple(shape), stride)
        block = (address, dtype, pattern if shape else None)
        in_order = tensor.is_contiguous()
        if self.is_late(tensor):
            place = (address, dtype, tensor.numel() if in_order else (shape, stride))
            return KnownElements({}, None, known.rows, place)
        self._look_again(tensor, known, block, pattern)
        return None if known.trust else KnownElements(known.blocks, block, known.rows if in_order else None)

    def _share_inside(self, unwrapped: Unwrapped) -> KnownElements | None:
        """The same of the tensor in a wrapper (a DTensor, float8 with its scale), which others may wrap as well."""
        values = unwrapped.values
        if values is None or unwrapped.stored is not None or type(values) not in ORDINARY or values.dtype.is_complex:
            return None
        try:
            storage, version = address_of_storage(values), values._version
        except Exception as error:
            pass_on(error)
            return None
        memory = self._memory_of(values)
        if memory is None:
            return None
        known = memory.of(storage, version, values)
        share = self._share_of(values, known)
        if share is not None and (may_be_passing(values) or not remembered.is_shared(values)):
            memory.keep(storage, known, values)
        return share

    def _look_again(self, tensor: torch.Tensor, known: Remembered, block: Any, pattern: tuple[int, ...]) -> None:
        """Look whether the elements, which are on the CPU, are still those that are remembered; where they are not,
        ``known`` is exposed. On a device the version alone says.
        """
        if not self._host.is_structure and tensor.numel():
            before, now = known.fingerprints.get(block), remembered.fingerprint(tensor, pattern)
            known.fingerprints[block] = now
            if before is not None and before != now:
                known.expose()

    def _describe_unwritten(self, tensor: torch.Tensor, known: Remembered) -> TensorInfo | None:
        """A description without numbers, if nobody has written all of the tensor; None if somebody has."""
        unwritten = known.unwritten
        if unwritten is None or not unwritten.holds(tensor) or not fits(tensor):
            return None
        with OwnWork():
            unwrapped = unwrap(tensor)
            beginning = self._prefix(unwrapped.type_name, unwrapped.dtype, unwrapped.shape)
            behind = keys([*unwrapped.behind, ("unset", True)])
            info = unset(
                Envelope(beginning, unwrapped.requires_grad, keys(unwrapped.before), behind), self._host.absent()
            )
            if _is_captured(tensor):
                return info
            now = unwritten.bytes_of(tensor)
            if unwritten.seen is None:
                unwritten.seen = now  # it has memory since
            if self.is_late(tensor):
                written = self._device.compare(unwritten.seen, now)
                return self._describe_unusual(tensor, KnownElements({}, None, written=written))
            if not torch.equal(unwritten.seen, now):
                # Written by code that torch does not count.
                known.unwritten = None
                return None
        return info

    def is_late(self, values: torch.Tensor) -> bool:
        """Whether what is said of a tensor comes later."""
        return self._defer or not values.is_cpu

    # ---- everything else: other layouts, classes, types and devices ----

    def _describe_unusual(
        self,
        tensor: torch.Tensor,
        share: KnownElements | None = None,
        why_not_read: str | None = None,
        is_wrapper: bool = False,
    ) -> TensorInfo:
        """``share``: statistics by the elements they are of, and which elements are those of this tensor.
        ``why_not_read``: why its elements are not read. ``is_wrapper``: they are those of a tensor inside.
        """
        try:
            with OwnWork():
                unwrapped = unwrap(tensor)
                if is_wrapper and not self._host.is_structure:
                    share = self._share_inside(unwrapped)
                if why_not_read is not None:
                    unwrapped.values = unwrapped.stored = None
                    unwrapped.unsupported = why_not_read
                try:
                    return self._describe_unwrapped(unwrapped, share)
                except Exception as error:
                    pass_on(error)
                    # Its shape and type are known, only the elements cannot be read.
                    self.errors += 1
                    unwrapped.values = None
                    unwrapped.unsupported = reason(error)
                    if is_out_of_memory(error):
                        unwrapped.unsupported = said("out-of-memory-for-statistics", reason(error))
                        log.once("out of memory", "warning", lambda: said("device-without-memory"))
                    return self._describe_unwrapped(unwrapped, None)
        except Exception as error:
            pass_on(error)
            self.errors += 1
            log.debug(f"A tensor of type {type(tensor).__name__} could not be described: {reason(error)}")
            frame = Envelope(prefix("torch.Tensor", "", ()), False, b"", keys([("unsupported", reason(error))]))
            return _finished(frame, self._host.absent())

    def _describe_unwrapped(self, unwrapped: Unwrapped, share: KnownElements | None) -> TensorInfo:
        values = unwrapped.values
        stored = values if unwrapped.stored is None else unwrapped.stored
        behind = (
            unwrapped.behind
            if unwrapped.unsupported is None
            else [*unwrapped.behind, ("unsupported", unwrapped.unsupported)]
        )
        beginning = self._prefix(unwrapped.type_name, unwrapped.dtype, unwrapped.shape)
        frame = Envelope(beginning, unwrapped.requires_grad, keys(unwrapped.before), keys(behind))
        if values is None or stored is None or self._host.is_structure:
            return _finished(frame, self._host.absent())
        share = share or KnownElements({}, None)
        if self.is_late(values):
            return self._describe_late(frame, unwrapped, values, stored, share)
        has_row = self._host.row_descriptions.has_row(unwrapped, values)
        return self._measured(frame, self._host.measure(unwrapped.dtype, has_row, share, values, stored))

    def _describe_late(
        self, frame: Envelope, unwrapped: Unwrapped, values: torch.Tensor, stored: torch.Tensor, share: KnownElements
    ) -> TensorInfo:
        known = share.rows
        slots = self.slots if _is_captured(values) else None
        elements: LateElements | None = None if known is None else known.get(share.place)
        if elements is None:
            has_row = self._host.row_descriptions.has_row(unwrapped, values)
            # It keeps no tensor alive.
            measure = functools.partial(self._host.measure_alone, unwrapped.dtype, has_row)
            if (
                self._saves
                or unwrapped.stored is not None
                or self._host.is_hashed(stored.dtype)
                or not self._host.counts
            ):
                elements = self._device.copy(values, stored, measure, slots)
            else:
                rows = self.rows if has_row else None
                elements = self._device.measure(values, stored, measure, None if rows is None else rows.add, slots)
            if known is not None:
                known[share.place] = elements
        if slots is not None:
            return SlotInfo(frame, self._host.absent().middle, elements)
        if elements.known is not None and share.written is None:
            return self._measured(frame, elements.known)
        return self.late.add(LateInfo(frame, self._host.absent().middle, elements, share.written))

    def _measured(self, frame: Envelope, known: Measurement) -> TensorInfo:
        behind = row_key(known.row) if known.problem is None else keys([("unsupported", known.problem)])
        frame = frame._replace(behind=frame.behind + behind)
        if known.numbers is None:
            return _finished(frame, self._host.content_of(known))
        return MeasuredInfo(frame, TensorNumbers(self.text, known.numbers, known.crc, known.xxh3))

    def _prefix(self, *beginning: Any) -> bytes:
        known = self._prefixes.get(beginning)
        if known is None:
            if len(self._prefixes) >= MEMO_LIMIT:
                self._prefixes.clear()
            known = self._prefixes[beginning] = prefix(*beginning)
        return known

    def copy(self, tensor: torch.Tensor, buffer: memoryview) -> tuple[str, tuple[int, ...], int] | None:
        """Copy the elements in C order into ``buffer``, which must have their size: (name of the type without
        ``torch.``, shape, CRC-32 of the bytes). None, and nothing copied, for all but everyday tensors.
        """
        copied: tuple[str, tuple[int, ...], int] | None = None
        if self.native_memo is not None:
            copied = self.native_memo.copy(tensor, buffer)
        return copied

    # ---- between steps ----

    def invalidate(self, tensor: torch.Tensor, write: Write | None = None) -> None:
        """Forget the memory of ``tensor``: it was written in a way that no version counter shows. ``write``: if not
        all of it was, which elements.
        """
        try:
            tensor = inside_of(tensor)
            storage = address_of_storage(tensor)
        except Exception as error:
            pass_on(error)
            return  # no memory of its own, so nothing is remembered
        if self.native_memo is not None:
            self.native_memo.forget(storage)
        if write is not None and _is_captured(tensor):
            write = None  # which elements these are is asked of the device
        with OwnWork():
            left = self._memory.forget(storage, tensor, write)
            if self.slots is not None:
                left = self.slots.memory.forget(storage, tensor) or left
        if left and self.native_memo is not None:
            self.native_memo.distrust(tensor, False)

    def forget_all(self) -> None:
        """Forget every tensor: code that torch does not know ran, and may have written anywhere."""
        if self.native_memo is not None:
            self.native_memo.forget_all()
        for memory in self._memories():
            memory.forget_all()

    def distrust(self, tensor: torch.Tensor, for_good: bool = True, written: bool = True) -> None:
        """Remember nothing of the memory of ``tensor``: as long as it lives, or until torch counts a write to it.
        ``written``: memory that nobody had written may be written now.
        """
        try:
            tensor = inside_of(tensor)
            if self.native_memo is not None:
                self.native_memo.distrust(tensor, for_good)
            for memory in self._memories():
                memory.distrust(tensor, for_good, written)
        except Exception as error:
            pass_on(error)
            return  # no memory of its own, so nothing is remembered

    def leave_unwritten(self, tensor: torch.Tensor, written: Sequence[torch.Tensor] = (), later: bool = False) -> None:
        """``tensor`` is memory as it came, but for the parts of it in ``written``: what is not written has no numbers.
        ``later``: it has no memory yet.

        And nothing is remembered of it, as by :meth:`distrust`.
        """
        try:
            if self.native_memo is not None:
                self.native_memo.distrust(tensor, False)
            memory = self._memory_of(tensor)
            # Tensors of tracers look like others and have no memory; some bytes of it are copied, but not in a graph.
            if memory is not None and (later or is_plain(tensor)):
                with OwnWork():
                    memory.leave_unwritten(tensor, written, later or memory is not self._memory)
        except Exception as error:
            pass_on(error)
            return  # no memory of its own, so nothing is remembered

    def has_late(self) -> bool:
        """True if a description is ``late``."""
        return self.late.known < self.late.made

    def prepare_for_graphs(self, device: torch.device) -> None:
        """Before a graph is captured: see :meth:`DeviceStatistics.prepare`. Waits, the first time."""
        with OwnWork():
            self._device.prepare(device)

    def flush(self) -> None:
        """Fill in every description that is ``late``: waits for the device.

        Raises what the device raises (errors of earlier kernels show here); the descriptions then stay null.
        """
        self.late.flush()

    def reset(self) -> None:
        """Forget all tensors; to be called at the end of a step. Whose memory others know is remembered until it is
        gone, or :meth:`close`.
        """
        if self.rows is not None:
            self.rows.clear()
        if self.native_memo is not None:
            self.native_memo.clear(True)
        self._memory.clear(keep_exposed=True)

    def close(self) -> None:
        """Forget everything."""
        if self.native_memo is not None:
            self.native_memo.clear()
        self._memory.clear()


def _is_captured(tensor: torch.Tensor) -> bool:
    return not tensor.is_cpu and is_capturing(tensor.device)


def _finished(frame: Envelope, content: Content) -> TensorInfo:
    text, cut = frame.text(content)
    return TensorInfo(text, cut, content.nonfinite)


def _digest_of(address: int, shape: torch.Size, stride: tuple[int, ...], itemsize: int, contiguous: bool) -> bytes:
    return digest.xxh3(digest.elements(address, shape, stride, itemsize, contiguous))
