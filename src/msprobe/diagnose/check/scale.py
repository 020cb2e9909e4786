"""A loss that is multiplied before the backward pass, and gradients that are not divided again."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import measured, tensors
from msprobe.diagnose.differences.records import fingerprint
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.timeline import Event, is_tensor
from msprobe.diagnose.tolerance.check_limits import is_left_scaled, undoes
from msprobe.messages import said

#: Smaller powers of two are numbers of ranks or of micro-batches, as a rule.
_LEAST = 32.0


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The multiplication of the loss by a power of two that nothing undoes before the optimizer."""
    steps = moment.optimizer_steps
    if not steps or any("grad_scaler" in event.record for event in steps):
        return
    scaled = _scaled_loss(moment)
    if scaled is None:
        return
    event, scale = scaled
    factors = _unscaled(moment, event, scale)
    if factors is None:
        return
    rest = scale * factors[1] if factors else scale
    if factors and not is_left_scaled(rest):
        return
    ratio = _ratio(moment)
    if not factors and ratio is not None and undoes(ratio, scale):
        return  # Undone where no call was recorded.
    if factors:
        message = said("loss-scale-left", scale, factors[1], factors[0].name, rest)
    else:
        message = said("loss-scale-not-undone", scale) + (
            " again" if ratio is None or undoes(ratio) else "; what clips them hides it"
        )
    yield moment.finding(
        event,
        "loss_scale",
        message,
        evidence={
            "scale": scale,
            "left": rest,
            "optimizer_over_backward": ratio,
            "loss": measured(tensors(event.outputs())[0]),
        },
        alternatives=(steps[0].name,),
    )


def _scaled_loss(moment: CheckedStep) -> tuple[Event, float] | None:
    """The multiplication by a power of two at which a backward pass begins."""
    trained = [(event, later) for event in moment.calls if (later := moment.timeline.backward_of(event)) is not None]
    for event, later in trained:
        results = tensors(event.outputs())
        if operation(event.stem) != "mul" or len(results) != 1 or results[0].get("shape") not in ([], [1]):
            continue
        arrived = tensors(later.inputs())
        if not arrived or arrived[0].get("Max") != 1.0 or arrived[0].get("Min") != 1.0:
            continue
        taken = (leaf for call, _ in trained if call.index > event.index for leaf in tensors(call.inputs()))
        if any(fingerprint(results[0]) == fingerprint(leaf) for leaf in taken):
            continue
        scale = _scalar(event)
        if scale is not None and scale >= _LEAST and math.log2(scale).is_integer() and scale != moment.world:
            return event, scale
    return None


def _scalar(event: Event) -> float | None:
    """The number that a tensor is multiplied by."""
    numbers = []
    given = event.inputs()
    for place, (_, leaf) in enumerate(given):
        if isinstance(leaf, dict) and not is_tensor(leaf) and isinstance(leaf.get("value"), (int, float)):
            numbers.append(float(leaf["value"]))
        elif place and is_tensor(leaf) and leaf.get("shape") in ([], [1]) and not leaf.get("requires_grad"):
            value = leaf.get("Max")
            if isinstance(value, (int, float)):
                numbers.append(float(value))
    return numbers[0] if len(numbers) == 1 and math.isfinite(numbers[0]) else None


def _unscaled(moment: CheckedStep, loss: Event, scale: float) -> tuple[Event, float] | tuple[()] | None:
    """The call that scales gradients, and its factor; () if there is none; None if that cannot be known."""
    timeline = moment.timeline
    backward = timeline.backward_of(loss)
    first = backward.index if backward is not None else loss.index
    # Without modules (level L1) gradients are reported by the optimizer alone.
    gradients = [leaf for event in timeline if event.direction == "gradient" for leaf in tensors(event.outputs())]
    gradients.extend(moment.at_optimizer.values())
    shapes = {str(leaf.get("shape")) for leaf in gradients}
    unscaled: tuple[Event, float] | tuple[()] = ()
    for event in timeline.events[first:]:
        if event.parts.kind != "api" or event.direction not in ("forward", "optimizer"):
            continue
        word = operation(event.stem)
        if "unscale" in word:
            return None
        if event.direction == "optimizer" or word.removeprefix("_foreach_") not in operators.FACTORS:
            continue
        number = _scalar(event)
        results = tensors(event.outputs())
        if not number or not results or results[0].get("requires_grad") or str(results[0].get("shape")) not in shapes:
            continue
        factor = 1.0 / number if word.removeprefix("_foreach_") == "div" else number
        if undoes(factor, scale):
            return event, factor
        if 1.0 / scale < factor < 1.0 and not unscaled and math.log2(factor).is_integer():
            unscaled = event, factor
    return unscaled


def _ratio(moment: CheckedStep) -> float | None:
    """How large gradients are at the optimizer beside what one backward pass made; None with several passes."""
    ratios = []
    arrived = moment.at_optimizer
    for name, passes in moment.gradients.items():
        only = passes[0] if len(passes) == 1 else None
        other = arrived.get(name)
        if only is not None and other is not None and only.get("Norm") and other.get("Norm"):
            ratios.append(float(other["Norm"]) / float(only["Norm"]))
    ratios.sort()
    return ratios[len(ratios) // 2] if ratios else None
