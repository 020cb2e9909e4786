"""One call against its second run: what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msprobe.config.settings import FreeBenchmark, PerturbationMode
from msprobe.messages import said
from msprobe.perturb.framework import ErrorLimits, Framework, Invocation, TensorDistance
from msprobe.perturb.judging import Judge, Run
from msprobe.perturb.operators import ElementExchange
from msprobe.perturb.preheat import Preheat
from msprobe.perturb.results import EXPLAINED, Verdict
from msprobe.perturb.second_runs import NotPerturbedError, SecondRuns, expected
from msprobe.perturb.thresholds import MEAN_LIMIT, cpu_limit, equal_ratio, floor_of
from msprobe.perturb.trees import LeafPath, leaves

# A deviation like one that was explained, up to so much more, is judged anew after so many steps.
_LIKE, _JUDGED_AGAIN = 1.25, 16


@dataclass(frozen=True)
class Question:
    """A call that was made, and how it is made again: does it give the same?

    ``event``: what has ``key``, ``number``, ``name``, ``step`` and ``source`` of the call. ``own``: what it gave.
    ``run``: makes it once more, forward or backward. ``places``: of the arguments whose gradients ``own`` are; None in
    the forward stage.
    """

    event: Any
    call: Invocation
    own: Sequence[Any]
    run: Run
    places: Sequence[LeafPath] | None = None


@dataclass(frozen=True)
class ResultDeviation:
    """A result that differs. ``index``: which of several; ``own``: it; ``reason``: why it is not judged."""

    difference: TensorDistance
    index: int | None
    own: Any
    verdict: Verdict
    condition: float | None
    reason: str = ""


@dataclass
class _Explained:
    """Up to what the deviation of a call counts as explained, and how often that is left to be believed."""

    mean_rel: float
    bad_ratio: float
    left: int


class Checks:
    """Compares calls with second runs of them."""

    def __init__(self, framework: Framework, settings: FreeBenchmark, preheat: Preheat | None) -> None:
        self.framework = framework
        self.settings = settings
        self.preheat = preheat
        #: Is notified of each call that is run on the CPU to learn from: key, number, how many there are.
        self.on_sample: Callable[[str, int, int], None] = lambda key, number, total: None
        self.seconds = SecondRuns(framework, settings)
        self._explained: dict[tuple[str, str, int], _Explained] = {}

    def check(self, mode: PerturbationMode, question: Question) -> list[ResultDeviation]:
        """What differs in a second run in this mode. Raises NotPerturbedError if there is none."""
        key, call, own, run, places = (
            question.event.key, question.call, question.own, question.run, question.places
        )  # fmt: skip
        second = self.seconds.prepare(mode, key, call)
        if places is not None and second.exchange is not None:
            own = self._exchanged_gradients(second.exchange, own, places)
            second = replace(second, exchange=None)
        others = run(second.call, second.widened)
        if len(others) != len(own):
            raise NotPerturbedError(said("repeated-results-differ", len(own), len(others)))
        judge = Judge(self.framework, self.seconds, mode, call, second, run)
        sampled = self.preheat.sample(key) if self.preheat is not None and self.preheat.is_on else None
        golden = self._golden(key, call, run) if sampled else None
        if sampled is not None:
            self.on_sample(key, *sampled)
        deviations = []
        for index, (own_result, other) in enumerate(zip(own, others, strict=True)):
            if own_result is None or other is None:
                continue
            deviation = self._compare(judge, question.event.name, key, index, own_result, other)
            if golden is not None and self.framework.is_tensor(own_result):
                self._learn(judge, key, own_result, other, golden[index])
            if deviation is not None:
                deviations.append(deviation)
        return deviations

    def _exchanged_gradients(
        self, exchange: ElementExchange, own: Sequence[Any], places: Sequence[LeafPath]
    ) -> Sequence[Any]:
        """Where a result stays the same, the gradients of what was exchanged are exchanged."""
        if exchange.result != "same":
            raise NotPerturbedError(said("exchange-gradients-unknown"))
        if exchange.chooses:
            raise NotPerturbedError(said("gradient-of-equal-elements"))
        axes = {("args", position): axis for position, axis in exchange.places}
        gradients_exchanged = []
        for place, gradient in zip(places, own, strict=True):
            is_meant = place in axes and gradient is not None
            gradients_exchanged.append(self.framework.exchanged(gradient, axes[place]) if is_meant else gradient)
        return gradients_exchanged

    def _compare(self, judge: Judge, name: str, key: str, index: int, own: Any, other: Any) -> ResultDeviation | None:
        fw, second = self.framework, judge.second
        if not fw.is_tensor(own):
            near = equal_ratio("float32", judge.mode) - 1
            return (
                None
                if _is_same_number(own, other, near)
                else ResultDeviation(_number_distance(own, other), index, own, "risk", None)
            )
        if judge.mode == "change_value" and not fw.is_float(own):
            return None
        if second.exchange is not None:
            own = expected(fw, second.exchange, own)
            if second.exchange.result == "last":
                other = expected(fw, second.exchange, other)
        limits = self._limits(judge, key, own, other)
        if judge.mode == "to_cpu" and fw.is_float(own):
            difference = fw.compare_with_cpu(own, other, cpu_limit(fw.dtype(own)), MEAN_LIMIT)
        else:
            difference = fw.compare(own, other, limits)
        if difference.is_equal:
            return None
        condition = None
        if second.changed is not None:
            change = fw.distance(*second.changed)
            condition = fw.distance(own, other) / change if change else None
        place = (name, judge.mode, index)
        verdict, reason = EXPLAINED, ""
        if not self._was_explained(place, difference):
            verdict, reason = judge.verdict(index, own, other, limits)
        if verdict == EXPLAINED and place not in self._explained:
            self._explained[place] = _Explained(
                difference.mean_rel * _LIKE, difference.bad_ratio * _LIKE, _JUDGED_AGAIN
            )
        return ResultDeviation(difference, index, own, verdict, condition, reason)

    def _was_explained(self, place: tuple[str, str, int], difference: TensorDistance) -> bool:
        """True if as much was explained in a step before, where it did not come too long ago: judging takes as long as
        several runs.
        """
        known = self._explained.get(place)
        if known is None:
            return False
        known.left -= 1
        like = difference.mean_rel <= known.mean_rel and difference.bad_ratio <= known.bad_ratio
        if known.left and like and difference.word != "nan_mismatch":
            return True
        del self._explained[place]
        return False

    def _limits(self, judge: Judge, key: str, own: Any, other: Any) -> ErrorLimits:
        fw = self.framework
        ratio = equal_ratio(fw.dtype(own), judge.mode)
        if self.preheat is not None and fw.is_float(own):
            ratio = self.preheat.threshold(key, fw.dtype(own))
        return ErrorLimits(floor_of(fw.dtype(other), self.settings.stage == "backward"), ratio)

    # ---------------------------------------------------------------- thresholds that are learned

    def _golden(self, key: str, call: Invocation, run: Run) -> Sequence[Any]:
        return run(self.seconds.prepare("to_cpu", key, call).call, True)

    def _learn(self, judge: Judge, key: str, own: Any, other: Any, golden: Any) -> None:
        fw, preheat = self.framework, self.preheat
        if preheat is None or golden is None or not fw.is_float(own):
            return
        ratio = fw.compare(own, other, ErrorLimits(self._limits(judge, key, own, other).floor, 1.0))
        if ratio.word:
            return
        against = fw.compare_with_cpu(own, golden, cpu_limit(fw.dtype(own)), MEAN_LIMIT)
        preheat.add(key, fw.dtype(own), ratio.ratio, against.is_equal)


def results_of(framework: Framework, result: Any) -> list[Any]:
    """What is compared of a result: tensors of numbers, and floats, in order; None for the rest."""
    return [leaf if framework.is_tensor(leaf) or type(leaf) is float else None for _, leaf in leaves(result)]


def is_worth_checking(framework: Framework, results: Sequence[Any]) -> bool:
    """True if there is a float among the results."""
    return any(
        type(result) is float or (framework.is_tensor(result) and framework.is_float(result)) for result in results
    )


def _is_same_number(own: float, other: Any, near: float) -> bool:
    return (math.isnan(own) and math.isnan(other)) or math.isclose(own, other, rel_tol=near)


def _number_distance(own: float, other: float) -> TensorDistance:
    if math.isfinite(own) != math.isfinite(other):
        return TensorDistance(False, word="nan_mismatch", bad_ratio=1.0)
    if own * other <= 0:
        return TensorDistance(False, word="symbol_flipping", bad_ratio=1.0)
    ratio = max(own / other, other / own)
    return TensorDistance(False, ratio, mean_rel=ratio - 1, bad_ratio=1.0)
