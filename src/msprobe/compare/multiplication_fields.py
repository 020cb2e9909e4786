"""What is allowed in the file of multiplications; :mod:`msprobe.compare.multiplications` says what it means."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from msprobe.config.declared import Declared, asks, demand, is_filled_object, is_list, is_object

_Tensors = Annotated[
    list[str],
    demand(
        (
            lambda names: is_list(names) and all(isinstance(name, str) and name for name in names),
            "a list of data names",
        )
    ),
]
_Map = Annotated[dict[str, _Tensors], demand((is_object, "an object of matrix files, each with a list of tensors"))]


class _OneSided(Declared):
    target_tensor_map: _Map = Field({})
    golden_tensor_map: _Map = Field({})


class _TwoSided(Declared):
    left_target_tensor_map: _Map = Field({})
    left_golden_tensor_map: _Map = Field({})
    right_target_tensor_map: _Map = Field({})
    right_golden_tensor_map: _Map = Field({})


_Factor = Annotated[
    _OneSided | None,
    demand((is_object, asks("must-be-object-with", ", ".join(_OneSided.model_fields)))),
]
_Two = Annotated[
    _TwoSided | None,
    demand((is_object, asks("must-be-object-with", ", ".join(_TwoSided.model_fields)))),
]


class _File(Declared):
    right_matmul: _Factor = None
    left_matmul: _Factor = None
    left_right_matmul: _Two = None


CONFIGURATION = Annotated[
    _File,
    demand((is_filled_object, asks("must-be-object-with", ", ".join(_File.model_fields)))),
]
