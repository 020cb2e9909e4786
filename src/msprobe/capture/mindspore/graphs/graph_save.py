"""``save`` and ``save_grad``: values and gradients out of the middle of a static graph, to files.

Called inside ``construct`` they become part of the graph: a custom operator that hands its input to Python (on Ascend
one of MindSpore's that writes files: ``device_save``). It works in the dynamic graph, too.
Files are ``{save_dir}/step{n}/rank{r}/{name}_{dtype}_{id}.npy``; the number at the end says
the order of the values in the program, then of the gradients, and of visits where a place is visited more than once
in a step. :func:`step` begins the next step.

The compiler reads the source of ``save`` and ``save_grad``, so they are written in what it understands: constants are
made by functions under ``constexpr``.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, ops
from mindspore.ops import constexpr

from msprobe import log
from msprobe.capture.array_files import npy_header
from msprobe.capture.mindspore.graphs.device_save import (
    device_path,
    device_save,
    device_save_grad,
    device_step,
    device_writes,
)
from msprobe.capture.mindspore.graphs.executor import wait_for_all
from msprobe.capture.mindspore.ranks import RANKS
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import make_folder, write_atomically
from msprobe.store.dtypes import Array
from msprobe.store.tensor_names import safe_file_name


class _Place:
    """Where in the program something is saved."""

    def __init__(self, folder: str, name: str, is_single: bool, is_gradient: bool) -> None:
        self.folder = folder
        self.name = name
        # A single value travels as a list of one.
        self.is_single = is_single
        self.is_gradient = is_gradient
        # Its number among those of the same folder, given when values come for the first time.
        self.number: int | None = None
        self.visits = 0


class _Places:
    """All of them, by the number that the graph carries, and the step that is being saved."""

    def __init__(self) -> None:
        self.step = 0
        self._all: list[_Place] = []
        self._numbers: dict[tuple[str, str, bool, bool], int] = {}
        self._lock = threading.Lock()

    def number(self, folder: str, name: str, is_single: bool, is_gradient: bool) -> int:
        """The number of this place; the same as before if it was met before."""
        with self._lock:
            key = folder, name, is_single, is_gradient
            known = self._numbers.get(key)
            if known is None:
                known = self._numbers[key] = len(self._all)
                self._all.append(_Place(*key))
            return known

    def next_step(self) -> None:
        """From here on the files of the next step are written."""
        with self._lock:
            self.step += 1
            for place in self._all:
                place.visits = 0

    def write(self, number: int, values: Array) -> None:
        """The values of one visit."""
        with self._lock:
            place = self._all[number]
            if place.number is None:
                place.number = self._next(place)
            identity = place.number + place.visits * len(self._all)
            place.visits += 1
            folder = Path(place.folder) / f"step{self.step}" / f"rank{RANKS.current() or 0}"
        array = np.ascontiguousarray(values)
        array = array.reshape(()) if place.is_single else array
        make_folder(folder)
        name = safe_file_name(f"{place.name}_{array.dtype.name}_{identity}.npy")
        write_atomically(folder / name, [npy_header(array), array.tobytes()], fsync=False)

    def _next(self, place: _Place) -> int:
        """Values come in the order of the program; the compiler meets their places in any. Gradients come when they
        will: they are numbered by name, behind all values.
        """
        here = [other for other in self._all if other.folder == place.folder]
        values = [other for other in here if not other.is_gradient]
        if not place.is_gradient:
            return sum(other.number is not None for other in values)
        return len(values) + sum(other.is_gradient and other.name < place.name for other in here)


_places = _Places()


def _hand_over(data: Any, number: Any) -> Any:
    """Called by the graph: write, and give something back that nobody uses."""
    values = np.asarray(data)
    try:
        _places.write(int(np.asarray(number).reshape(-1)[0]), values)
    except Exception as error:
        log.once(("graph save", type(error)), "error", said("graph-value-not-written", error))
    return values


def _hand_on(data: Any, number: Any) -> Any:
    return np.asarray(data)


def _first(data: Any, number: Any) -> Any:
    """Shape and type of the result are those of the first input."""
    return data


_sink = ops.Custom(_hand_over, out_shape=_first, out_dtype=_first, func_type="pyfunc")
# Nobody uses its result, and it must run all the same.
_sink.add_prim_attr("side_effect_io", True)


def _gradient(data: Any, number: Any, result: Any, gradient: Any) -> Any:
    return _sink(gradient, number), ops.zeros_like(number)


_probe = ops.Custom(_hand_on, out_shape=_first, out_dtype=_first, func_type="pyfunc", bprop=_gradient)


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _place_of(folder: Any, name: Any, is_single: bool, is_gradient: bool) -> Any:
    _check_texts(folder, name)
    return Tensor([_places.number(folder, name, is_single, is_gradient)], mindspore.int64)


def _check_texts(folder: Any, name: Any) -> None:
    if not isinstance(folder, str) or not isinstance(name, str):
        raise InvalidInputError(said("save-names-wrong", folder, name))


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _inner(name: Any, part: Any) -> str:
    return f"{name}.{part}"


def save(save_dir: str, name: str, data: Any) -> None:
    """Save a tensor, or a list, tuple or dict of tensors, as it is at this place of the program.

    None is passed over. The values of bfloat16 are saved as float32. Raises InvalidInputError if ``save_dir`` or
    ``name`` is no text.
    """
    if isinstance(data, (list, tuple)):
        for i in range(len(data)):
            save(save_dir, _inner(name, i), data[i])
    elif isinstance(data, dict):
        for key in data.keys():  # noqa: SIM118 (the compiler knows no other way)
            save(save_dir, _inner(name, key), data[key])
    elif data is not None and device_writes():
        device_save(device_path(save_dir, name), data)
    elif data is not None:
        values = data
        if data.dtype == mindspore.bfloat16:
            values = ops.cast(values, mindspore.float32)
        if len(data.shape) == 0:
            _sink(ops.reshape(values, (1,)), _place_of(save_dir, name, True, False))
        else:
            _sink(values, _place_of(save_dir, name, False, False))


def save_grad(save_dir: str, name: str, data: Any) -> Any:
    """The same tensor; when its gradient comes, it is saved as ``{name}_grad``. The result must be used in place of
    ``data``.
    """
    if device_writes():
        return device_save_grad(device_path(save_dir, _inner_gradient(name)), data)
    if data.dtype == mindspore.bfloat16:
        wide = ops.cast(data, mindspore.float32)
        return ops.cast(save_grad(save_dir, name, wide), mindspore.bfloat16)
    if len(data.shape) == 0:
        probed = _probe(ops.reshape(data, (1,)), _place_of(save_dir, _inner_gradient(name), True, True))
        return ops.reshape(probed, ())
    return _probe(data, _place_of(save_dir, _inner_gradient(name), False, True))


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _inner_gradient(name: Any) -> str:
    return f"{name}_grad"


def step() -> None:
    """The step is over: what comes from here on is saved under the next number."""
    wait_for_all()
    _places.next_step()
    device_step()
