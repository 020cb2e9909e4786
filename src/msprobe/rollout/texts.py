"""The findings of a contract in words: for each code what was found, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.rollout.compared import Compared
from msprobe.rollout.contract import ROUNDING_OF_FLOAT32, Contract, Finding, Measures
from msprobe.rollout.responses import Responses

_MOST_FINDINGS = 8

#: Code -> (what was found, what to do); fields are the arguments of the finding.
TEXTS: Mapping[str, tuple[str, str]] = {
    "tokens-differ": (
        "{count} responses have other tokens; the first from token {position} on",
        "compare token ids, never text that is tokenised again",
    ),
    "tokens-shifted": (
        "{count} responses have their tokens shifted by one place",
        "cut both at the same end of the prompt",
    ),
    "order-differs": (
        "{count} responses stand in another order: response {first} of the engine is row {stands_at} of the trainer",
        "sort both by request; until then each is judged against its own tokens",
    ),
    "last-token-missing": (
        "the {side} does not have the last token ({token}) of {count} responses",
        "keep the end token; it is lost where the padding token is the end token",
    ),
    "last-token-masked": (
        "the mask leaves out the last token of {count} responses",
        "build the mask from lengths; comparing with the padding token masks an equal end token, too",
    ),
    "masks-differ": (
        "the masks of {count} responses differ in {tokens} tokens",
        "build both masks from the same lengths",
    ),
    "weight-versions-differ": (
        "the engine generated {count} responses with weights {engine}, the trainer has {trainer}",
        "synchronise the weights before generation, or correct for the older ones",
    ),
    "no-number": ("{tokens} log-probs of the {side} are no finite numbers", "find out where they are lost"),
    "filled-with-zero": (
        "{tokens} log-probs of the {side} are exactly 0 where the other side has numbers",
        "0 is a probability of 1: leave such tokens out by the mask",
    ),
    "decode-and-prefill-differ": (
        "the engine's own log-probs of decode and prefill differ by {mean:.2g} on average",
        "look into the engine first: its cache, positions and kernels of decode",
    ),
    "log-base": ("the log-probs of the {side} are logarithms to base {base:g}", "use natural logarithms"),
    "probabilities": ("the numbers of the {side} are probabilities, not their logarithms", "take the logarithm"),
    "log-probs-divided": (
        "the log-probs of the {side} are divided by the temperature ({temperature:g}); it divides logits",
        "apply the temperature before the softmax",
    ),
    "sign": ("the numbers of the {side} are negative log-probs", "change their sign"),
    "shifted-tokens": (
        "the log-probs are shifted: the engine's at token i + {places} is the trainer's at token i",
        "the log-prob of token i comes from the logits at i - 1",
    ),
    "shifted-responses": (
        "the log-probs are those of a neighbouring response ({rows:+d})",
        "keep one order from the engine to the loss",
    ),
    "wrong-entry": (
        "the log-probs are the {entry} entry of the engine's dictionaries, not that of the token",
        "look the token itself up",
    ),
    "processed": (
        "the engine's log-probs are those after {how}, the trainer's are not",
        "apply the same to the trainer's logits, or let the engine return raw log-probs (logprobs_mode of vLLM)",
    ),
    "temperature-not-applied": (
        "log-probs differ by {mean:.2g} on average, the temperature is {temperature:g}: one side may not apply it",
        "apply the temperature on both sides or on none (logprobs_mode of vLLM)",
    ),
    "renormalised": (
        "the engine's log-probs are normalised over fewer tokens{kept_by}: {kept:.1%} of the trainer's mass",
        "sample with top_p = 1 and no top_k, or normalise the trainer's over the same tokens",
    ),
    "inputs-differ": (
        "the model was given wrong tokens or positions: {wrong} of {rows} rows of pass {call}{where}",
        "look at the positions that the engine counts, and at what it feeds back",
    ),
    "weights-differ": (
        "the engine holds other weights: {differ} of {rows} rows of {module}.{weight}",
        "look at the synchronisation: a name that is missing, an older step, a shard, an adapter that is not merged",
    ),
    "weights-stale": (
        "{module}.{weight} is still what the engine held after synchronisation {step}: {differ} of {rows} rows differ",
        "look at the names and buckets of the synchronisation: this one is not sent, or finds no layer",
    ),
    "weights-missing": (
        "{module}.{weight} never arrived: the engine has {filled:g} everywhere",
        "look at the names that the engine's loader knows: one that matches no layer is left out",
    ),
    "weights-transposed": (
        "{module}.{weight} of the engine is the trainer's transposed",
        "look at the conversion of this layer: a square matrix fits either way",
    ),
    "weights-cast": (
        "{module}.{weight} of the engine went through {type}: {differ} of {rows} rows differ",
        "send the weights in the type that the engine computes in",
    ),
    "weights-of-another": (
        "{module}.{weight} of the engine is the trainer's {other}",
        "look at the order in which weights are sent and loaded",
    ),
    "weights-wrong-shard": (
        "{module}.{weight} of the engine is a shard of a different rank, or cut in a different order",
        "cut each fused matrix on its own before the shards are put together",
    ),
    "weights-exchanged": (
        "the parts of the engine's {module}.{weight} have changed places",
        "put them together in the order of the engine's layer",
    ),
    "weight-rows-exchanged": (
        "the rows of the engine's {module}.{weight} are the trainer's in another order",
        "look at how heads are ordered where the weights are converted",
    ),
    "operator-differs": (
        "{module} gives other results for the same inputs: {wrong} of {rows} rows of pass {call}{where}{by}{causes}",
        "run this operator of both sides on these inputs; the settings above come first",
    ),
    "operator-scales-rows": (
        "{module} scales whole rows, {times:.2g} times as much as rounding of their elements does ({rows} rows)",
        "look at the type that its sums and variances are computed in",
    ),
    "stale-cache": (
        "{module} reads keys of other weights: {cached} tokens of {requests} requests came from the prefix cache",
        "reset the prefix cache after each update of the weights (reset_prefix_cache of vLLM)",
    ),
    "adapter-not-bound": (
        "the engine's adapter of {module} is empty, the trainer's is not",
        "look at the names of the adapter's weights: those that match no layer are left out without a word",
    ),
    "adapter-not-applied": (
        "{module} gives what the layer gives without its adapter: {wrong} of {rows} rows of pass {call}",
        "pass the adapter with each request (lora_request of vLLM), or merge it before the weights are sent",
    ),
    "responses-stand-out": (
        "{count} responses differ by {mean:.2g} on average, the others by {usual:.2g}",
        "look at what these have in common: a cached prefix, another adapter, older weights",
    ),
    "from-a-position-on": (
        "from token {position} on log-probs differ by {behind:.2g} on average, before by {before:.2g}",
        "look at positions: range of the rotary embedding, blocks of the cache, a window",
    ),
    "beyond-rounding": (
        "the log-probs differ by {mean:.2g} on average, which rounding of bfloat16 does not explain",
        "compare the weights, then record both sides",
    ),
}


def sentence(finding: Finding) -> str:
    """What was found, in one sentence without a full stop."""
    values = dict(finding.arguments)
    values["how"] = _how(values)
    kept = [f"{name} = {values[name]:g}" for name in ("top_k", "top_p", "min_p") if name in values]
    values["kept_by"] = f" ({', '.join(kept)})" if kept else ""
    values["where"] = f", first at position {values['position']}" if "position" in values else ""
    values["by"] = (
        ", by {units:.3g} units of rounding (limit {limit:.3g})".format(**values) if "units" in values else ""
    )
    values["causes"] = "".join(
        f"; {name} is {one:g}, the trainer's {other:g}" for name, (one, other) in values.get("settings", {}).items()
    )
    values.setdefault("position", 0)
    return TEXTS[finding.code][0].format(**values)


def advice(finding: Finding) -> str:
    """What to do about it."""
    return TEXTS[finding.code][1]


def _how(values: Mapping[str, Any]) -> str:
    words = [f"temperature {values['temperature']:.3g}"] if values.get("temperature", 1.0) != 1.0 else []
    words += [f"{name} = {values[name]:g}" for name in ("top_k", "top_p") if name in values]
    return ", ".join(words) or "other processing"


def lines(contract: Contract, engine: Responses, trainer: Responses) -> list[str]:
    """For the console: the verdict, what was found, the measures."""
    done = [headline(contract), *finding_lines(contract.findings)]
    done.append(f"  engine {engine.path} ({engine.field}), trainer {trainer.path} ({trainer.field})")
    done.append(f"  {_measures('engine - trainer', contract.measures)}")
    if contract.decode is not None:
        done.append(f"  {_measures('decode - prefill', contract.decode)}")
    return done


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """For each finding its code with the sentence, and what to do."""
    done = []
    for place, finding in enumerate(findings):
        names = finding.responses
        shown = f" (responses {', '.join(names[:5])}{', ...' if len(names) > 5 else ''})" if names else ""
        # The first stands in the headline.
        done += [f"  {finding.code}{f': {sentence(finding)}' if place else ''}{shown}", f"    {advice(finding)}"]
    return done


def compared_lines(compared: Compared, shows_operators: bool = False) -> list[str]:
    """For the console: a recorded engine against a trainer's model."""
    findings = compared.all_findings
    done = [compared_headline(compared), *finding_lines(findings[:_MOST_FINDINGS])]
    if len(findings) > _MOST_FINDINGS:
        done.append(f"  and {len(findings) - _MOST_FINDINGS} more (rollout.json with -o)")
    if compared.contract is not None:
        done.append(f"  {_measures('log-probs, engine - trainer', compared.contract.measures)}")
    stood_in = {path: line.stand_in for path, line in compared.operators.items() if line.stand_in}
    if stood_in:
        rows = sum(stood_in.values())
        done.append(
            f"  {rows} rows of {len(stood_in)} modules were judged with keys of the trainer, more widely: "
            "the engine's were cached before the recording"
        )
    if shows_operators:
        done += _operators(compared)
    return done


def compared_headline(compared: Compared) -> str:
    """The verdict in one line, with what was not judged."""
    read = compared.coverage.read
    if compared.all_findings:
        first = f"DIVERGED: {sentence(compared.all_findings[0])}."
    elif not read.get("calls"):
        first = "NOT JUDGED: no call of the engine could be run by the trainer."
    else:
        first = (
            f"AGREE: {read['weights']} weights are equal, and {read['calls']} calls ({read['rows']} rows) give what "
            "the trainer gives for the same inputs."
        )
    return f"{first} {compared.coverage.sentence('judged')}".rstrip()


def _operators(compared: Compared) -> list[str]:
    """A line for each module, those first whose sides have the fewest bits in common."""
    width = max((len(path) for path in compared.operators), default=0)
    done = [
        f"  {'':<{width}}                            units           bias             nearer to",
        f"  {'module':<{width}}  rows wrong equal bits engine trainer  engine trainer  float64",
    ]
    for path, line in sorted(compared.operators.items(), key=lambda one: (-one[1].wrong, one[1].bits)):
        done.append(
            f"  {path:<{width}} {line.rows:>5} {line.wrong:>5} {line.bits:>10.1%} {line.engine[0]:>6.3g} "
            f"{line.trainer[0]:>7.3g} {line.engine[1]:>7.2g} {line.trainer[1]:>7.2g}  {line.nearer}"
        )
    return done


def compared_json(compared: Compared) -> dict[str, Any]:
    """For ``rollout.json`` and ``--json``."""
    return {
        "status": compared.status,
        "headline": compared_headline(compared),
        "findings": [_as_json(one) for one in compared.all_findings],
        "measures": None if compared.contract is None else vars(compared.contract.measures),
        "operators": {path: line.as_json() for path, line in compared.operators.items()},
        "coverage": compared.coverage.as_json(),
    }


def _as_json(one: Finding) -> dict[str, Any]:
    return {
        "code": one.code,
        "responses": list(one.responses),
        "arguments": one.arguments,
        "message": sentence(one),
        "advice": advice(one),
    }


def headline(contract: Contract) -> str:
    """The verdict in one line, with what was not read."""
    if contract.findings:
        first = f"DIVERGED: {sentence(contract.findings[0])}."
    elif contract.status == "incomparable":
        first = "NOT JUDGED: no token has a log-prob on both sides."
    elif contract.measures.equal == contract.measures.tokens:
        first = f"AGREE: all {contract.measures.tokens} log-probs are equal."
    elif contract.measures.mean <= ROUNDING_OF_FLOAT32:
        first = f"AGREE: {contract.measures.tokens} log-probs differ by no more than rounding of float32."
    else:
        first = (
            f"AGREE: {contract.measures.tokens} log-probs differ by no more than rounding of bfloat16. Weights that "
            "are a step old would not show in this: compare the weights, too."
        )
    return f"{first} {contract.coverage.sentence()}".rstrip()


def _measures(words: str, one: Measures) -> str:
    flipped = f"; {one.flipped} tokens with other experts left out" if one.flipped else ""
    return (
        f"{words}: {one.tokens} tokens, {one.equal} equal, mean of the absolute difference {one.mean:.2g}, largest "
        f"{one.largest:.2g}, signed mean {one.signed:.2g}, k3 {one.k3:.2g}, mean ratio {one.ratio:.4f} +- "
        f"{one.ratio_error:.2g}{flipped}"
    )


def as_json(contract: Contract, engine: Responses, trainer: Responses) -> dict[str, Any]:
    """For ``rollout.json`` and ``--json``: status, findings with code, arguments and sentence, measures, coverage."""
    return {
        "status": contract.status,
        "headline": headline(contract),
        "findings": [_as_json(one) for one in contract.findings],
        "measures": vars(contract.measures),
        "decode_against_prefill": None if contract.decode is None else vars(contract.decode),
        "engine": {"file": engine.path, "field": engine.field},
        "trainer": {"file": trainer.path, "field": trainer.field},
        "coverage": contract.coverage.as_json(),
    }
