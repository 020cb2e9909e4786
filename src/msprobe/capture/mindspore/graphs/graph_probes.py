"""Operators that stand in a compiled graph, hand tensors on, and notify Python of what comes by.

The ``construct`` of a cell is replaced by one that puts each tensor through such an operator; its derivative does the
same with the gradient. Gradients of parameters go through one in a hook. Once compiled these stay in the graph: while
nobody listens they only hand on.

The compiler reads the source of what is called here, so that is written in what it understands: constants are made by
functions under ``constexpr``.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.ops import constexpr
from mindspore.ops.functional import isconstant

from msprobe.store.dtypes import Array

# Of a cell's arguments and results as many are watched, and of a tuple or list among them.
MOST_TENSORS = 16
# A tensor's place is its number among these; inside of a tuple or list its number there, beginning with 1, times
# MOST_TENSORS, and the number of that.
_PLACES = MOST_TENSORS * (MOST_TENSORS + 1)
# Which of the first arguments of a call are tensors, or tuples or lists, and which keywords it has, one bit for each:
# calls that differ in this are distinguished.
_CALLS = 2 ** (2 * MOST_TENSORS)

# A number that travels with each tensor names the cell, the side, the place there, and these.
_SINGLE = 1  # a single value travels as a list of one
_BFLOAT16 = 2  # travels as float32
_GRADIENT = 4
_PARAMETER = 8  # the gradient of a parameter, in place of a cell
_FLAGS = 16

# On the side of keywords the place is the number of the keyword, among those of the cell.
IN, OUT, WORD = 0, 1, 2
_SIDES = 3


class ProbeNumber(NamedTuple):
    """What a tensor's number says: of which cell, of which kind of call, on which side (:data:`IN`, :data:`OUT`,
    :data:`WORD`), in which place.
    """

    owner: int
    call: int
    side: int
    place: int
    is_gradient: bool
    # ``owner`` is the number of a parameter.
    is_parameter: bool
    is_single: bool
    is_bfloat16: bool
    # A gradient has the ticket of its tensor.
    ticket: int = 0


def indexes(place: int) -> tuple[int, ...]:
    """The index path of a place: ``(1,)`` is argument or result 1, ``(1, 0)`` the first of the tuple or list there."""
    inner, outer = divmod(place, MOST_TENSORS)
    return (outer, inner - 1) if inner else (outer,)


class Listener:
    """Who is notified; one per process."""

    # Of tensors that come by.
    current: Callable[[ProbeNumber, Array], None] | None = None
    # Of the places of tensors that are compiled: cell, kind of call, side, place.
    compiled: Callable[[int, int, int, int], None] | None = None
    # Asked for the number of a keyword: cell, keyword.
    word: Callable[[int, str], int] | None = None
    # Of a cell with tensors that cannot be reported.
    left_out: Callable[[int], None] | None = None


_tickets = itertools.count(1)


def _report_to_listener(number: Any, ticket: int, values: Array) -> None:
    listener = Listener.current
    if listener is not None:
        listener(_read(int(np.asarray(number).reshape(-1)[0]))._replace(ticket=ticket), values)


def _read(number: int) -> ProbeNumber:
    rest, flags = divmod(number, _FLAGS)
    rest, place = divmod(rest, _PLACES)
    rest, side = divmod(rest, _SIDES)
    owner, call = divmod(rest, _CALLS)
    return ProbeNumber(
        owner,
        call,
        side,
        place,
        bool(flags & _GRADIENT),
        bool(flags & _PARAMETER),
        bool(flags & _SINGLE),
        bool(flags & _BFLOAT16),
    )


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _is_left_out(cell: int) -> bool:
    if Listener.left_out is not None:
        Listener.left_out(cell // _CALLS)
    return True


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _number(cell: int, side: int, place: int, flags: int) -> Any:
    if Listener.compiled is not None and not flags & _PARAMETER:
        Listener.compiled(cell // _CALLS, cell % _CALLS, side, place)
    return Tensor([((cell * _SIDES + side) * _PLACES + place) * _FLAGS + flags], mindspore.int64)


def _reporting(data: Any, number: Any, gradient_number: Any) -> Any:
    """Called by the graph, forward: report the tensor and hand it on, with a ticket."""
    values = np.asarray(data)
    ticket = next(_tickets)
    _report_to_listener(number, ticket, values)
    return values, np.array([ticket], np.int64)


def _reporting_gradient(data: Any, number: Any, ticket: Any) -> Any:
    """Called by the graph, backward. The ticket is that of the tensor: so its gradient is not reported before it."""
    values = np.asarray(data)
    _report_to_listener(number, int(np.asarray(ticket).reshape(-1)[0]), values)
    return values


def _as_first(data: Any, *numbers: Any) -> Any:
    """Shape and type of the result are those of the first input."""
    return data


def _shapes(data: Any, *numbers: Any) -> Any:
    return data, [1]


def _types(data: Any, *numbers: Any) -> Any:
    return data, mindspore.int64


_report_gradient = ops.Custom(_reporting_gradient, out_shape=_as_first, out_dtype=_as_first, func_type="pyfunc")


def _backward(data: Any, number: Any, gradient_number: Any, result: Any, gradient: Any) -> Any:
    return (
        _report_gradient(gradient[0], gradient_number, result[1]),
        ops.zeros_like(number),
        ops.zeros_like(gradient_number),
    )


_report = ops.Custom(_reporting, out_shape=_shapes, out_dtype=_types, func_type="pyfunc", bprop=_backward)


def _through(x: Any, cell: int, side: int, place: int, flags: int) -> Any:
    if len(x.shape) == 0:
        counted = _report(
            ops.reshape(x, (1,)),
            _number(cell, side, place, flags + _SINGLE),
            _number(cell, side, place, flags + _SINGLE + _GRADIENT),
        )
        return ops.reshape(counted[0], ())
    return _report(x, _number(cell, side, place, flags), _number(cell, side, place, flags + _GRADIENT))[0]


def watched(x: Any, cell: int, side: int, place: int) -> Any:
    """Put one tensor through the operator that reports it.

    Not one whose shape is not known when it is compiled (or its element type, a tensor that Python makes in the graph):
    the operator would fail when the graph runs, with half of a step done.
    """
    if not isconstant(x.shape) and _is_left_out(cell):
        return x
    if x.dtype == mindspore.bfloat16:
        return ops.cast(_through(ops.cast(x, mindspore.float32), cell, side, place, _BFLOAT16), mindspore.bfloat16)
    return _through(x, cell, side, place, 0)


def _part(value: Any, cell: int, side: int, i: int) -> Any:
    """Argument or result ``i``: a tensor, or a tuple or list of them."""
    if isinstance(value, Tensor):
        return watched(value, cell, side, i)
    if not isinstance(value, (tuple, list)):
        return value
    parts = []
    for j in range(len(value)):
        if j < MOST_TENSORS and isinstance(value[j], Tensor):
            parts.append(watched(value[j], cell, side, MOST_TENSORS * (j + 1) + i))
        else:
            parts.append(value[j])
    if isinstance(value, list):
        return parts
    return tuple(parts)


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _word(number: int, key: str) -> int:
    return Listener.word(number, key) if Listener.word is not None else MOST_TENSORS


def _kind_of_words(words: Any, number: int) -> Any:
    kind = 0
    for key in words.keys():  # noqa: SIM118 (the compiler knows no other way)
        if _word(number, key) < MOST_TENSORS:
            kind = kind + 2 ** (MOST_TENSORS + _word(number, key))
    return kind


def _given_words(words: Any, number: int, call: int) -> Any:
    tensors = 0
    for key in words.keys():  # noqa: SIM118
        if isinstance(words[key], Tensor) and _word(number, key) < MOST_TENSORS:
            tensors = tensors + 1
    if tensors == 0 or tensors < len(words):
        # The compiler cannot put together a dict that has None in it.
        return words
    given_words = {}
    for key in words.keys():  # noqa: SIM118
        given_words[key] = watched(words[key], call, 2, _word(number, key))
    return given_words


def _kind_of(inputs: Any) -> Any:
    kind = 0
    for i in range(len(inputs)):
        if i < MOST_TENSORS and isinstance(inputs[i], (Tensor, tuple, list)):
            kind = kind + 2**i
    return kind


def _given(inputs: Any, cell: int) -> Any:
    watched_inputs = []
    for i in range(len(inputs)):
        if i < MOST_TENSORS:
            watched_inputs.append(_part(inputs[i], cell, 0, i))
        else:
            watched_inputs.append(inputs[i])
    return tuple(watched_inputs)


def _got(output: Any, cell: int) -> Any:
    # A tuple is several results, anything else is one.
    if isinstance(output, tuple):
        watched_outputs = []
        for i in range(len(output)):
            if i < MOST_TENSORS:
                watched_outputs.append(_part(output[i], cell, 1, i))
            else:
                watched_outputs.append(output[i])
        return tuple(watched_outputs)
    return _part(output, cell, 1, 0)


# The attribute of a watched cell that holds its own ``construct``.
OWN_CONSTRUCT = "construct_of_its_own"


def watched_construct(cell: nn.Cell, number: int) -> dict[str, Any]:
    """What takes the place of ``cell.construct``: the same, with inputs and results watched. By attribute of
    the cell; the second holds the cell's own.

    Not a hook: of cells in a list (``CellList``, ``SequentialCell``) the compiler passes hooks over. The cell's own is
    called as a method, which a copy of the cell has bound to itself: of methods alone the compiler knows that
    ``self.count = count`` assigns to a parameter. Elsewhere it hands that to Python while the graph runs, where
    operators like ours fail.
    """
    inner = getattr(cell.construct, "__func__", cell.construct)
    if getattr(inner, "__wrapped_by_jit__", False):
        # Inside of a graph it is part of that.
        inner = inner.__wrapped__
    flags = getattr(cell, "_func_graph_flags", None)
    if flags and isinstance(inner, types.FunctionType):
        inner = _flagged(inner, flags)

    def construct(self: Any, *inputs: Any, **words: Any) -> Any:
        call = number * _CALLS + _kind_of(inputs) + _kind_of_words(words, number)
        return _got(self.construct_of_its_own(*_given(inputs, call), **_given_words(words, number, call)), call)

    return {"construct": types.MethodType(construct, cell), OWN_CONSTRUCT: types.MethodType(inner, cell)}


def _flagged(function: types.FunctionType, flags: dict[str, Any]) -> types.FunctionType:
    """The same function for the compiler to treat as the cell's own: mixed precision is one of the flags of a cell."""
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__module__ = function.__module__
    copied._func_graph_flags = dict(flags)  # type: ignore[attr-defined]
    return copied


def parameter_hook(number: int) -> Callable[[Any], Any]:
    """A hook for the parameter of this number, which puts its whole gradient through an operator."""

    def hook(gradient: Any) -> Any:
        if isinstance(gradient, Tensor):
            return _with_gradient_reported(gradient, number * _CALLS)
        return gradient

    return hook


def _with_gradient_reported(gradient: Any, parameter: int) -> Any:
    if gradient.dtype == mindspore.bfloat16:
        number = _number(parameter, 0, 0, _PARAMETER + _GRADIENT + _BFLOAT16)
        return ops.cast(_report_gradient(ops.cast(gradient, mindspore.float32), number, number), mindspore.bfloat16)
    if len(gradient.shape) == 0:
        number = _number(parameter, 0, 0, _PARAMETER + _GRADIENT + _SINGLE)
        return ops.reshape(_report_gradient(ops.reshape(gradient, (1,)), number, number), ())
    number = _number(parameter, 0, 0, _PARAMETER + _GRADIENT)
    return _report_gradient(gradient, number, number)
