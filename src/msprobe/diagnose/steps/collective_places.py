"""Where the arguments of collectives and messages stand: what is written, and what is read, by place and keyword."""

from __future__ import annotations

Place = tuple[int, str]
_TENSOR: Place = (0, "tensor")

#: API -> where its result is written, and where what it takes stands; None for neither.
_PLACES: dict[str, tuple[Place | None, Place | None]] = {
    "all_reduce": (_TENSOR, _TENSOR),
    "broadcast": (_TENSOR, _TENSOR),
    "reduce": (_TENSOR, _TENSOR),
    "all_gather": ((0, "tensor_list"), (1, "tensor")),
    "all_gather_into_tensor": ((0, "output_tensor"), (1, "input_tensor")),
    "all_gather_single": ((0, "output_tensor"), (1, "input_tensor")),
    "_all_gather_base": ((0, "output_tensor"), (1, "input_tensor")),
    "reduce_scatter": ((0, "output"), (1, "input_list")),
    "reduce_scatter_tensor": ((0, "output"), (1, "input")),
    "reduce_scatter_single": ((0, "output"), (1, "input")),
    "_reduce_scatter_base": ((0, "output"), (1, "input")),
    "all_to_all": ((0, "output_tensor_list"), (1, "input_tensor_list")),
    "all_to_all_single": ((0, "output"), (1, "input")),
    "gather": ((1, "gather_list"), _TENSOR),
    "scatter": (_TENSOR, (1, "scatter_list")),
    "send": (None, _TENSOR),
    "isend": (None, _TENSOR),
    "recv": (_TENSOR, None),
    "irecv": (_TENSOR, None),
}
WRITES = {name: written for name, (written, _) in _PLACES.items() if written is not None}
READS = {name: taken for name, (_, taken) in _PLACES.items() if taken is not None}
#: What is written over whatever stands there.
OVERWRITES = {name: written for name, written in WRITES.items() if READS.get(name) != written}
