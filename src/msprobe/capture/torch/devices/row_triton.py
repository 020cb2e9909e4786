"""All numbers of a tensor on CUDA in two launches: parts of it at once, then the sum of those.

Imported where a CUDA tensor is measured, if at all. What is written: ``Place``;
how signs are made: :mod:`msprobe.store.row_signs`. Sums are in double.
"""

# No annotations here: Triton reads those of a kernel.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from msprobe.capture.torch.devices.device_chunks import DeviceTables
from msprobe.capture.torch.devices.device_rows import BLOCKS, NUMBERS
from msprobe.store import row_format, row_signs

# Words of 64 elements at a time, and how many of those a program takes before there is another one.
WORDS = tl.constexpr(8)
_STEPS = 4
# Programs for each block.
_MOST_PARTS = 64
_LARGEST = tl.constexpr(row_format.LARGEST)

_tables = DeviceTables()
# Where parts are put, by device and stream: what is launched on one stream runs in order.
_room: dict[tuple[torch.device, int], torch.Tensor] = {}


@triton.jit
def _mixed(numbers):
    mixed = (numbers + 1) * 0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
    return mixed ^ (mixed >> 31)


@triton.jit
def _parts_of(values, lanes, room, count, block, parts, words):
    """Of ``words`` words of one block; ``lanes``: the bits of each lane's signs."""
    program = tl.program_id(0).to(tl.int64)
    number = program // parts
    first = number * block + program % parts * words * 64
    end = tl.minimum(tl.minimum(first + words * 64, number * block + block), count)
    infinite = float("inf")
    place = tl.arange(0, 64)
    total = tl.zeros([64], tl.float64)
    squares = tl.zeros([64], tl.float64)
    kept_total = tl.zeros([64], tl.float64)
    kept_squares = tl.zeros([64], tl.float64)
    signed = tl.zeros([64, 8], tl.float64)
    greatest = tl.full([64], -infinite, tl.float64)
    least = tl.full([64], infinite, tl.float64)
    kept_greatest = tl.full([64], -infinite, tl.float64)
    kept_least = tl.full([64], infinite, tl.float64)
    nans = tl.zeros([64], tl.int64)
    infinities = tl.zeros([64], tl.int64)
    zeros = tl.zeros([64], tl.int64)
    left_out = tl.zeros([64], tl.int64)
    for start in range(first, end, WORDS * 64):
        word = start // 64 + tl.arange(0, WORDS)
        offset = word[:, None] * 64 + place[None, :]
        inside = offset < end
        value = tl.load(values + offset, mask=inside, other=0.0).to(tl.float64)
        is_nan = value != value
        counted = inside & (value == value)
        magnitude = tl.abs(value)
        is_kept = counted & (magnitude <= _LARGEST)
        kept = tl.where(is_kept, value, 0.0)
        total += tl.sum(tl.where(inside, value, 0.0), axis=0)
        squares += tl.sum(tl.where(inside, value * value, 0.0), axis=0)
        kept_total += tl.sum(kept, axis=0)
        kept_squares += tl.sum(kept * kept, axis=0)
        greatest = tl.maximum(greatest, tl.max(tl.where(counted, value, -infinite), axis=0))
        least = tl.minimum(least, tl.min(tl.where(counted, value, infinite), axis=0))
        kept_greatest = tl.maximum(kept_greatest, tl.max(tl.where(is_kept, value, -infinite), axis=0))
        kept_least = tl.minimum(kept_least, tl.min(tl.where(is_kept, value, infinite), axis=0))
        nans += tl.sum((inside & is_nan).to(tl.int64), axis=0)
        infinities += tl.sum((inside & (magnitude == infinite)).to(tl.int64), axis=0)
        zeros += tl.sum((inside & (value == 0.0)).to(tl.int64), axis=0)
        left_out += tl.sum((inside & (is_kept == 0)).to(tl.int64), axis=0)
        unsigned = word.to(tl.uint64)
        bits = (_mixed(unsigned)[:, None] >> place[None, :].to(tl.uint64)) & 1
        lane = ((unsigned * 0x9E3779B97F4A7C15) >> 61).to(tl.int32)[:, None] * 8 + place[None, :]
        lanes_here = tl.load(lanes + lane)
        sum_bits = (lanes_here[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1
        signs = 1.0 - 2.0 * (sum_bits ^ bits.to(tl.int32)[:, :, None]).to(tl.float64)
        signed += tl.sum(signs * kept[:, :, None], axis=0)
    at = room + program * 32
    eight = tl.arange(0, 8)
    tl.store(at + 0, tl.sum(total, axis=0))
    tl.store(at + 1, tl.sum(squares, axis=0))
    tl.store(at + 2, tl.max(greatest, axis=0))
    tl.store(at + 3, tl.min(least, axis=0))
    tl.store(at + 4, tl.sum(nans, axis=0).to(tl.float64))
    tl.store(at + 5, tl.sum(infinities, axis=0).to(tl.float64))
    tl.store(at + 6, tl.sum(zeros, axis=0).to(tl.float64))
    tl.store(at + 7, tl.sum(left_out, axis=0).to(tl.float64))
    tl.store(at + 8, tl.sum(kept_total, axis=0))
    tl.store(at + 9, tl.max(kept_greatest, axis=0))
    tl.store(at + 10, tl.min(kept_least, axis=0))
    tl.store(at + 11 + eight, tl.sum(signed, axis=0))
    tl.store(at + 19 + eight, tl.where(eight == number, tl.sum(kept_squares, axis=0), 0.0))


@triton.jit
def _sum_of(room, numbers, programs):
    """The numbers of the whole, from those of its parts."""
    column = tl.arange(0, 32)
    total = tl.zeros([32], tl.float64)
    greatest = tl.full([32], -float("inf"), tl.float64)
    least = tl.full([32], float("inf"), tl.float64)
    for start in range(0, programs, 32):
        row = start + tl.arange(0, 32)
        inside = (row[:, None] < programs) & (column[None, :] < 27)
        part = tl.load(room + row[:, None] * 32 + column[None, :], mask=inside, other=0.0)
        is_maximum = inside & ((column == 2) | (column == 9))[None, :]
        is_minimum = inside & ((column == 3) | (column == 10))[None, :]
        total += tl.sum(part, axis=0)
        greatest = tl.maximum(greatest, tl.max(tl.where(is_maximum, part, -float("inf")), axis=0))
        least = tl.minimum(least, tl.min(tl.where(is_minimum, part, float("inf")), axis=0))
    reduced = tl.where((column == 2) | (column == 9), greatest, total)
    tl.store(numbers + column, tl.where((column == 3) | (column == 10), least, reduced))


def fill_row(values: torch.Tensor, numbers: torch.Tensor) -> None:
    """Launch the computation of ``numbers``: see :mod:`msprobe.capture.torch.devices.row_kernels`."""
    if values.device.type == "cuda":
        # Triton launches on the current device.
        with torch.cuda.device(values.device):
            _fill(values, numbers, torch.cuda.current_stream(values.device).cuda_stream)
    else:
        _fill(values, numbers, 0)


def _fill(values: torch.Tensor, numbers: torch.Tensor, stream: int) -> None:
    count, device = values.numel(), values.device
    block = row_format.block_of(count)
    blocks = -(-count // block)
    parts = min(-(-block // (64 * int(WORDS) * _STEPS)), _MOST_PARTS)
    words = -(-block // (64 * parts))
    programs = blocks * parts
    lanes = _tables.of(device, "lanes", 0, _lane_bits)
    room = _room.get((device, stream))
    if room is None:
        made = torch.empty((BLOCKS * _MOST_PARTS, NUMBERS), dtype=torch.float64, device=device)
        room = _room[device, stream] = made
    _parts_of[(programs,)](values, lanes, room, count, block, parts, words, num_warps=8)
    _sum_of[(1,)](room, numbers, programs, num_warps=4)


def _lane_bits() -> torch.Tensor:
    bits = (row_signs.lane_signs() < 0) @ (1 << torch.arange(row_signs.SUMS, device="cpu").numpy())
    return torch.from_numpy(bits).to(torch.int32)
