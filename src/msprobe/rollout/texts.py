"""A contract, or a recorded engine against a trainer, in the catalogue's words: for the console and for programs."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msprobe.messages import Wording, explained, find, joined, said, translated
from msprobe.rollout.compared import RolloutAnswer
from msprobe.rollout.contract import ROUNDING_OF_FLOAT32, Contract, LogProbMeasures, RolloutFinding
from msprobe.rollout.responses import Responses

_MOST_FINDINGS = 8
_MOST_NAMES = 5
_MOST_KINDS = 3


def sentence(finding: RolloutFinding) -> str:
    """What was found, in one sentence without a full stop."""
    message = find(finding.name)
    assert message is not None, finding.name
    values = {**finding.arguments, **_phrases(finding.arguments)}
    return said(message.name, *(values[name] for name in message.names))


def advice(finding: RolloutFinding) -> str:
    """What to do about it."""
    message = find(finding.name)
    return "" if message is None else explained(message.topic, "advice")


def _phrases(values: Mapping[str, Any]) -> dict[str, str]:
    """What sentences are put together from, where a finding has it."""
    kept = [Wording(f"{name} = {{:g}}", values[name]) for name in ("top_k", "top_p", "min_p") if name in values]
    units = said("by-units", values["units"], values["limit"]) if "units" in values else ""
    settings = [said("setting-differs", name, *both) for name, both in values.get("settings", {}).items()]
    done = {
        "how": _processing(values),
        "kept_by": Wording(" ({})", joined(", ", kept)) if kept else "",
        "where": said("first-at-position", values["position"]) if "position" in values else "",
        "by": units,
        "causes": joined("", settings),
    }
    for name in ("side", "entry"):
        if name in values:
            done[name] = said(f"{name}-{values[name]}")
    return done


def _processing(values: Mapping[str, Any]) -> str:
    words: list[str] = []
    if values.get("temperature", 1.0) != 1.0:
        words.append(said("temperature-of", values["temperature"]))
    words += [Wording(f"{name} = {{:g}}", values[name]) for name in ("top_k", "top_p") if name in values]
    return joined(", ", words) or said("other-processing")


# ---- the verdict in one line, with what was not read


def headline(contract: Contract) -> str:
    """Of log-probs alone."""
    measures, weights_text = contract.measures, ""
    if contract.findings:
        first: str = said("rollout-diverged", sentence(contract.findings[0]))
    elif contract.status == "incomparable":
        first = said("rollout-tokens-not-judged")
    elif measures.equal == measures.tokens:
        first = said("log-probs-equal", measures.tokens)
    elif measures.mean <= ROUNDING_OF_FLOAT32:
        first = said("log-probs-agree", measures.tokens, "float32")
    else:
        first = said("log-probs-agree", measures.tokens, "bfloat16")
        weights_text = said("old-weights-would-not-show")
    return _one_after_the_other(first, weights_text, contract.coverage.sentence())


def compared_headline(compared: RolloutAnswer) -> str:
    """Of a recorded engine."""
    read = compared.coverage.read
    if compared.all_findings:
        first = said("rollout-diverged", sentence(compared.all_findings[0]))
    elif not read.get("calls"):
        first = said("rollout-calls-not-judged")
    else:
        first = said("rollout-agrees", read["weights"], read["calls"], read["rows"])
    return _one_after_the_other(first, compared.coverage.sentence("judged"))


def _one_after_the_other(*sentences: str) -> str:
    return joined(" ", [text for text in sentences if text])


# ---- for the console


def lines(contract: Contract, engine: Responses, trainer: Responses) -> list[str]:
    """The verdict, what was found, the measures."""
    shown = [_indented(remark) for remark in remarks(contract, engine, trainer)]
    return [translated(headline(contract)), *finding_lines(contract.findings), *shown]


def remarks(contract: Contract, engine: Responses, trainer: Responses) -> list[str]:
    """The files, and the measures of what they say."""
    done: list[str] = [said("rollout-sides", engine.path, engine.field, trainer.path, trainer.field)]
    done.append(_measures(said("engine-minus-trainer"), contract.measures))
    if contract.decode is not None:
        done.append(_measures(said("decode-minus-prefill"), contract.decode))
    return done


def finding_lines(findings: Sequence[RolloutFinding]) -> list[str]:
    """For each finding its code with the sentence, and what to do."""
    done = []
    for place, finding in enumerate(findings):
        message = find(finding.name)
        assert message is not None, finding.name
        names = [*finding.responses[:_MOST_NAMES], *(["..."] if len(finding.responses) > _MOST_NAMES else [])]
        shown = said("of-responses", ", ".join(names)) if names else ""
        # The first stands in the headline.
        text = f": {translated(sentence(finding))}" if place else ""
        done.append(f"  {message.code} {message.name}{text}{translated(shown)}")
        done.append(f"    {translated(advice(finding))}")
    return done


def compared_lines(compared: RolloutAnswer, shows_operators: bool = False) -> list[str]:
    """A recorded engine against a trainer's model."""
    findings = compared.all_findings
    done = [translated(compared_headline(compared)), *finding_lines(findings[:_MOST_FINDINGS])]
    if len(findings) > _MOST_FINDINGS:
        done.append(_indented(said("rollout-more-findings", len(findings) - _MOST_FINDINGS)))
    done += [_indented(remark) for remark in compared_remarks(compared)]
    return [*done, *_operators(compared)] if shows_operators else done


def compared_remarks(compared: RolloutAnswer) -> list[str]:
    """Measures of log-probs, and what else to know."""
    if compared.contract is None:
        return notes(compared)
    return [_measures(said("log-probs-engine-minus-trainer"), compared.contract.measures), *notes(compared)]


def notes(compared: RolloutAnswer) -> list[str]:
    """What else to know of the answer."""
    stood_in = {path: line.stand_in for path, line in compared.operators.items() if line.stand_in}
    done: list[str] = [said("keys-of-the-trainer", sum(stood_in.values()), len(stood_in))] if stood_in else []
    given = compared.contract
    if compared.status == "agree" and given is not None and given.measures.equal < given.measures.tokens:
        shares: dict[str, list[float]] = {}
        for path, line in compared.operators.items():
            shares.setdefault(path.rpartition(".")[2], []).append(line.bits)
        least = sorted((sum(bits) / len(bits), kind) for kind, bits in shares.items())[:_MOST_KINDS]
        kinds = [Wording("{} ({:.0%})", kind, bits) for bits, kind in least if bits < 1.0]
        done += [said("rounds-differently", joined(", ", kinds))] if kinds else []
    return done


def _indented(text: str) -> str:
    return f"  {translated(text)}"


def _operators(compared: RolloutAnswer) -> list[str]:
    """A line for each module, those first whose sides have the fewest bits in common."""
    width = max((len(path) for path in compared.operators), default=0)
    head = translated(said("operators-module"))
    taken = sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in head)
    done = [
        f"  {'':<{width}}{translated(said('operators-above'))}",
        f"  {head}{'':<{max(0, width - taken)}}{translated(said('operators-columns'))}",
    ]
    for path, line in sorted(compared.operators.items(), key=lambda operator: (-operator[1].wrong, operator[1].bits)):
        done.append(
            f"  {path:<{width}} {line.rows:>5} {line.wrong:>5} {line.bits:>10.1%} {line.engine[0]:>6.3g} "
            f"{line.trainer[0]:>7.3g} {line.engine[1]:>7.2g} {line.trainer[1]:>7.2g}  "
            f"{translated(said(f'nearer-{line.nearer}'))}"
        )
    return done


def _measures(what: str, measured: LogProbMeasures) -> str:
    flipped = said("tokens-flipped", measured.flipped) if measured.flipped else ""
    numbers = (
        measured.tokens,
        measured.equal,
        measured.mean,
        measured.largest,
        measured.signed,
        measured.k3,
        measured.ratio,
        measured.ratio_error,
    )
    return said("rollout-measures", what, *numbers, flipped)


# ---- for programs


def as_json(contract: Contract, engine: Responses, trainer: Responses) -> dict[str, Any]:
    """For ``rollout.json`` and ``--json``: status, findings with code, arguments and sentence, measures, coverage."""
    return _tree(
        {
            "status": contract.status,
            "headline": headline(contract),
            "findings": [finding_json(finding) for finding in contract.findings],
            "measures": asdict(contract.measures),
            "decode_against_prefill": None if contract.decode is None else asdict(contract.decode),
            "engine": {"file": engine.path, "field": engine.field},
            "trainer": {"file": trainer.path, "field": trainer.field},
            "coverage": contract.coverage.as_json(),
        }
    )


def compared_json(compared: RolloutAnswer) -> dict[str, Any]:
    """For ``rollout.json`` and ``--json``: of a recorded engine."""
    return _tree(
        {
            "status": compared.status,
            "headline": compared_headline(compared),
            "findings": [finding_json(finding) for finding in compared.all_findings],
            "notes": notes(compared),
            "measures": None if compared.contract is None else asdict(compared.contract.measures),
            "operators": {path: line.as_json() for path, line in compared.operators.items()},
            "coverage": compared.coverage.as_json(),
        }
    )


def finding_json(finding: RolloutFinding) -> dict[str, Any]:
    """Code and name of the message, its sentence, the numbers, the responses, and what to do."""
    message = find(finding.name)
    return {
        "code": "" if message is None else message.code,
        "name": finding.name,
        "message": sentence(finding),
        "arguments": finding.arguments,
        "responses": list(finding.responses),
        "advice": advice(finding),
    }


def _tree(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _writable(value) for name, value in arguments.items()}


def _writable(tree: Any) -> Any:
    """Numbers that JSON does not have, as texts: ``inf``."""
    if isinstance(tree, Mapping):
        return {str(key): _writable(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_writable(value) for value in tree]
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree
