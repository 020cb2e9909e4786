"""Scripts that reproduce one call: written from a dump, they need their framework alone."""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from msprobe.config.declared import Declared, demand, is_object, is_str, is_whole, one_of, read_declared, whole
from msprobe.config.jsonc import parse
from msprobe.config.mistakes import ConfigSource, raise_in_one_line
from msprobe.coverage import Coverage, NotRead
from msprobe.errors import InvalidInputError
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.file_names import FileNames, file_name
from msprobe.foreign.known_words import is_known_constant, is_known_dtype
from msprobe.foreign.opening import read_bounded
from msprobe.messages import said
from msprobe.paths import StrPath, check_output_folder, check_readable_file, make_folder, write_atomically
from msprobe.precheck.arguments import (
    Argument,
    ArgumentTensor,
    Items,
    Mapping,
    Plain,
    UnreadableArgumentError,
    tensors_of,
)
from msprobe.precheck.domains import NARROW_LABELS, Domain, domain_of
from msprobe.precheck.generate import CannotGenerateError, generator_for, values_for
from msprobe.precheck.known_names import RANDOM, is_dropout, is_known
from msprobe.precheck.memory import available_bytes
from msprobe.precheck.metrics import Array
from msprobe.precheck.mindspore_rows import is_checked
from msprobe.precheck.requests import ApiCall, Requests, flat, open_requests
from msprobe.precheck.scripts.text import text_of
from msprobe.precheck.standards import Standard, standard_of
from msprobe.store.values import read_values

TYPES = {
    "pytorch": ("Functional", "Tensor", "Torch", "VF", "NPU", "Ops", "Function"),
    "mindspore": ("Mint", "MintFunctional", "Tensor"),
}
#: The type of a call -> the piece that says why no script is made of it.
_NO_SCRIPT = {
    "Distributed": "script-collective",
    "NPUDistributed": "script-collective",
    "MindSpeed": "script-mindspeed",
    "Aten": "script-aten",
    "Optimizer": "script-optimizer",
}
PROPAGATIONS = ("forward", "backward")
MOST_ITERATIONS = 1000
MOST_NAME_LENGTH = 30
_MOST_EMBEDDED_BYTES = 1 << 20
# While values are made: those in double precision, what they are made of, and the text of them.
_BYTES_OF_AN_ELEMENT = 24
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}\.\d+")
_A_CALL, _A_FILE = "the name of a call, as Functional.softmax.0", "the path of a .json file"
_STANDARDS: dict[Standard, str] = {
    "binary": "Binary Equality Standard",
    "absolute": "Absolute Threshold Standard",
    "ulp": "ULP error Standard",
    "thousandth": "Thousandth Standard",
    "benchmark": "Benchmark Standard",
    "accumulative": "Benchmark Standard",
}


@dataclass(frozen=True)
class ScriptRequest:
    """What is asked for. ``values``: ``recorded`` (those of the dump, or those that run_ut makes), or ``random``, drawn
    between the recorded extremes at each of ``iterations``. ``load``: what the script imports first, as it has kernels;
    ``reference``: ``FILE.py:FUNCTION`` that computes the same in double precision, where the call itself cannot.
    """

    api: str
    propagation: str
    output: Path
    values: str = "recorded"
    seed: int = 1234
    iterations: int = 1
    device: str = ""
    inject: str = ""
    control: str = ""
    dtype: str = ""
    in_files: bool = False
    load: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Script:
    """A script that was written. ``coverage``: the arguments that it has with their values, and those that a dump of
    values has not, for which values were made.
    """

    path: Path
    coverage: Coverage


def write_script(requests: Requests, request: ScriptRequest) -> Script:
    """Write the script of one call, and the files of large values beside it. Raises MsprobeError."""
    call = _call_of(requests, request)
    if call.api.name.endswith("scaled_dot_product_attention"):
        call = _without_dropout(call)
    maker = _Maker(requests, call, request)
    content = {
        "api": call.key,
        "type": call.api.prefix,
        "name": call.api.name,
        "propagation": request.propagation,
        "standard": _STANDARDS[standard_of(call.api.name.rpartition(".")[2])],
        "seed": request.seed,
        "iterations": request.iterations,
        "device": request.device,
        "inject": request.inject,
        "control": request.control,
        "dtype": request.dtype or None,
        "load": request.load,
        "reference": request.reference,
        "autocast": _autocast_of(call),
        "args": maker.args(),
        "kwargs": {name: maker.node(value, name) for name, value in call.kwargs.items()},
        "gradients": [maker.node(value, f"gradient.{n}") for n, value in enumerate(call.gradients or ())]
        if request.propagation == "backward"
        else None,
    }
    path = make_folder(request.output) / file_name(f"{call.key}.{request.propagation}.py")
    write_atomically(path, text_of(content, requests.framework).encode())
    return Script(path, maker.coverage)


def _call_of(requests: Requests, request: ScriptRequest) -> ApiCall:
    if request.api not in requests.keys:
        raise InvalidInputError(
            said("api-not-in-dump", requests.part.path, request.api, _near(request.api, requests.keys))
        )
    try:
        call = requests.call(request.api)
    except UnreadableArgumentError as problem:
        raise InvalidInputError(said("record-unreadable", requests.part.path, request.api, problem)) from None
    types = TYPES["mindspore" if requests.framework == "mindspore" else "pytorch"]
    if call.api.prefix not in types:
        name = _NO_SCRIPT.get(call.api.prefix)
        why = said(name) if name else said("script-types", ", ".join(types))
        raise InvalidInputError(said("no-script-of-api", request.api, why))
    _demand_known(request, call, requests.framework)
    if request.propagation == "backward" and call.gradients is None:
        raise InvalidInputError(said("no-backward-of-api", requests.part.path, request.api))
    return call


def _demand_known(request: ScriptRequest, call: ApiCall, framework: str) -> None:
    """Whoever runs a script trusts that it computes something: names of a stranger's dump run nothing else.

    Raises InvalidInputError.
    """
    if framework == "mindspore":
        if not is_checked(call.key):
            raise InvalidInputError(said("no-script-of-what-is-not-run", call.key))
        return
    if call.api.name.rpartition(".")[2] in RANDOM or (is_dropout(call.api.name) and not _drops_nothing(call)):
        raise InvalidInputError(said("no-script-of-random", call.key))
    if call.api.prefix == "Function" and not request.load:
        raise InvalidInputError(said("no-script-of-function-alone", call.key))
    if not is_known(call.api.prefix, call.api.name):
        raise InvalidInputError(said("no-script-of-unlisted", call.key))


def _drops_nothing(call: ApiCall) -> bool:
    """True for a dropout that is off: ``(input, p, training)`` in all its forms."""
    given = {**dict(zip(("p", "training"), call.args[1:3], strict=False)), **call.kwargs}
    plain = {name: value.value for name, value in given.items() if isinstance(value, Plain)}
    return plain.get("p") == 0 or plain.get("training", plain.get("train")) is False


def _without_dropout(call: ApiCall) -> ApiCall:
    """Attention that drops nothing, as the check runs it: what is dropped is drawn."""
    args = [*call.args[:4], *(Plain("float", 0.0) for _ in call.args[4:5]), *call.args[5:]]
    kwargs = {name: Plain("float", 0.0) if name == "dropout_p" else value for name, value in call.kwargs.items()}
    return replace(call, args=tuple(args), kwargs=kwargs)


_HALVES = ("float16", "bfloat16")


def _autocast_of(call: ApiCall) -> str | None:
    """The half type in which the call was autocast, by the rule of the check; None if it was not."""
    if "type" in call.api.name:
        return None
    given = [
        info
        for n, argument in enumerate((*call.args, *call.kwargs.values()))
        for _, info in tensors_of(argument, str(n))
    ]
    floats = list(dict.fromkeys(info.dtype for info in given if info.dtype in (*_HALVES, "float32")))
    if len(floats) > 1:
        return next(dtype for dtype in floats if dtype != "float32")
    results = [info.dtype for info in flat(call.outputs) if isinstance(info, ArgumentTensor)]
    if not floats or not results or results[0] == floats[0]:
        return None
    if results[0] in _HALVES:
        return results[0]
    return floats[0] if results[0] == "float32" and floats[0] in _HALVES else None


def _near(name: str, keys: list[str]) -> str:
    from msprobe.foreign.nearest import near_words

    near = near_words(name, keys, 3) or [key for key in keys if name.lower() in key.lower()][:3]
    return said("near-calls", ", ".join(near)) if near else said("so-many-others", len(keys))


class _Maker:
    """Describes the arguments of a call for its script."""

    def __init__(self, requests: Requests, call: ApiCall, request: ScriptRequest) -> None:
        self._requests, self._call, self._request = requests, call, request
        self._bytes = 0
        self._names = FileNames()
        self._read = 0
        self._made: list[str] = []

    @property
    def coverage(self) -> Coverage:
        """Which arguments have the values of the dump; nothing is missed of a dump that has no values at all."""
        missing = self._made if self._requests.has_values and self._request.values == "recorded" else []
        made = tuple(NotRead(said("script-argument", path), said("values-were-made")) for path in missing)
        return Coverage({"tensors": self._read}, made)

    def args(self) -> list[Any]:
        nodes = [self.node(value, str(place)) for place, value in enumerate(self._call.args)]
        if self._call.api.name in ("__getitem__", "__setitem__") and len(nodes) > 1 and _is_tuple(nodes[1]):
            nodes[1]["tuple"] = True
        return nodes

    def node(self, argument: Argument, path: str) -> Any:
        if isinstance(argument, ArgumentTensor):
            return {"tensor": self._tensor(argument, path)}
        if isinstance(argument, Items):
            return {"items": [self.node(item, f"{path}.{place}") for place, item in enumerate(argument.items)]}
        if isinstance(argument, Mapping):
            return {"mapping": {name: self.node(item, f"{path}.{name}") for name, item in argument.items.items()}}
        assert isinstance(argument, Plain)
        if argument.kind in ("int", "bool", "str", "NoneType"):
            return argument.value
        if not is_known_constant(argument.kind, argument.value):
            raise InvalidInputError(
                said("argument-kind-unknown", self._call.key, path, str(argument.value)[:80], argument.kind)
            )
        return {"kind": argument.kind, "value": argument.value}

    def _tensor(self, info: ArgumentTensor, path: str) -> dict[str, Any]:
        if not is_known_dtype(info.dtype):
            raise InvalidInputError(said("argument-type-unknown", self._call.key, path, info.dtype[:80]))
        domain = domain_of(self._call, path, info)
        is_narrow = domain.name == "labels" and info.dtype in NARROW_LABELS and self._requests.framework != "mindspore"
        tensor: dict[str, Any] = {
            "dtype": "int64" if is_narrow else info.dtype,
            "shape": list(info.shape),
            "stride": list(info.stride) if info.stride else None,
            "requires_grad": info.requires_grad,
            **_range(info, domain),
        }
        if self._request.values == "random":
            return tensor
        array = self._array(info, path, domain)
        if array.dtype == np.float64 and info.dtype in ("float32", "float16", "bfloat16"):
            array = array.astype(np.float32)
        tensor["stored"] = array.dtype.name
        data = np.ascontiguousarray(array).tobytes()
        self._bytes += len(data)
        if self._request.in_files or self._bytes > _MOST_EMBEDDED_BYTES:
            name = self._names.of(f"{self._call.key}.{path}.bin")
            write_atomically(make_folder(self._request.output) / name, data)
            tensor["file"] = name
        else:
            tensor["data"] = base64.b64encode(data).decode()
        return tensor

    def _array(self, info: ArgumentTensor, path: str, domain: Domain) -> Array:
        if info.file is not None and self._requests.has_values:
            self._read += 1
            return read_values(self._requests.part.tensor_path(info.file)).array
        if info.numel:
            self._made.append(path)
        free = available_bytes()
        if free is not None and _BYTES_OF_AN_ELEMENT * info.numel > free:
            raise InvalidInputError(said("argument-too-large", self._call.key, path, list(info.shape), free / 2**30))
        try:
            random = generator_for(self._call.key, path, self._request.seed)
            return values_for(info, random, domain)
        except CannotGenerateError as problem:
            raise InvalidInputError(said("argument-not-made", self._call.key, path, problem)) from None


def _is_tuple(node: Any) -> bool:
    return isinstance(node, dict) and "items" in node and not all(type(item) is int for item in node["items"])


def _range(info: ArgumentTensor, domain: Domain) -> dict[str, Any]:
    """Between what a script draws values, and what it makes of them."""
    if domain.low is not None:
        bounds = {"low": domain.low, "high": domain.high}
        return bounds if domain.ignored is None else {**bounds, "ignored": domain.ignored}
    low = _plain(info.finite_low if info.finite_low is not None else info.low)
    high = _plain(info.finite_high if info.finite_high is not None else info.high)
    return {"low": low, "high": high, **({} if domain.axis is None else {"classes_axis": domain.axis})}


def _plain(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None


class OpConfig(Declared):
    """The content of ``config_op.json``."""

    dump: Annotated[
        str,
        demand((is_str, 'the path of a dump.json, or "" for the file of extract_api_path')),
    ] = Field("", alias="dump_json_path")
    api: Annotated[
        str,
        demand(
            (lambda text: is_str(text) and _NAME.fullmatch(text), _A_CALL),
        ),
    ] = Field(alias="api_name", description="give the name of a call, as Functional.softmax.0")
    extract: Annotated[
        Path,
        demand((lambda text: is_str(text) and text.endswith(".json"), _A_FILE)),
    ] = Field(alias="extract_api_path", description="give the path of a .json file")
    propagation: Annotated[str, one_of(*PROPAGATIONS)] = "forward"
    data_mode: Annotated[str, one_of("random_data", "real_data")] = "random_data"
    seed: Annotated[int, demand((is_whole, "a whole number"))] = Field(1234, alias="random_seed")
    times: Annotated[int, whole(1, MOST_ITERATIONS)] = Field(1, alias="iter_times")

    @property
    def iterations(self) -> int:
        """How often values are drawn."""
        return 1 if self.data_mode == "real_data" else self.times


_OP_CONFIG = Annotated[OpConfig, demand((is_object, "an object"))]


def load_op_config(path: StrPath) -> OpConfig:
    """Read ``config_op.json``; all mistakes are reported at once. Raises PathError or InvalidInputError."""
    file = check_readable_file(path, ".json")
    source = ConfigSource(os.fspath(path), parse(read_bounded(file, Budget(path, SETTINGS)), os.fspath(path)), {})
    read = read_declared(_OP_CONFIG, source, "the file", unknown="ignored")
    if read.mistakes:
        raise_in_one_line(read.mistakes, InvalidInputError)
    config: OpConfig = read.value
    return config


def generate(config: OpConfig, output: StrPath) -> Path:
    """Extract one call from its dump, and write its script, as ``config_op.json`` says."""
    folder = check_output_folder(output)
    values = "recorded" if config.data_mode == "real_data" else "random"
    request = ScriptRequest(config.api, config.propagation, folder, values, config.seed, config.iterations)
    if config.dump:
        requests = open_requests(config.dump)
    else:
        check_readable_file(config.extract, ".json")
        requests = open_requests(config.extract)
    _demand_values(requests, config)
    _call_of(requests, request)  # raises before anything is written
    if config.dump:
        _extract(requests, config)
    return write_script(requests, request).path


def _demand_values(requests: Requests, config: OpConfig) -> None:
    if config.data_mode == "real_data" and not requests.has_values:
        raise InvalidInputError(said("real-data-missing", requests.part.path))


def _extract(requests: Requests, config: OpConfig) -> None:
    """Write the records of the call into a file of their own; values stay in the folder of the dump."""
    names = [f"{config.api}.{direction}" for direction in PROPAGATIONS]
    records = {name: requests.part.record(name) for name in names if name in requests.part}
    if not records:
        raise InvalidInputError(
            said("api-not-in-dump", requests.part.path, config.api, _near(config.api, requests.keys))
        )
    values = requests.part.header.get("dump_data_dir")
    content = {"framework": requests.framework, "dump_data_dir": values, "data": records}
    make_folder(config.extract.parent)
    write_atomically(config.extract, json.dumps(content, indent=1).encode())
