"""The calls of a dump that are to be checked, each with the gradients that came back to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.messages import said
from msprobe.paths import StrPath, check_path_form, like
from msprobe.precheck.arguments import Argument, Items, UnreadableArgumentError, argument_of, form_of
from msprobe.precheck.modules import RecordedPass, function_of, passes_of
from msprobe.store import layout
from msprobe.store.handed_through import is_of_the_call_before
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump

FORWARD, BACKWARD = ".forward", ".backward"
_FORWARD = FORWARD.removeprefix(".")
# Records that are no call of an API: passes of modules and cells, optimizer steps, parameters' gradients.
_NO_CALLS = ("Module", "Cell", "Optimizer", "Primitive", "Jit")


@dataclass(frozen=True)
class ApiName:
    """``Functional.linear.0`` or ``Torch.linalg.inv.0``: the type, the name within it and the number of the call."""

    prefix: str
    name: str
    number: str


@dataclass(frozen=True)
class ApiCall:
    """One recorded call. ``gradients`` are those that arrived at its results; None if no backward was recorded.

    ``exact``: the call is the recorded one; False for a pass of a module of which the record does not have everything.
    """

    key: str
    api: ApiName
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument]
    outputs: tuple[Argument, ...]
    gradients: tuple[Argument, ...] | None
    exact: bool = True

    @property
    def form(self) -> Any:
        """Equal for calls that are the same test with other numbers."""
        kwargs = tuple((name, form_of(value)) for name, value in sorted(self.kwargs.items()))
        return self.api.prefix, self.api.name, tuple(map(form_of, self.args)), kwargs, self.gradients is None


class Requests:
    """The calls of one ``dump.json``, in the order of their forward records. Records are parsed when asked for.

    ``modules``: passes of leaf modules are calls as well, by names as ``Module.fc.Linear.0``.
    """

    def __init__(self, part: DumpPart, modules: bool = False) -> None:
        self.part = part
        framework = part.header.get("framework")
        self.framework = framework if isinstance(framework, str) else "pytorch"
        self.keys: list[str] = []
        self._backward: set[str] = set()
        self._passes = passes_of(part.names()) if modules else {}
        starts = {entries[_FORWARD]: key for key, entries in self._passes.items()}
        for name in part.names():
            if name in starts:
                self.keys.append(starts[name])
            if "Module" in name or name.startswith(_NO_CALLS) or name.startswith("Parameter"):
                continue
            if name.endswith(FORWARD):
                self.keys.append(name.removesuffix(FORWARD))
            elif name.endswith(BACKWARD):
                self._backward.add(name.removesuffix(BACKWARD))
            elif not name.endswith((".parameters_grad", ".debug")) and "." in name:
                raise InvalidInputError(said("key-without-direction", part.path, name, FORWARD, BACKWARD))

    @property
    def has_values(self) -> bool:
        """True if the dump was made with task tensor: the files of its values lie beside it."""
        return bool(self.part.header.get("dump_data_dir"))

    def entry(self, key: str, direction: str = FORWARD) -> str:
        """The name of the record of a call."""
        passes = self._passes.get(key)
        return passes.get(direction.removeprefix("."), "") if passes is not None else key + direction

    def call(self, key: str) -> ApiCall:
        """The call of one key. Raises UnreadableArgumentError, or what the reader raises."""
        record = self.part.record(self.entry(key))
        if not isinstance(record, dict):
            raise UnreadableArgumentError(said("record-of-entry-is-no-object", self.entry(key)))
        args, kwargs = record.get("input_args"), record.get("input_kwargs") or {}
        if args is None:
            args = record.get("input", [])
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise UnreadableArgumentError(said("arguments-form"))
        gradients: tuple[Argument, ...] | None = None
        if self.has_backward(key):
            backward = self.part.record(self.entry(key, BACKWARD))
            recorded = backward.get("input") if isinstance(backward, dict) else None
            gradients = _each(recorded if isinstance(recorded, list) else [recorded], "gradient-numbered")
        results = record.get("output")
        arguments = _each(args, "argument-numbered")
        named = {name: _single_argument(value, said("argument-numbered", name)) for name, value in kwargs.items()}
        outputs = _each(results if isinstance(results, list) else [results], "output-numbered")
        if key not in self._passes:
            return ApiCall(key, api_name(key), arguments, named, outputs, gradients)
        kept = record.get("parameters")
        parameters = (
            {name: _single_argument(value, name) for name, value in kept.items()} if isinstance(kept, dict) else {}
        )
        made = function_of(key, RecordedPass(arguments, named, parameters, outputs))
        api = ApiName(made.prefix, made.name, key.rpartition(".")[2])
        return ApiCall(key, api, made.args, made.kwargs, outputs, gradients, made.exact)

    def arguments_of(self, key: str) -> str:
        """What distinguishes the recorded arguments of a call and the gradients that come back; "" if unreadable.

        It is the same for one dump on every machine.
        """
        try:
            return digest_of(self.call(key))
        except (UnreadableArgumentError, MsprobeError):
            return ""

    def gradients_of_arguments(self, key: str) -> tuple[Argument, ...]:
        """What the backward of a call gave, in the order of the graph; empty if none was recorded."""
        backward = self.part.record(self.entry(key, BACKWARD)) if self.has_backward(key) else None
        recorded = backward.get("output") if isinstance(backward, dict) else None
        return _each(recorded if isinstance(recorded, list) else [recorded], "argument-gradient-numbered")

    def gradients_by_argument(self, key: str) -> dict[str, Argument]:
        """What the backward of a call gave, where its record says to which argument (``0``, ``mask``); empty if not.

        Arguments that were one tensor have one gradient together and are left out.
        """
        named, merged = self._named_gradients(key)
        shared = {*merged, *map(str, merged.values())}
        return {
            slot.partition(".")[2]: _single_argument(value, said("argument-gradient-of", slot))
            for slot, value in named.items()
            if slot not in shared
        }

    def says_whose_gradients(self, key: str) -> bool:
        """True if the record of a backward says of each gradient whose it is, also where that is several arguments'."""
        return any(self._named_gradients(key))

    def _named_gradients(self, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the record of a backward has by argument, and which arguments were one tensor with another."""
        backward = self.part.record(self.entry(key, BACKWARD)) if self.has_backward(key) else None
        gradients_by_kind = (backward.get(name) if isinstance(backward, dict) else None for name in _NAMED_GRADIENTS)
        named, merged = (by_name if isinstance(by_name, dict) else {} for by_name in gradients_by_kind)
        return named, merged

    def is_of_the_call_before(self, key: str) -> bool:
        """True if the backward record of a call has the gradient of the call before, as the dump says."""
        return self.has_backward(key) and is_of_the_call_before(self.part, self.entry(key, BACKWARD))

    def has_backward(self, key: str) -> bool:
        """True if a backward record belongs to this call."""
        return key in self._backward or "backward" in self._passes.get(key, ())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)


def digest_of(call: ApiCall) -> str:
    """What distinguishes the recorded arguments of a call, and the gradients that come back, from others."""
    known = repr((call.args, sorted(call.kwargs.items()), call.gradients))
    digest: str = xxhash.xxh3_64_hexdigest(known.encode("utf-8", "surrogatepass"))
    return digest


_NAMED_GRADIENTS = ("input_grads", "merged")


def _each(contents: list[Any], name: str) -> tuple[Argument, ...]:
    """``name``: of the piece that says which one is meant."""
    return tuple(_single_argument(content, said(name, place)) for place, content in enumerate(contents))


def _single_argument(content: Any, what: str) -> Argument:
    try:
        return argument_of(content)
    except UnreadableArgumentError as problem:
        raise UnreadableArgumentError(said("part-of-record-wrong", what, problem)) from None


def api_name(key: str) -> ApiName:
    """The parts of a key. Raises UnreadableArgumentError if it has not three or four of them.

    Of a pass of a module the name is its class.
    """
    parts = key.split(".")
    if parts[0] == "Module" and len(parts) > 3:
        return ApiName("Module", *parts[-2:])
    if len(parts) == 3:
        return ApiName(*parts)
    if len(parts) == 4:
        return ApiName(parts[0], f"{parts[1]}.{parts[2]}", parts[3])
    raise UnreadableArgumentError(said("name-form", key))


def open_requests(path: StrPath, modules: bool = False) -> Requests:
    """The calls of a ``dump.json``, and with ``modules`` the passes of leaf modules.

    Raises PathError or InvalidInputError with the file and what is wrong in it.
    """
    given = check_path_form(path, "dump")
    if not os.path.lexists(given):
        near = like(given)
        hint = said("give-dump-json") if near is None else said("near-file", near)
        raise PathError(said("api-info-file-missing", given, hint))
    if given.is_file() and given.suffix != ".json" and layout.kind_of(given.name) is None:
        raise PathError(said("api-info-ending", given))
    part = _json_part(given) if given.is_file() else open_dump(given).part()
    if not part.header and not len(part):
        raise InvalidInputError(said("dump-without-data", part.path))
    return Requests(part, modules)


def _json_part(path: Path) -> DumpPart:
    """A dump by its file, whatever that is called: users keep several beside each other."""
    if layout.kind_of(path.name) is not None:
        return open_dump(path).part()
    return NamedPart(path)


class NamedPart(DumpPart):
    """A dump whose file has a name of its own."""

    def __init__(self, path: Path) -> None:
        self._named = path
        super().__init__(path.parent, "dump", None, path.parent.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedPart, (self._named,)

    def _read(self) -> None:
        self.path = self._named
        from msprobe.store import json_index

        index = self._index = json_index.read_index(self.path)
        self.header, self.ours = dict(index.header), dict(index.ours)
        self._sources.append((self.path, index.text))
        self._places = index.places


def flat(arguments: tuple[Argument, ...]) -> Iterator[Argument]:
    """The leaves of several trees, in order."""
    for argument in arguments:
        if isinstance(argument, Items):
            yield from flat(argument.items)
        else:
            yield argument
