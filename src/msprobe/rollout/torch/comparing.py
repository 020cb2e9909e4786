"""A recorded engine against a trainer: contract, weights, then each operator on the engine's own inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from msprobe.coverage import Coverage, NotRead
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.rollout.compared import ComparedOperator, RolloutAnswer
from msprobe.rollout.contract import ROUNDING_OF_FLOAT32, RolloutFinding
from msprobe.rollout.engine_file import RESPONSES_FILE, Engine
from msprobe.rollout.torch.adapters import without_adapters
from msprobe.rollout.torch.answers import Answers
from msprobe.rollout.torch.between import between_modules
from msprobe.rollout.torch.experts import FLIPPED
from msprobe.rollout.torch.measuring import UNITS, Container, JudgedModule, NotKnown
from msprobe.rollout.torch.operators import Operators, settings_that_differ
from msprobe.rollout.torch.recorded import LOGITS, ModuleCall, RowOrigins, calls, engine_of, passes_of, type_of
from msprobe.rollout.torch.trainer import Trainer, load
from msprobe.rollout.torch.trainer_weights import TrainerWeights
from msprobe.rollout.torch.weights import hold_weights
from msprobe.store.reader import open_dump

_MOST_SHOWN = 20
#: Rows of a norm that are scaled as a whole (see ``measuring``), and of fewer rows nothing is said.
_TIMES_SCALED = 2.0
_FEWEST_SCALED = 16


def compare_engine(roll: str, model: str) -> RolloutAnswer:
    """Compare a recorded ``generate`` with the model of a folder. Raises PathError, InvalidInputError."""
    dump = open_dump(roll)
    if len(dump.steps) != 1:
        raise InvalidInputError(said("one-step-of-the-engine", roll, len(dump.steps)))
    step = dump.steps[0]
    ranks = dump.ranks(step)
    part = dump.part(step, ranks[0])
    engine = engine_of(part)
    kind = type_of(part)
    trainer = Trainer(load(model, kind))
    passes = passes_of(part, engine)
    answers = Answers(str(part.folder.parent / RESPONSES_FILE), passes)
    done = RolloutAnswer(is_half=not kind.endswith(("float32", "float64")))
    not_read = [NotRead(said("rank-named", rank), said("one-rank-is-compared")) for rank in ranks[1:]]
    done.findings, done.weights, more = hold_weights(engine.modules, TrainerWeights.of_model(trainer.model))
    not_read += more
    differ = len(done.findings)
    inputs = _inputs(passes, answers.tokens)
    judged = rows = 0
    unknown: dict[str, str] = {}
    skipped: dict[tuple[str, str], int] = {}
    operators = Operators(trainer, answers.tokens)
    with torch.no_grad():
        for call in calls(part, passes):
            try:
                measured = operators.judge(
                    call.path, call.number, call.given, call.results, call.requests, call.positions
                )
            except Container:
                continue
            except NotKnown as reason:
                unknown.setdefault(call.path, said("no-files-read") if call.is_short else reason.why)
                continue
            if call.is_short:
                # What lacks an argument gives something else.
                unknown.setdefault(call.path, said("no-files-read"))
                continue
            if call.path.rpartition(".")[2] == LOGITS:
                answers.note_logits(call)
            judged, rows = judged + 1, rows + len(measured.rows)
            _count(done, measured)
            for why, count in measured.skipped.items():
                skipped[call.path, why] = skipped.get((call.path, why), 0) + count
            if len(measured.wrong):
                done.findings.append(_finding(measured, call, engine, trainer, answers))
        done.judges_logits = answers.are_of_logits()
        done.contract = answers.contract(trainer, operators.choices)
    not_read += [NotRead(said("calls-of", path), why) for path, why in unknown.items()]
    # Either choice of a router between equals is right: nothing is lost with such a row.
    lost = {of: count for of, count in skipped.items() if of[1] != FLIPPED}
    not_read += [NotRead(said("rows-of", count, path), said(why)) for (path, why), count in lost.items()]
    done.findings += _scaled(done.operators)
    # In float32 log-probs say by themselves whether anything is left.
    is_settled = not done.is_half and done.contract is not None and done.contract.measures.mean <= ROUNDING_OF_FLOAT32
    is_short = bool(part.unread)  # what lies between modules would look as if it did something else
    if not done.findings and not inputs and not is_settled and not is_short:
        between = between_modules(calls(part, passes), trainer, answers.tokens)
        done.findings += [between] if between is not None else []
    done.findings = [*inputs, *_ordered(_one_each(done.findings), done.operators)]
    done.coverage = Coverage({"weights": done.weights + differ, "calls": judged, "rows": rows}, tuple(not_read))
    return done


def _count(done: RolloutAnswer, judged: JudgedModule) -> None:
    """Add a call to the table of its module."""
    line = done.operators.setdefault(judged.path, ComparedOperator())
    line.calls += 1
    line.rows += len(judged.rows) - sum(judged.skipped.values())
    line.skipped += sum(judged.skipped.values())
    line.wrong += len(judged.wrong)
    line.stand_in += 0 if judged.stand_in is None else int(judged.stand_in.sum())
    line.slopes = line.slopes[0] + judged.slopes[0], line.slopes[1] + judged.slopes[1]
    line.add(judged.bits, (judged.engine.units, judged.engine.bias), (judged.trainer.units, judged.trainer.bias))


def _finding(
    judged: JudgedModule, call: ModuleCall, engine: Engine, trainer: Trainer, answers: Answers
) -> RolloutFinding:
    rows = judged.wrong
    first = int(rows[0])
    requests, positions = call.requests, call.positions
    names = tuple(dict.fromkeys(requests[row] for row in rows if row < len(requests)))
    arguments: dict[str, Any] = {
        "module": judged.path,
        "call": judged.call,
        "wrong": len(rows),
        "rows": len(judged.rows),
        "units": float(np.nan_to_num(judged.rows[rows], nan=np.inf).max()),
        "limit": float(judged.limits[first]),
    }
    if positions is not None and first < len(positions):
        arguments["position"] = int(positions[first])
    if judged.stand_in is not None and judged.stand_in[rows].all():
        # Only rows that read keys of before the recording are wrong.
        arguments["cached"] = sum(answers.cached.get(name, 0) for name in names)
        return RolloutFinding("stale-cache", names[:_MOST_SHOWN], {**arguments, "requests": len(names)})
    if _is_base(judged, call, trainer):
        return RolloutFinding("adapter-not-applied", names[:_MOST_SHOWN], arguments)
    around = trainer.parent_of(judged.path)
    for path, module in ((judged.path, trainer.module(judged.path)), (judged.path.rpartition(".")[0], around)):
        if module is not None and path in engine.modules:
            differ = settings_that_differ(engine.modules[path].numbers, module)
            if differ:
                arguments["settings"] = {name: list(values) for name, values in differ.items()}
                break
    return RolloutFinding("operator-differs", names[:_MOST_SHOWN], arguments)


def _inputs(passes: Sequence[RowOrigins], tokens: Mapping[str, Sequence[int]]) -> list[RolloutFinding]:
    """Does each row of the model's input have the token that its request has at its position?"""
    for number, pass_ in enumerate(passes):
        if (
            pass_.positions is None
            or pass_.tokens is None
            or not len(pass_.requests) == len(pass_.positions) == len(pass_.tokens)
        ):
            continue
        wrong = []
        for row, (request, place, token) in enumerate(
            zip(pass_.requests, pass_.positions.tolist(), pass_.tokens.tolist(), strict=True)
        ):
            known = tokens.get(request)
            if known is not None and not (0 <= place < len(known) and known[place] == token):
                wrong.append(row)
        if wrong:
            names = tuple(dict.fromkeys(pass_.requests[row] for row in wrong))[:_MOST_SHOWN]
            first = int(pass_.positions[wrong[0]])
            numbers = {"module": "root", "call": number, "wrong": len(wrong), "rows": len(pass_.requests)}
            return [RolloutFinding("inputs-differ", names, {**numbers, "position": first})]
    return []


def _scaled(operators: Mapping[str, ComparedOperator]) -> list[RolloutFinding]:
    """Norms whose rows are within their limits, and scaled as a whole by more than rounding does."""
    return [
        RolloutFinding("operator-scales-rows", (), {"module": path, "rows": line.rows, "times": line.scaled})
        for path, line in operators.items()
        if not line.wrong and line.rows >= _FEWEST_SCALED and line.scaled > _TIMES_SCALED
    ]


def _is_base(judged: JudgedModule, call: ModuleCall, trainer: Trainer) -> bool:
    """Are the wrong rows those of the layer without its adapter?"""
    given = next((tensor for tensor in call.given if tensor is not None), None)
    base = None
    if given is not None and given.is_floating_point():
        base = without_adapters([part.module for part in trainer.parts(judged.path)], given)
    result = next((tensor for tensor in call.results if tensor is not None), None)
    if base is None or result is None or base.shape != result.shape:
        return False
    rows = judged.wrong
    away = (base[rows].double() - result[rows].double()).square().mean(-1).sqrt()
    size = base[rows].double().square().mean(-1).sqrt().clamp_min(1e-30)
    return bool((away / size / UNITS[result.dtype] <= judged.limits[rows].max()).all())


def _ordered(findings: list[RolloutFinding], operators: Mapping[str, ComparedOperator]) -> list[RolloutFinding]:
    """Weights first, but for those of a layer that is wrong in some rows alone.

    A packed weight is read through its layer: where most results agree with the trainer's weight, the layer is wrong.
    """

    def is_layer(finding: RolloutFinding) -> bool:
        line = operators.get(str(finding.arguments.get("module")))
        return "weight" in finding.arguments and line is not None and 0 < 2 * line.wrong < line.rows

    return [*(finding for finding in findings if not is_layer(finding)), *filter(is_layer, findings)]


def _one_each(findings: list[RolloutFinding]) -> list[RolloutFinding]:
    """The first finding of each module: later passes repeat it."""
    done: dict[tuple[str, str, str], RolloutFinding] = {}
    for finding in findings:
        key = finding.name, str(finding.arguments.get("module")), str(finding.arguments.get("weight"))
        done.setdefault(key, finding)
    return list(done.values())
