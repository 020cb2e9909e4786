"""A device that rounds otherwise, on this device: results of operators are moved by a unit in the last place.

What it is for is a healthy run that differs from the reference as a run on a different device does
(``msprobe compare --noise``), where there is no third device. Below autograd, autocast and the recorder each operator
computes as always; then each floating-point element of what it gives is multiplied by ``1 + u`` or ``1 - u`` and
rounded; ``u`` is the unit of rounding of its type. Kernels compute half types in single precision and round once, so of
these one element in six is moved, to the next number: two results that were rounded from numbers that know nothing of
each other are 0.3 units of the last place apart (root mean square), and so are these. The element's own bits decide, as
of a kernel that rounds otherwise: equal calls give equal results, in a recomputed forward pass and on each rank, what
is equal stays equal, and no random number is drawn.

What every device computes alike stays as it is: views, collectives, random numbers, results whose elements all are
those of an argument (copies, gathers, maxima), whole numbers made of whole numbers (counts, places), and elementwise
operators whose result is the exact one, rounded once (sums, products). Which operators these are is found from their
first calls, by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from msprobe.capture.torch import private
from msprobe.capture.torch.devices.device_chunks import is_capturing
from msprobe.capture.torch.tensors.statistics_framework import OwnWork
from msprobe.guard import attempt

# So many calls that could have shown something else show that an operator computes alike everywhere.
_CALLS = 8
# So many elements of a result are looked for in the arguments.
_SAMPLE = 64
# Of half types one element in so many is moved: the root of that is 0.3003 units over 0.7355, what a unit of the last
# place is of a number on average (see ROUNDED_ONCE in msprobe.diagnose.measured.node).
_ONE_IN = 6
# Elements that are moved at once: what that takes of the device's memory is bounded.
_BLOCK = 1 << 22
_TYPES = {
    torch.bfloat16: (torch.int16, torch.float32),
    torch.float16: (torch.int16, torch.float32),
    torch.float32: (torch.int32, torch.float64),
    torch.float64: (torch.int64, torch.float64),
}
_PLAIN = torch.Tensor.__torch_dispatch__
_WITHOUT_VALUES = ("fake", "functional")
_EXCHANGES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
# The golden ratio's: the high bits of products with it look random (Knuth 6.4).
_HASH = 0x9E3779B1 - (1 << 32)


class JitteredKernels(private.DispatchMode):  # type: ignore[misc]
    """A part of the recorder: while it is attached, what operators compute in this thread is moved."""

    def __init__(self) -> None:
        super().__init__()
        # Of each operator and type: how many calls have shown nothing else; None: it rounds on the way.
        self._alike: dict[tuple[Any, torch.dtype], int | None] = {}

    def attach(self) -> None:
        """Begin, below the modes that the program enters later."""
        private.push_dispatch_mode(self)

    def detach(self) -> None:
        """Leave the modes of the program as they are."""
        above = []
        while private.count_dispatch_modes():
            mode = private.pop_dispatch_mode()
            if mode is self:
                break
            above.append(mode)
        for mode in reversed(above):
            private.push_dispatch_mode(mode)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        other_types = [kind for kind in types if kind.__torch_dispatch__ is not _PLAIN]
        if any(
            private.UNUSUAL.get(f"{kind.__module__}.{kind.__qualname__}") in _WITHOUT_VALUES for kind in other_types
        ):
            return func(*args, **kwargs)
        if other_types:
            return NotImplemented  # operators of its own, of what it holds, come here again
        with private.without_functions():  # a kernel, and no call of the program
            given = next(_floats((*args, *kwargs.values())), None) if _computes(func) else None
            if given is None or private.is_traced():
                return func(*args, **kwargs)
            return self._moved(func, args, kwargs, given)

    def _moved(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], given: torch.Tensor) -> Any:
        key = func, given.dtype
        seen = self._alike.get(key, 0)
        before = None
        may_wait = not is_capturing(given.device)
        if seen is not None and seen < _CALLS and may_wait:
            with OwnWork():
                before = attempt(_before, func, args, kwargs)
        result = func(*args, **kwargs)
        with OwnWork():
            attempt(self._move, key, before, result, args, kwargs, may_wait)
        return result

    def _move(self, key: Any, before: Any, returned: Any, args: Any, kwargs: dict[str, Any], may_wait: bool) -> None:
        """Move what a call gave. ``before``: its arguments before it wrote, where they are still to be looked at."""
        results = list(_floats((returned,) if key[0]._schema.returns else _written(key[0], args, kwargs)))
        seen = self._alike.get(key, 0)
        if before is not None and seen is not None:
            is_alike = _is_alike(key[0], before[0], before[1], results)
            if is_alike is not None:
                self._alike[key] = seen = seen + 1 if is_alike else None
        floats = *results, *_floats((*args, *kwargs.values()))
        # Counts, places and sums of these are exact on every device.
        if seen is None and not (may_wait and all(map(_are_whole, floats))):
            for result in results:
                _move(result)


def _computes(func: Any) -> bool:
    """Whether an operator computes something of its arguments that is memory of its own, or theirs that it writes."""
    if func.namespace in _EXCHANGES or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    aliases = [returned.alias_info for returned in func._schema.returns]
    return (bool(aliases) or func._schema.is_mutable) and all(alias is None or alias.is_write for alias in aliases)


def _before(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments of a call, copied where it writes to some."""
    if not func._schema.is_mutable:
        return args, kwargs
    return _each(_copy, args), dict(zip(kwargs, _each(_copy, kwargs.values()), strict=True))


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that a call writes to; operators over lists of tensors give nothing else."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args)) | kwargs  # noqa: B905
    names = [
        argument.name
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [given[name] for name in names if name in given]


def _floats(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results whose elements are floating-point numbers, not those without any."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _floats(value)
        elif isinstance(value, torch.Tensor) and value.dtype in _TYPES and _has_elements(value):
            yield value


def _has_elements(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_nested) and tensor.numel() > 0


def _are_whole(values: torch.Tensor) -> bool:
    """True if all are whole numbers."""
    flat = values.reshape(-1)
    return all(bool((sample == sample.trunc()).all()) for sample in (flat[:_SAMPLE], flat))


def _each(work: Callable[[Any], Any], values: Any) -> list[Any]:
    """What ``work`` makes of each value, also of those in lists."""
    return [_each(work, value) if isinstance(value, (list, tuple)) else work(value) for value in values]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _is_alike(func: Any, args: Any, kwargs: dict[str, Any], results: Sequence[torch.Tensor]) -> bool | None:
    """True if a call shows numbers that every device computes; None where its numbers are too few to say so."""
    samples = [result.reshape(-1)[:: max(1, result.numel() // _SAMPLE)].abs() for result in results]
    if not any(bool((sample != sample[0]).any()) for sample in samples):
        return None
    given = [tensor.reshape(-1).abs() for tensor in _floats((*args, *kwargs.values()))]
    if all(_are_among(sample, given) for sample in samples):
        return True
    if torch.Tag.pointwise not in func.tags:
        return False
    # Some kernels round a number of Python to the type of the tensors first.
    return any(_is_rounded_once(func, args, kwargs, results, of) for of in (None, results[0].dtype))


def _are_among(sample: torch.Tensor, given: Sequence[torch.Tensor]) -> bool:
    """True if each element is zero, or one of these, rounded to its type where that is a narrower one."""
    wide = _TYPES[sample.dtype][1]
    known = torch.cat([tensor.to(sample.dtype).to(wide) for tensor in given])
    return bool((torch.isin(sample.to(wide), known) | (sample == 0)).all())


def _is_rounded_once(
    func: Any,
    args: Any,
    kwargs: dict[str, Any],
    results: Sequence[torch.Tensor],
    number_dtype: torch.dtype | None,
) -> bool:
    """True if a call gives what it gives in a wider type, rounded to its own. ``number_dtype``: the type that numbers
    of Python are rounded to before.
    """

    def wider(value: Any) -> Any:
        if isinstance(value, float) and number_dtype is not None:
            return torch.tensor(value, dtype=number_dtype).item()
        if not isinstance(value, torch.Tensor) or value.dtype not in _TYPES:
            return _copy(value)
        return value.to(_TYPES[value.dtype][1])

    try:
        again = func(*_each(wider, args), **dict(zip(kwargs, _each(wider, kwargs.values()), strict=True)))
    except RuntimeError:  # the device has no such type
        return False
    others = list(_floats((again,)))
    return len(others) == len(results) and all(
        torch.equal(other.to(result.dtype).nan_to_num(), result.nan_to_num())
        for result, other in zip(results, others, strict=True)
    )


def _move(result: torch.Tensor) -> None:
    """Move the elements, in place."""
    whole, wide = _TYPES[result.dtype]
    unit = torch.finfo(result.dtype).eps / 2
    flat = result.view(-1) if result.is_contiguous() else result.reshape(-1)
    for start in range(0, flat.numel(), _BLOCK):
        own = flat[start : start + _BLOCK]
        mixed = own.view(whole).to(torch.int32) * _HASH
        drawn = (mixed ^ (mixed >> 15)) * _HASH >> 17
        if result.dtype.itemsize == 2:
            drawn = drawn % (2 * _ONE_IN)
            signs = (drawn == 0).to(wide) - (drawn == 1).to(wide)
        else:
            signs = ((drawn & 1) * 2 - 1).to(wide)
        moved = (own.to(wide) * (signs * unit + 1)).to(own.dtype)
        own.copy_(torch.where(moved.isfinite(), moved, own))
    if not result.is_contiguous():
        result.copy_(flat.view(result.shape))
