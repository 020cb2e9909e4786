"""A recorded engine against a trainer: contract, weights, then each operator on the engine's own inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from msprobe.coverage import Coverage, NotRead
from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import parse_json
from msprobe.foreign.opening import file_bytes
from msprobe.rollout.compared import Compared
from msprobe.rollout.contract import Contract, Finding, hold
from msprobe.rollout.engine_file import RESPONSES_FILE, Engine, read_engine
from msprobe.rollout.responses import Response, Responses, read_responses
from msprobe.rollout.torch.operators import CONTAINER, Judged, NotKnown, Operators, settings_that_differ
from msprobe.rollout.torch.trainer import Trainer, load
from msprobe.rollout.torch.weights import hold_weights
from msprobe.store.part import DumpPart
from msprobe.store.reader import open_dump

_CALL = re.compile(r"Module\.(?P<path>.+)\.(?P<kind>[^.]+)\.forward\.(?P<number>\d+)")
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
_MOST_SHOWN = 20
_MOST_LOGITS = 1 << 26


def compare_engine(roll: str, model: str) -> Compared:
    """Compare a recorded ``generate`` with the model of a folder. Raises PathError, InvalidInputError."""
    dump = open_dump(roll)
    if len(dump.steps) != 1:
        raise InvalidInputError(f'"{roll}" has {len(dump.steps)} steps; give one of them (a folder step0, ...).')
    step = dump.steps[0]
    ranks = dump.ranks(step)
    part = dump.part(step, ranks[0])
    engine = read_engine(part.folder.parent)
    trainer = Trainer(load(model, _dtype(part)))
    answers = part.folder.parent / RESPONSES_FILE
    done = Compared(_contract(str(answers), trainer) if answers.is_file() else None)
    not_read = [NotRead(f"rank {rank}", "one rank of the engine is compared") for rank in ranks[1:]]
    findings, done.weights, more = hold_weights(engine.modules, trainer)
    done.findings += findings
    not_read += more
    judged = rows = 0
    unknown: dict[str, str] = {}
    with torch.no_grad():
        for one, requests, positions in _judged(part, engine, trainer, unknown):
            judged, rows = judged + 1, rows + len(one.rows)
            _counted(done.operators, one)
            if len(one.wrong):
                done.findings.append(_finding(one, requests, positions, engine, trainer))
    not_read += [NotRead(f"calls of {path}", why) for path, why in unknown.items() if why != CONTAINER]
    cached = {path: line["skipped"] for path, line in done.operators.items() if line["skipped"]}
    not_read += [NotRead(f"{count} rows of {path}", "earlier keys were cached") for path, count in cached.items()]
    done.findings = _ordered(_one_each(done.findings), done.operators)
    done.coverage = Coverage({"weights": done.weights + len(findings), "calls": judged, "rows": rows}, tuple(not_read))
    return done


def _contract(path: str, trainer: Trainer) -> Contract | None:
    """The engine's log-probs against the trainer's for the same tokens; None where the engine gave none."""
    tree = [parse_json(line, path) for line in file_bytes(path).splitlines() if line.strip()]
    if not any(isinstance(row, dict) and row.get("log_probs") for row in tree):
        return None
    engine = read_responses(path, "engine")
    rows = []
    for one, row in zip(engine.rows, tree, strict=False):
        if one.tokens is None:
            continue
        count = len(one.tokens)
        prompt = [int(token) for token in row.get("prompt_token_ids", [])]
        tokens = torch.tensor([[*prompt, *one.tokens.tolist()]])
        with torch.no_grad():
            logits = trainer.model(tokens).logits[0, len(prompt) - 1 : -1].float()
        chosen = torch.log_softmax(logits, -1)[torch.arange(count), tokens[0, -count:]]
        whole = logits.double().numpy() if logits.numel() * len(engine.rows) <= _MOST_LOGITS else None
        rows.append(Response(one.name, chosen.double().numpy(), tokens=one.tokens, logits=whole))
    return hold(engine, Responses("the trainer's model", "logits", tuple(rows), is_named=True))


def _dtype(part: DumpPart) -> str:
    """The type that most of the modules' results have."""
    counts: dict[str, int] = {}
    for _, record in part.records():
        for leaf in record.get("output", []) if isinstance(record, dict) else []:
            if isinstance(leaf, dict) and "float" in str(leaf.get("dtype")):
                counts[str(leaf["dtype"])] = counts.get(str(leaf["dtype"]), 0) + 1
    if not counts:
        raise InvalidInputError(f'"{part.path}" has no results of modules; record the engine with level L0.')
    return max(counts, key=lambda name: counts[name])


@dataclass(frozen=True)
class _Pass:
    """A forward pass of the engine: the request and the position of each row."""

    requests: list[str]
    positions: Any

    def of_rows(self, count: int) -> tuple[list[str], Any]:
        """Those of a result of ``count`` rows: of all tokens, or of the last of each request."""
        if count == len(self.requests):
            return self.requests, self.positions
        last = {name: row for row, name in enumerate(self.requests)}
        if count == len(last):
            places = list(last.values())
            return list(last), None if self.positions is None else self.positions[places]
        return [], None


def _judged(
    part: DumpPart, engine: Engine, trainer: Trainer, unknown: dict[str, str]
) -> Iterator[tuple[Judged, list[str], Any]]:
    operators = Operators(trainer)
    passes = [_pass(part, engine, number, name) for number, name in enumerate(_roots(part))]
    ended = 0
    for name, record in part.records():
        found = _CALL.fullmatch(name)
        if found is None or not isinstance(record, dict):
            continue
        if found["path"] == "root":
            ended += 1
            continue
        given = [_values(part, leaf) for leaf in record.get("input_args", [])]
        results = [_values(part, leaf) for leaf in record.get("output", [])]
        count = next((len(one) for one in results if one is not None), 0)
        # What the root has returned is made logits behind it.
        around = [passes[at] for at in (ended, ended - 1) if 0 <= at < len(passes)]
        requests, positions = next((one.of_rows(count) for one in around if one.of_rows(count)[0]), ([], None))
        try:
            one = operators.judge(found["path"], ended, given, results, requests, positions)
        except NotKnown as reason:
            unknown.setdefault(found["path"], str(reason))
            continue
        yield one, requests, positions


def _roots(part: DumpPart) -> list[str]:
    return [name for name in part.names() if name.startswith("Module.root.") and ".forward." in name]


def _pass(part: DumpPart, engine: Engine, number: int, name: str) -> _Pass:
    record = dict(part.records([name])).get(name)
    leaf = record.get("input_kwargs", {}).get("positions") if isinstance(record, dict) else None
    requests = [_SUFFIX.sub("", one) for one in engine.rows.get(number, [])]
    return _Pass(requests, None if leaf is None else _values(part, leaf))


def _values(part: DumpPart, leaf: Any) -> Any:
    if not isinstance(leaf, dict) or not isinstance(leaf.get("data_name"), str):
        return None
    values = part.array(leaf["data_name"])
    kind = getattr(torch, str(leaf.get("dtype", "")).removeprefix("torch."), None)
    if values is None or not isinstance(kind, torch.dtype):
        return None
    return torch.from_numpy(np.array(values)).to(kind)


def _counted(table: dict[str, dict[str, Any]], one: Judged) -> None:
    line = table.setdefault(
        one.path, {"calls": 0, "rows": 0, "wrong": 0, "units": 0.0, "trainer_units": 0.0, "bits": 0.0, "skipped": 0}
    )
    line["calls"] += 1
    line["rows"] += len(one.rows) - one.skipped[0]
    line["skipped"] += one.skipped[0]
    line["wrong"] += len(one.wrong)
    line["units"] = max(line["units"], float(one.rows.max(initial=0.0)))
    line["trainer_units"] = max(line["trainer_units"], one.own)
    line["bits"] += (one.bits - line["bits"]) / line["calls"]


def _finding(one: Judged, requests: list[str], positions: Any, engine: Engine, trainer: Trainer) -> Finding:
    rows = one.wrong
    first = int(rows[0])
    names = tuple(dict.fromkeys(requests[row] for row in rows if row < len(requests)))[:_MOST_SHOWN]
    arguments: dict[str, Any] = {
        "module": one.path,
        "call": one.call,
        "wrong": len(rows),
        "rows": len(one.rows),
        "units": float(np.nan_to_num(one.rows[rows], nan=np.inf).max()),
        "limit": one.limit,
    }
    if positions is not None and first < len(positions):
        arguments["position"] = int(positions[first])
    around = trainer.parent_of(one.path)
    for path, module in ((one.path, trainer.modules.get(one.path)), (one.path.rpartition(".")[0], around)):
        if module is not None and path in engine.modules:
            differ = settings_that_differ(engine.modules[path].numbers, module)
            if differ:
                arguments["settings"] = {name: list(values) for name, values in differ.items()}
                break
    return Finding("operator-differs", names, arguments)


def _ordered(findings: list[Finding], operators: dict[str, dict[str, Any]]) -> list[Finding]:
    """Weights first, but for those of a layer that is wrong in some rows alone.

    A packed weight is read through its layer: where most results agree with the trainer's weight, the layer is wrong.
    """

    def is_layer(one: Finding) -> bool:
        line = operators.get(str(one.arguments.get("module")))
        return "weight" in one.arguments and line is not None and 0 < 2 * line["wrong"] < line["rows"]

    return [*(one for one in findings if not is_layer(one)), *filter(is_layer, findings)]


def _one_each(findings: list[Finding]) -> list[Finding]:
    """The first finding of each module: later passes repeat it."""
    done: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        key = one.code, str(one.arguments.get("module")), str(one.arguments.get("weight"))
        done.setdefault(key, one)
    return list(done.values())
