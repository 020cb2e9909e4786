"""The contract between an engine and a trainer: the same responses, tokens and masks, and log-probs that mean the same.

No tensors are needed. What is found is a list in the order in which one would look: requests, tokens, masks, weight
versions, then log-probs. The first that does not hold is the verdict.

Sizes, by healthy pairs of vLLM 0.32 on the CPU and a trainer (small Llama and Qwen3-MoE, 64 tokens each): the mean
absolute difference of log-probs is 2e-6 in float32, so 1e-4 is more than rounding of float32 leaves; in bfloat16 it is
.019 to .035 dense and .094 with a mixture of experts, so 0.1 is more than that leaves. Between the two log-probs alone
prove nothing: weights that are a step old stay below what bfloat16 leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from msprobe.coverage import Coverage, NotRead
from msprobe.messages import Wording, said
from msprobe.rollout.meanings import FEWEST, Meaning, Pair, counted, explained, together
from msprobe.rollout.responses import Floats, Response, Responses

ROUNDING_OF_FLOAT32 = 1e-4
ROUNDING_OF_HALF = 0.1
#: Standard errors that a mean must be away from what it should be.
_SURE = 4.0
#: A mean ratio that is this near to 1 says nothing.
_NEAR_ONE = 0.01
#: A response or the place where differences begin stands out by this factor.
_STANDS_OUT = 10.0
_SHARE_OF_ONE_WAY = 0.99
#: Less of a trainer's mass is not what anybody keeps.
_LEAST_KEPT = 0.3
#: A token that is kept alone has the log-prob 0, and is the most likely one: no less than this in the trainer's.
_LEAST_ALONE = -1.0
_SHOWN = 5

RolloutStatus = Literal["agree", "diverged", "incomparable"]


@dataclass(frozen=True)
class RolloutFinding:
    """What does not hold: the name of its message, where (``responses`` by name), and its numbers."""

    name: str
    responses: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LogProbMeasures:
    """Differences engine - trainer of the log-probs of all tokens that count.

    ``k3``: the mean of r - 1 - log r with r = exp(trainer - engine), an estimate of the divergence (Schulman, 2020).
    ``ratio``: the mean of r, which is 1 if the engine's are what the tokens were drawn from and both are whole
    distributions; ``ratio_error`` its standard error. ``flipped``: tokens left out as the experts chosen differ.
    """

    tokens: int = 0
    equal: int = 0
    mean: float = 0.0
    largest: float = 0.0
    signed: float = 0.0
    k3: float = 0.0
    ratio: float = 1.0
    ratio_error: float = 0.0
    flipped: int = 0


@dataclass(frozen=True)
class Contract:
    """The answer. ``decode``: the same measures of an engine's decode against its prefill, where both are given."""

    status: RolloutStatus
    findings: tuple[RolloutFinding, ...]
    measures: LogProbMeasures
    coverage: Coverage
    decode: LogProbMeasures | None = None

    @property
    def exit_code(self) -> int:
        """1 where something does not hold, 2 where not all could be looked at, else 0."""
        return 2 if self.status == "incomparable" else self.coverage.status(self.status == "diverged")


def hold(engine: Responses, trainer: Responses, prefill: Responses | None = None) -> Contract:
    """Hold the log-probs of an engine against those of a trainer.

    ``prefill``: the engine's own log-probs of the same tokens, computed in one pass over the whole responses. It is
    the first bisection: decode and prefill of a sound engine agree.
    """
    pairs, findings, not_read = _paired(engine, trainer)
    findings += _same_tokens(pairs)
    findings += _same_masks(pairs)
    findings += _same_versions(pairs)
    broken = {name for finding in findings if finding.name in _BREAK for name in finding.responses}
    sound = [pair for pair in pairs if pair[0].name not in broken]
    findings += _finite(sound)
    measures = measured(sound)
    decode = None
    if prefill is not None:
        twice, _, more = _paired(engine, prefill)
        not_read += more
        decode = measured(twice)
        # Below, decode and prefill may have kernels of their own, whose rounding differs: the measures are shown.
        if decode.mean > ROUNDING_OF_HALF:
            findings.append(RolloutFinding("decode-and-prefill-differ", (), _numbers(decode)))
    findings += _value_findings(sound, measures)
    for side in (engine, trainer, *([prefill] if prefill is not None else [])):
        not_read += [NotRead(said("of-file", what, side.path), why) for what, why in side.unread]
    coverage = Coverage({"responses": len(pairs), "tokens": measures.tokens}, tuple(dict.fromkeys(not_read)))
    status: RolloutStatus = "diverged" if findings else "agree" if measures.tokens else "incomparable"
    return Contract(status, tuple(findings), measures, coverage, decode)


#: With these there is nothing to compare token by token.
_BREAK = ("tokens-differ", "tokens-shifted")


# ---- which response is which


def _paired(engine: Responses, trainer: Responses) -> tuple[list[Pair], list[RolloutFinding], list[NotRead]]:
    left_out: list[NotRead] = []
    if engine.is_named and trainer.is_named:
        by_name = {row.name: row for row in trainer.rows}
        pairs = [(row, by_name[row.name]) for row in engine.rows if row.name in by_name]
        if pairs:
            names = {row.name for row, _ in pairs}
            for side in (engine, trainer):
                lone = [row.name for row in side.rows if row.name not in names]
                if lone:
                    left_out.append(NotRead(said("of-file", _names(lone), side.path), said("other-file-lacks-it")))
            return pairs, [], left_out
    by_tokens: dict[bytes, list[int]] = {}
    for place, row in enumerate(trainer.rows):
        if row.tokens is not None:
            by_tokens.setdefault(row.tokens.tobytes(), []).append(place)
    count = min(len(engine.rows), len(trainer.rows))
    places: list[int] = []
    for place, row in enumerate(engine.rows):
        same = by_tokens.get(row.tokens.tobytes(), []) if row.tokens is not None else []
        places.append(place if place in same or not same else same[0])
    moved = [place for place, other in enumerate(places[:count]) if other != place]
    findings = []
    if moved and len(set(places)) == len(places) and max(places) < len(trainer.rows):
        findings.append(
            RolloutFinding(
                "order-differs",
                tuple(engine.rows[place].name for place in moved),
                {"count": len(moved), "first": moved[0], "stands_at": places[moved[0]]},
            )
        )
    else:
        places = list(range(count))
    if len(engine.rows) != len(trainer.rows):
        more = engine if len(engine.rows) > count else trainer
        lone = [row.name for row in more.rows[count:]]
        left_out.append(NotRead(said("of-file", _names(lone), more.path), said("other-file-is-shorter")))
    pairs = [(engine.rows[number], trainer.rows[other]) for number, other in enumerate(places[: len(engine.rows)])]
    return pairs, findings, left_out


def _names(names: Sequence[str]) -> str:
    more = said("and-more", len(names) - _SHOWN) if len(names) > _SHOWN else ""
    return said("responses-named", Wording("{}{}", ", ".join(names[:_SHOWN]), more))


# ---- what is equal or not, whatever its size


def _same_tokens(pairs: Sequence[Pair]) -> list[RolloutFinding]:
    ended, differ, shifted = [], [], []
    first: dict[str, Any] = {}
    for response, other in pairs:
        if response.tokens is None or other.tokens is None:
            if len(response.log_probs) != len(other.log_probs):
                differ.append(response.name)
                first = first or {"engine_length": len(response.log_probs), "trainer_length": len(other.log_probs)}
            continue
        mine, theirs = response.tokens, other.tokens
        if np.array_equal(mine, theirs):
            continue
        short, long = sorted((mine, theirs), key=len)
        if len(long) == len(short) + 1 and np.array_equal(long[:-1], short):
            ended.append((response.name, "trainer" if len(theirs) < len(mine) else "engine", int(long[-1])))
            continue
        count = min(len(mine), len(theirs))
        if count > FEWEST and any(
            np.array_equal(mine[a : count - b], theirs[b : count - a]) for a, b in ((1, 0), (0, 1))
        ):
            shifted.append(response.name)
            continue
        differ.append(response.name)
        if not first:
            place = next((at for at in range(count) if mine[at] != theirs[at]), count)
            first = {
                "position": place,
                "engine_token": int(mine[place]) if place < len(mine) else None,
                "trainer_token": int(theirs[place]) if place < len(theirs) else None,
                "engine_length": len(mine),
                "trainer_length": len(theirs),
            }
    findings = []
    if differ:
        findings.append(RolloutFinding("tokens-differ", tuple(differ), {"count": len(differ), **first}))
    if shifted:
        findings.append(RolloutFinding("tokens-shifted", tuple(shifted), {"count": len(shifted)}))
    if ended:
        names = tuple(name for name, _, _ in ended)
        findings.append(
            RolloutFinding(
                "last-token-missing", names, {"count": len(ended), "side": ended[0][1], "token": ended[0][2]}
            )
        )
    return findings


def _same_masks(pairs: Sequence[Pair]) -> list[RolloutFinding]:
    last, other_places = [], []
    tokens = 0
    for response, other in pairs:
        count = min(len(response.log_probs), len(other.log_probs))
        masks = [side.mask[:count] if side.mask is not None else None for side in (response, other)]
        if masks[0] is None and masks[1] is None:
            continue
        # An engine has no mask as it made all tokens; a trainer's mask may leave out what tools have answered.
        engine = masks[0] if masks[0] is not None else np.isfinite(response.log_probs[:count])
        trainer = masks[1] if masks[1] is not None else np.ones(count, bool)
        wrong = np.flatnonzero(engine & ~trainer) if masks[0] is None else np.flatnonzero(engine != trainer)
        if masks[0] is None and len(wrong) and not _is_last(wrong, count):
            continue
        if _is_last(wrong, count):
            last.append(response.name)
        elif len(wrong):
            other_places.append(response.name)
            tokens += len(wrong)
    findings = []
    if last and len(last) * 2 > len(pairs):
        findings.append(RolloutFinding("last-token-masked", tuple(last), {"count": len(last)}))
    if other_places:
        findings.append(
            RolloutFinding("masks-differ", tuple(other_places), {"count": len(other_places), "tokens": tokens})
        )
    return findings


def _is_last(places: Any, count: int) -> bool:
    return len(places) == 1 and int(places[0]) == count - 1


def _same_versions(pairs: Sequence[Pair]) -> list[RolloutFinding]:
    wrong = [
        (response.name, response.weight_version, other.weight_version)
        for response, other in pairs
        if response.weight_version and other.weight_version and response.weight_version != other.weight_version
    ]
    if not wrong:
        return []
    names = tuple(name for name, _, _ in wrong)
    numbers = {"count": len(wrong), "engine": wrong[0][1], "trainer": wrong[0][2]}
    return [RolloutFinding("weight-versions-differ", names, numbers)]


def _finite(pairs: Sequence[Pair]) -> list[RolloutFinding]:
    findings = []
    for side, word in ((0, "engine"), (1, "trainer")):
        lost: dict[str, int] = {}
        zeros: dict[str, int] = {}
        is_filled = False
        for pair in pairs:
            count = min(len(pair[0].log_probs), len(pair[1].log_probs))
            use = counted(*pair, count)
            mine, theirs = pair[side].log_probs[:count][use], pair[1 - side].log_probs[:count][use]
            lost[pair[0].name] = int((~np.isfinite(mine)).sum())
            zeros[pair[0].name] = int((mine == 0).sum())
            is_filled |= bool(_is_filled(mine, theirs).any())
        for name, counts in (("no-number", lost), ("filled-with-zero", zeros if is_filled else {})):
            names = tuple(name for name, tokens in counts.items() if tokens)
            if names:
                findings.append(RolloutFinding(name, names, {"side": word, "tokens": sum(counts.values())}))
    return findings


# ---- numbers


def measured(pairs: Sequence[Pair]) -> LogProbMeasures:
    """The measures of all tokens that count and have two numbers; those whose experts differ are counted apart."""
    engine, trainer, flipped = _values(pairs)
    usable = np.isfinite(engine) & np.isfinite(trainer) & ~_is_filled(engine, trainer) & ~_is_filled(trainer, engine)
    engine, trainer = engine[usable], trainer[usable]
    if not len(engine):
        return LogProbMeasures(flipped=flipped)
    difference = engine - trainer
    ratio = np.exp(np.minimum(-difference, 50.0))
    return LogProbMeasures(
        tokens=len(engine),
        equal=int((difference == 0).sum()),
        mean=float(np.abs(difference).mean()),
        largest=float(np.abs(difference).max()),
        signed=float(difference.mean()),
        k3=float((ratio - 1 + difference).mean()),
        ratio=float(ratio.mean()),
        ratio_error=float(ratio.std(ddof=1) / np.sqrt(len(ratio))) if len(ratio) > 1 else 0.0,
        flipped=flipped,
    )


def _is_filled(engine_values: Floats, other: Floats) -> Any:
    """Where a side has 0 for want of a number: the other says that the token was unlikely, and not all are 0."""
    return (engine_values == 0) & (other < _LEAST_ALONE) & bool((engine_values != 0).any())


def _values(pairs: Sequence[Pair]) -> tuple[Floats, Floats, int]:
    steady, flipped = [], 0
    for response, other in pairs:
        if response.router is None or other.router is None or response.router.shape[1:] != other.router.shape[1:]:
            steady.append((response, other))
            continue
        count = min(len(response.log_probs), len(other.log_probs))
        differ = (response.router[:count] != other.router[:count]).reshape(count, -1).any(axis=1)
        flipped += int((differ & counted(response, other, count)).sum())
        steady.append((_masked(response, ~differ), other))
    return *together(steady), flipped


def _masked(response: Response, keep: Any) -> Response:
    count = len(keep)
    mask = keep if response.mask is None else response.mask[:count] & keep
    return Response(response.name, response.log_probs[:count], mask=mask)


def _numbers(measures: LogProbMeasures) -> dict[str, Any]:
    return {"mean": measures.mean, "largest": measures.largest, "tokens": measures.tokens, "equal": measures.equal}


def _value_findings(pairs: Sequence[Pair], measures: LogProbMeasures) -> list[RolloutFinding]:
    """Why log-probs differ by more than rounding, or in a way that rounding does not."""
    if measures.tokens < FEWEST or measures.mean <= ROUNDING_OF_FLOAT32:
        return []
    meaning = explained(pairs, measures.mean)
    if meaning is not None:
        return [_meaning_finding(meaning, pairs)]
    one_way = _one_way(pairs, measures)
    if one_way is not None:
        return [one_way]
    warm = _settings(pairs).get("temperature", 1.0)
    if measures.mean <= ROUNDING_OF_HALF:
        return _standing_out(pairs)
    if warm not in (0.0, 1.0):
        return [RolloutFinding("temperature-not-applied", (), {"temperature": warm, **_numbers(measures)})]
    return _standing_out(pairs) or [RolloutFinding("log-probs-beyond-rounding", (), _numbers(measures))]


def _meaning_finding(meaning: Meaning, pairs: Sequence[Pair]) -> RolloutFinding:
    names = tuple(response.name for response, _ in pairs)
    return RolloutFinding(meaning.name, names, {**meaning.arguments, "rest": meaning.rest})


def _settings(pairs: Sequence[Pair]) -> dict[str, float]:
    settings: dict[str, float] = {}
    for response, other in pairs:
        settings = {**other.settings, **response.settings, **settings}
    return settings


def _one_way(pairs: Sequence[Pair], measures: LogProbMeasures) -> RolloutFinding | None:
    """The engine's are of fewer tokens: never smaller, and the trainer's mass on what was drawn is below 1.

    For tokens drawn by what the engine reports, the mean of exp(trainer - engine) is the trainer's probability of all
    tokens that the engine could draw: 1 for whole distributions, the kept share after top-k or top-p.
    """
    engine, trainer, _ = _values(pairs)
    usable = np.isfinite(engine) & np.isfinite(trainer)
    difference = (engine - trainer)[usable]
    clear = np.abs(difference) > max(ROUNDING_OF_FLOAT32, 0.1 * measures.mean)
    larger = float((difference[clear] > 0).mean()) if clear.any() else 0.0
    settings = _settings(pairs)
    is_below = 1 - measures.ratio > max(_SURE * measures.ratio_error, _NEAR_ONE)
    if larger < _SHARE_OF_ONE_WAY or not is_below or not _may_cut(settings, measures.ratio):
        return None
    known: dict[str, Any] = {key: settings[key] for key in ("top_k", "top_p", "min_p") if key in settings}
    return RolloutFinding("renormalised", (), {"kept": measures.ratio, "larger": larger, **known, **_numbers(measures)})


def _may_cut(settings: dict[str, float], kept: float) -> bool:
    """Could so much have been cut off? By settings where they are known; greedy tokens are larger by their choice."""
    if settings.get("temperature") == 0.0:
        return False
    if "top_p" in settings or "top_k" in settings:
        return settings.get("top_p", 1.0) < 1 or settings.get("top_k", 0) > 0 or settings.get("min_p", 0.0) > 0
    return kept >= _LEAST_KEPT


def _standing_out(pairs: Sequence[Pair]) -> list[RolloutFinding]:
    """Single responses, or all tokens from one position on, that differ far more than the others do."""
    means = [(measured([pair]).mean, pair[0].name) for pair in pairs]
    usual = float(np.median([mean for mean, _ in means])) if means else 0.0
    least = max(_STANDS_OUT * usual, ROUNDING_OF_HALF)
    alone = [name for mean, name in means if mean > least]
    if alone and 2 * len(alone) < len(means):
        worst = max(mean for mean, _ in means)
        return [
            RolloutFinding("responses-stand-out", tuple(alone), {"count": len(alone), "mean": worst, "usual": usual})
        ]
    by_position: dict[int, list[float]] = {}
    for response, other in pairs:
        count = min(len(response.log_probs), len(other.log_probs))
        use = counted(response, other, count)
        for place in np.flatnonzero(
            use & np.isfinite(response.log_probs[:count]) & np.isfinite(other.log_probs[:count])
        ):
            by_position.setdefault(int(place), []).append(abs(response.log_probs[place] - other.log_probs[place]))
    places = sorted(by_position)
    sizes = np.asarray([float(np.mean(by_position[place])) for place in places])
    best: tuple[float, int] | None = None
    for cut in range(FEWEST, len(places) - FEWEST + 1):
        before, behind = float(sizes[:cut].mean()), float(sizes[cut:].mean())
        if behind > max(_STANDS_OUT * before, ROUNDING_OF_HALF) and (
            best is None or behind / (before + 1e-9) > best[0]
        ):
            best = behind / (before + 1e-9), cut
    if best is None:
        return []
    cut = best[1]
    numbers = {"position": places[cut], "before": float(sizes[:cut].mean()), "behind": float(sizes[cut:].mean())}
    return [RolloutFinding("from-a-position-on", (), numbers)]
