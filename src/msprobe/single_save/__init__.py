"""Save a few tensors of a run by name, step by step: what reinforcement-learning scripts compare.

Files, as mindstudio-probe 8.1.1 lays them out::

    {dump_path}/configurations.json
    {dump_path}/data/{key}/step{N}/rank{R}/[micro_step{M}/]{key}.npy        a tensor
                                                           {key}.{i}.npy    an element of a list or dict
                                                           {key}.json       statistics of all of them

Values keep their element type where numpy has it (the reference turns all to float32, which large whole numbers
do not survive); bfloat16, 8-bit floats and booleans, which the reference cannot compare, are written as float32.
"""

from __future__ import annotations

import importlib
import io
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from msprobe import log
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder, make_folder, write_atomically
from msprobe.store.dtypes import Array

# The module that knows the tensors of a framework; imported when the first SingleSave is made.
_FRAMEWORKS = {
    "pytorch": "msprobe.single_save.torch",
    "mindspore": "msprobe.single_save.mindspore",
}


class Values(Protocol):
    """What a framework's module says of its tensors."""

    def is_tensor(self, value: object) -> bool: ...

    def to_array(self, value: Any) -> Array: ...

    def rank(self) -> int: ...


class _Once(type):
    """A class with one instance; what is constructed later is the first one."""

    _instance: Any = None
    _lock = threading.Lock()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        with cls._lock:
            if cls._instance is None:
                cls._instance = super().__call__(*args, **kwargs)
        return cls._instance

    def current(cls) -> Any:
        """The instance. Raises InvalidInputError if there is none yet."""
        if cls._instance is None:
            raise InvalidInputError(said("single-save-without-folder", cls.__name__))
        return cls._instance


class SingleSave(metaclass=_Once):
    """Saves tensors under ``dump_path``.

    One for the whole program: a later construction gives the first one, whatever its arguments. ``fmk`` is
    ``pytorch`` or ``mindspore``. Raises PathError for a folder that cannot be used, InvalidInputError for
    another framework.
    """

    def __init__(self, dump_path: StrPath, fmk: str = "pytorch") -> None:
        if fmk not in _FRAMEWORKS:
            raise InvalidInputError(said("single-save-framework", ", ".join(_FRAMEWORKS), fmk))
        self._folder = check_output_folder(dump_path)
        self._values = cast(Values, importlib.import_module(_FRAMEWORKS[fmk]))
        self._step = 0
        self._micro_steps: dict[str, int] = defaultdict(int)
        make_folder(self._folder)

    @classmethod
    def save(cls, data: Any) -> None:
        """Save ``{key: tensor, or list, tuple or dict of tensors}``.

        Each call that names a key in a step is the key's next micro step, from 0. What is no dict, and a value of
        another type, is skipped with a warning; TypeError for a container that holds something else than tensors.
        """
        saver = cls.current()
        if not _is_dict(data):
            return
        for key, value in data.items():
            if saver._is_saveable(key, value):
                saver._write(key, value, saver._micro_steps[key])
                saver._micro_steps[key] += 1

    @classmethod
    def save_ex(cls, data: Any, micro_batch: int | None = None) -> None:
        """As :meth:`save`, in the micro step ``micro_batch``, or in none."""
        saver = cls.current()
        if micro_batch is not None and (not isinstance(micro_batch, int) or micro_batch < 0):
            log.warning(said("single-save-micro-batch", micro_batch))
            return
        if not _is_dict(data):
            return
        for key, value in data.items():
            if saver._is_saveable(key, value):
                saver._write(key, value, micro_batch)

    @classmethod
    def step(cls) -> None:
        """Begin the next step; micro steps count from 0 again."""
        saver = cls.current()
        saver._step += 1
        saver._micro_steps.clear()

    @classmethod
    def save_config(cls, configurations: Any) -> None:
        """Write ``configurations.json``: an object, or what else JSON can hold; other things as their text."""
        text = json.dumps(configurations, indent=4, default=str, ensure_ascii=False)
        write_atomically(cls.current()._folder / "configurations.json", text.encode("utf-8", "replace"), fsync=False)

    def _is_saveable(self, key: object, value: object) -> bool:
        if not isinstance(key, str) or not _is_name(key):
            log.warning(said("single-save-key", key))
            return False
        if not self._values.is_tensor(value) and not isinstance(value, (list, tuple, dict)):
            log.warning(said("single-save-value", key, type(value).__name__))
            return False
        return True

    def _write(self, key: str, value: Any, micro_step: int | None) -> None:
        arrays: list[tuple[str, Array]] = []
        described = self._describe(key, value, arrays.append)
        folder = self._folder / "data" / key / f"step{self._step}" / f"rank{self._values.rank()}"
        if micro_step is not None:
            folder /= f"micro_step{micro_step}"
        make_folder(folder)
        for name, array in arrays:
            _write_npy(folder / f"{name}.npy", array)
        # Last: a reader that finds it finds the values.
        text = json.dumps({"data": described}, indent=4)
        write_atomically(folder / f"{key}.json", text.encode(), fsync=False)

    def _describe(self, name: str, value: Any, keep: Callable[[tuple[str, Array]], None]) -> Any:
        """The statistics of all tensors in ``value``, which are handed to ``keep`` with their names."""
        if self._values.is_tensor(value):
            array = self._values.to_array(value)
            if array.dtype == np.bool_:
                array = array.astype(np.float32)
            keep((name, array))
            return _statistics(array)
        if name_of_list := isinstance(value, (list, tuple)):
            items = list(enumerate(value))
        else:
            items = list(value.items())
        for key, item in items:
            if not self._values.is_tensor(item):
                raise TypeError(said("single-save-element", name, key, type(item).__name__))
            if not name_of_list and not _is_name(str(key)):
                raise TypeError(said("single-save-inner-key", name, key))
        described = [(str(key), self._describe(f"{name}.{key}", item, keep)) for key, item in items]
        return [statistics for _, statistics in described] if name_of_list else dict(described)


def _is_dict(data: object) -> bool:
    if isinstance(data, Mapping):
        return True
    log.warning(said("single-save-no-dict", type(data).__name__))
    return False


def _is_name(key: str) -> bool:
    """True if the text can be the name of a file and leads nowhere else."""
    return key not in ("", ".", "..") and not any(sign in key for sign in "/\\\0") and len(key.encode()) < 200


def _statistics(array: Array) -> dict[str, Any]:
    """max, min, mean, norm and shape; the first four are null where there is nothing to reckon with."""
    statistics: dict[str, Any] = dict.fromkeys(("max", "min", "mean", "norm"))
    if array.size and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            wide = array.astype(np.float64)
            statistics |= {
                "max": float(array.max()),
                "min": float(array.min()),
                "mean": float(wide.mean()),
                "norm": float(np.sqrt(np.square(wide).sum())),
            }
    elif array.size:
        statistics["norm"] = float(np.linalg.norm(array))
    return {**statistics, "shape": list(array.shape)}


def _write_npy(path: Path, array: Array) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    in_columns = array.flags.f_contiguous and not array.flags.c_contiguous
    write_atomically(path, [header.getvalue(), array.tobytes("F" if in_columns else "C")], fsync=False)
