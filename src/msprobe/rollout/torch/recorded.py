"""The calls of a recorded engine with their tensors, and the request and position of each row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.rollout.engine_file import ENGINE_FILE, Engine, read_engine
from msprobe.rollout.torch.batches import Attentions, Batch, Batches, modules_of
from msprobe.store.part import DumpPart

_CALL = re.compile(r"Module\.(?P<path>.+)\.(?P<kind>[^.]+)\.forward\.(?P<number>\d+)")
#: What makes logits of hidden states in an engine; of a plain model what it returns stands for it.
LOGITS = "logits_processor"
BEHIND = (LOGITS, "lm_head", "embed_out")
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")


@dataclass(frozen=True)
class RowOrigins:
    """The request, the position and the token of each row of a forward pass; None for what was not recorded."""

    requests: list[str]
    positions: Any
    tokens: Any = None
    #: Where the pass was a padded batch.
    batch: Batch | None = None

    def flat(self, values: Any) -> Any:
        """A recorded tensor by rows: of a padded batch without its padding; of [1, rows, ...] the rows."""
        if self.batch is not None:
            return self.batch.rows_of(values)
        is_one = values.dim() >= (3 if values.is_floating_point() else 2) and values.shape[0] == 1
        return values[0] if is_one and values.shape[1] in (len(self.requests), len(set(self.requests))) else values

    def of(self, count: int) -> tuple[list[str], Any]:
        """Those of a result of ``count`` rows: of all tokens, or of the last of each request."""
        if count == len(self.requests):
            return self.requests, self.positions
        last = {name: row for row, name in enumerate(self.requests)}
        if count == len(last):
            places = list(last.values())
            return list(last), None if self.positions is None else self.positions[places]
        return [], None


@dataclass(frozen=True)
class ModuleCall:
    """A call of a module: its number of the pass, tensors (None where none was recorded), and whose rows they are.

    ``is_short``: the file of one of its tensors cannot be read.
    """

    path: str
    number: int
    given: list[Any]
    results: list[Any]
    requests: list[str]
    positions: Any
    is_short: bool = False


def engine_of(part: DumpPart) -> Engine:
    """``engine.json`` beside a dump; where there is none, what modules held by their recorded parameters."""
    folder = part.folder.parent
    if (folder / ENGINE_FILE).is_file():
        return read_engine(folder)
    parameters: dict[str, dict[str, Any]] = {}
    for name, record in part.records():
        match = _CALL.fullmatch(name)
        if match is None or not isinstance(record, dict) or match["path"] in parameters:
            continue
        tensors = {key: _values(part, leaf) for key, leaf in (record.get("parameters") or {}).items()}
        parameters[match["path"]] = {key: tensor for key, tensor in tensors.items() if tensor is not None}
    return modules_of(parameters)


def calls(part: DumpPart, passes: Sequence[RowOrigins]) -> Iterator[ModuleCall]:
    """All calls of modules in the order in which they ended, and attention between modules."""
    ended = 0
    attentions = Attentions()
    hidden: Any = None
    # What the root has returned is made logits behind it, before the next pass; some models make them inside.
    names = [match["path"] for match in map(_CALL.fullmatch, part.names()) if match is not None]
    is_inside = any(word.partition(".")[0] in BEHIND for word in names[: names.index("root") if "root" in names else 0])
    for name, record in part.records():
        match = _CALL.fullmatch(name)
        if match is None or not isinstance(record, dict):
            continue
        path = match["path"]
        if path == "root":
            rows = passes[ended] if ended < len(passes) else None
            logits = _values(part, _logits_of(record), rows)
            if is_inside and hidden is not None and logits is not None:
                yield ModuleCall(LOGITS, ended, [hidden], [logits], *(rows.of(len(logits)) if rows else ([], None)))
            hidden = None
            ended += 1
            continue
        is_behind = path.partition(".")[0] in BEHIND and not is_inside
        order = (ended - 1, ended) if is_behind else (ended, ended - 1)
        around = [passes[at] for at in order if 0 <= at < len(passes)]
        rows = around[0] if around else None
        named = record.get("input_kwargs") or {}
        given = [_values(part, leaf, rows) for leaf in (*record.get("input_args", []), *named.values())]
        results = [_values(part, leaf, rows) for leaf in record.get("output", [])]
        count = next((len(result) for result in results if result is not None), 0)
        requests, positions = next(
            (rows_around.of(count) for rows_around in around if rows_around.of(count)[0]), ([], None)
        )
        if path in BEHIND and given:
            hidden = given[0]
        attentions.note(path, given, results)
        angles = named.get("position_embeddings")
        if isinstance(angles, list):
            attended = attentions.ended(path, [_values(part, leaf, rows) for leaf in angles])
            if attended is not None:
                yield ModuleCall(f"{path}.attn", ended, *attended, requests, positions)
        leaves = (*record.get("input_args", []), *named.values(), *record.get("output", []))
        is_short = any(_is_lost(leaf, tensor) for leaf, tensor in zip(leaves, (*given, *results), strict=True))
        yield ModuleCall(path, ended, given, results, requests, positions, is_short)


def passes_of(part: DumpPart, engine: Engine) -> list[RowOrigins]:
    """What the whole model was given, pass by pass."""
    batches = Batches()
    return [_rows(part, engine, number, name, batches) for number, name in enumerate(_roots(part))]


def type_of(part: DumpPart) -> str:
    """The type that most of the modules' results have. Raises InvalidInputError where there are none."""
    counts: dict[str, int] = {}
    for _, record in part.records():
        for leaf in record.get("output", []) if isinstance(record, dict) else []:
            if isinstance(leaf, dict) and "float" in str(leaf.get("dtype")):
                counts[str(leaf["dtype"])] = counts.get(str(leaf["dtype"]), 0) + 1
    if not counts:
        raise InvalidInputError(said("engine-without-modules", part.path))
    return max(counts, key=lambda name: counts[name])


def _logits_of(record: Any) -> Any:
    """The leaf of the logits among what a plain model returned."""
    results = record.get("output", []) if isinstance(record, dict) else []
    first = results[0] if results else None
    return first.get("logits", first) if isinstance(first, dict) else None


def _roots(part: DumpPart) -> list[str]:
    return [name for name in part.names() if name.startswith("Module.root.") and ".forward." in name]


def _rows(part: DumpPart, engine: Engine, number: int, name: str, batches: Batches) -> RowOrigins:
    record = dict(part.records([name])).get(name)
    record = record if isinstance(record, dict) else {}
    named = {key: _values(part, leaf) for key, leaf in (record.get("input_kwargs") or {}).items()}
    given = [_values(part, leaf) for leaf in record.get("input_args", [])]
    if not engine.rows:
        rows = batches.rows(given, named)
        return RowOrigins([], None) if rows is None else RowOrigins(rows.requests, rows.positions, rows.tokens, rows)
    requests = [_SUFFIX.sub("", request) for request in engine.rows.get(number, [])]
    # Where they are given by place: token ids, then positions.
    ids = [tensor for tensor in given if tensor is not None and not tensor.is_floating_point()]
    for key, tensor in zip(("input_ids", "positions"), ids, strict=False):
        named.setdefault(key, tensor)
    return RowOrigins(requests, named.get("positions"), named.get("input_ids"))


def _is_lost(leaf: Any, values: Any) -> bool:
    return values is None and isinstance(leaf, dict) and isinstance(leaf.get("data_name"), str)


def _values(part: DumpPart, leaf: Any, rows: RowOrigins | None = None) -> Any:
    if not isinstance(leaf, dict) or not isinstance(leaf.get("data_name"), str):
        return None
    values = part.array(leaf["data_name"])
    kind = getattr(torch, str(leaf.get("dtype", "")).removeprefix("torch."), None)
    if values is None or not isinstance(kind, torch.dtype):
        return None
    tensor = torch.from_numpy(np.array(values)).to(kind)
    return tensor if rows is None else rows.flat(tensor)
