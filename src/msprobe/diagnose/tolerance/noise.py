"""How far the results of one call may be apart when nothing is wrong: a model of rounding.

A call adds rounding noise of its own, in units of the coarsest floating-point type among its tensors: none for
calls that only move values, a few units for elementwise ones, growing with the square root of the number of
terms for sums (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 4.2: the statistical bound).
What its inputs differ by is handed on, times the amplification of the call: cancellation where the result is
small beside the inputs, the size of the input where it stands in an exponent or an angle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.compare.number_types import EPSILON, epsilon_of
from msprobe.diagnose.differences.records import is_floating, numbers, numel, rms
from msprobe.diagnose.steps.timeline import Event, Slot, is_tensor

#: A result this many times further off than the model expects is not rounding.
SAFETY = 16.0
#: The same for a result of inputs that agree: nothing but the call's own rounding makes it differ.
SAFETY_OF_OWN = 4.0

#: Gradients this many times smaller than the largest count for that much less: a gradient that is zero in exact
#: arithmetic (of the bias of keys in attention) is nothing but rounding.
SMALL_GRADIENT = 1e-3

#: A module hands on a difference up to so many times larger: SAFETY times the amplification of one.
HANDED_ON = 64.0

#: Calls that move values and compute nothing.
MOVES = frozenset(
    """
    reshape transpose permute expand expand_as squeeze unsqueeze flatten unflatten movedim moveaxis narrow select slice
    getitem setitem split chunk tensor_split unbind cat stack hstack vstack dstack repeat repeat_interleave tile
    roll flip
    contiguous clone detach detach_ copy index_select gather take take_along_dim masked_select masked_fill where
    embedding pad triu tril diag diagonal as_strided unfold view_as_real view_as_complex real imag resolve_conj
    zeros ones empty full zeros_like ones_like full_like empty_like new_zeros new_ones new_full new_empty arange
    one_hot max_pool1d max_pool2d relu abs neg sign clamp maximum minimum max min amax amin topk sort argsort argmax
    argmin eq ne lt le gt ge logical_and logical_or logical_not isnan isfinite isinf bitwise_and bitwise_or
    pixel_shuffle broadcast broadcast_to scatter index_copy index_put index_fill fill zero T mT H item tolist
    """.split()
)
#: Calls that choose elements by their size, and tell which.
CHOOSES = frozenset("topk sort argsort argmax argmin max min multinomial".split())
#: Calls that change the type of their input and nothing else.
CASTS = frozenset("to type bfloat16 half float double type_as".split())
#: Calls that may differ between two healthy programs and change nothing.
IDLE = frozenset("detach clone contiguous to item numpy cpu cuda tolist zeros ones empty".split())
#: Calls that work on each element by itself: what they make has the same elements in the same order.
UNARY = frozenset("cos sin exp log sqrt rsqrt tanh sigmoid square reciprocal float to bfloat16 half pow outer".split())
#: Calls that compute each element by itself: the same input gives the same bits.
ELEMENTWISE = UNARY | CASTS | frozenset("add sub mul div neg gelu silu where masked_fill lerp addcmul addcdiv".split())
#: Calls whose result follows the absolute size of their input: a relative error of x becomes |x| times that.
EXPONENTIAL = frozenset(
    """
    exp expm1 exp2 softmax log_softmax softmin sigmoid tanh sin cos tan logsumexp cross_entropy nll_loss silu gelu
    softplus logsigmoid binary_cross_entropy binary_cross_entropy_with_logits kl_div scaled_dot_product_attention
    multi_head_attention_forward pow sinh cosh erf mish selu elu
    """.split()
)
#: Of these the slope is bounded, by little more than 1: their result is as far off as their input, in absolute numbers.
_BOUNDED = frozenset("gelu silu tanh sigmoid erf softplus logsigmoid elu selu mish sin cos relu6 leaky_relu".split())
_SLOPE = 1.2
_DIFFERENCES = frozenset("add sub rsub addcmul addcdiv lerp mse_loss l1_loss cumsum diff".split())
#: A quotient is as far apart as its divisor, and that may be next to nothing in some elements.
_QUOTIENTS = frozenset("div addcdiv reciprocal rsqrt sqrt".split())
_OF_QUOTIENTS = 1024.0
#: Calls that autocast lets compute in half types though they take and give single precision.
RECURRENT = frozenset("lstm gru rnn rnn_tanh rnn_relu".split())
CENTRING = frozenset("layer_norm batch_norm group_norm instance_norm var std var_mean std_mean normalize".split())


def eps_of(leaf: Any) -> float:
    """The distance of 1 to the next number of a tensor's type; 0 for whole numbers."""
    return epsilon_of(str(leaf["dtype"]))


def unit(*sides: Sequence[Slot]) -> float:
    """The rounding unit of the coarsest floating-point type among all these values."""
    coarsest = 0.0
    for side in sides:
        for _, leaf in side:
            if is_tensor(leaf):
                coarsest = max(coarsest, eps_of(leaf))
    return coarsest


def common_unit(events: Iterable[Event]) -> float:
    """The rounding unit of the coarsest type that many of these calls give their results in."""
    counts: dict[float, int] = {}
    for event in events:
        if event.direction == "forward" and event.is_call and (found := unit(event.outputs())):
            counts[found] = counts.get(found, 0) + 1
    total = sum(counts.values())
    return max((found for found, count in counts.items() if count >= 0.1 * total), default=0.0)


def own_noise(
    event: Event,
    inputs: Sequence[Slot],
    outputs: Sequence[Slot],
    rounding: float,
    factor: float = 1.0,
    crossing: bool = False,
) -> float:
    """The relative rounding error a call may add itself. ``rounding``: see :func:`unit`; ``factor``: its amplification,
    which enlarges the errors inside the call, not that of the result itself. ``crossing``: between two frameworks,
    whose kernels need not keep the sums of half types in single precision, nor give the same bits for anything.
    """
    # Sums of half types are kept in single precision.
    sums = rounding if crossing else min(rounding, EPSILON["float32"])
    if crossing and event.is_call and operation(event.stem) in ELEMENTWISE | MOVES:
        return rounding * 2.0 + factor * rounding / 4
    if event.direction in ("forward", "recompute", "optimizer") and event.is_call:
        word = operation(event.stem)
        if word in MOVES:
            return 0.0
        return rounding * 2.0 + factor * sums * math.sqrt(_terms(inputs, outputs)) / 4
    depth = 1 + len(event.children)
    return factor * (rounding * 4.0 + sums * math.sqrt(_terms(inputs, outputs)) / 2) * math.sqrt(depth)


def _terms(inputs: Sequence[Slot], outputs: Sequence[Slot]) -> float:
    """How many terms a sum inside the call may have."""
    tensors = [leaf for _, leaf in inputs if is_tensor(leaf)]
    results = [leaf for _, leaf in outputs if is_tensor(leaf)]
    if not tensors or not results:
        return 1.0
    largest = max(numel(leaf) for leaf in tensors)
    smallest = max(1, min(numel(leaf) for leaf in results))
    widest = max((n for leaf in tensors for n in leaf.get("shape") or [1] if isinstance(n, int)), default=1)
    return float(min(max(largest / smallest, widest), 1e8))


def amplification(event: Event, inputs: Sequence[Slot], outputs: Sequence[Slot], crossing: bool = False) -> float:
    """How many times larger a relative error may be in the results than in the inputs. ``crossing``: between two
    frameworks all inputs are apart by rounding, so that it must not be taken for larger than it is.
    """
    tensors = [leaf for _, leaf in inputs if is_floating(leaf)]
    results = [leaf for _, leaf in outputs if is_floating(leaf)]
    if not tensors or not results:
        return 1.0
    word = operation(event.stem)
    if crossing and word in _BOUNDED and event.is_call and event.direction != "backward":
        size = min(rms(leaf) for leaf in results)
        return max(1.0, min(_SLOPE * max(rms(leaf) for leaf in tensors) / size, 1e4)) if size > 0 else 1.0
    factor = 1.0
    if event.direction == "backward" or not event.is_call:
        # Which calls run inside a module, or in a backward node, is not followed here.
        factor = 4.0
    if word in EXPONENTIAL or not event.is_call:
        factor = max(factor, min(max((_largest(leaf) for leaf in tensors), default=1.0), 64.0))
    if word in _QUOTIENTS and event.direction == "optimizer":
        factor = max(factor, _OF_QUOTIENTS)
    if word in CENTRING:
        factor = max(factor, max(_centring(leaf) for leaf in tensors[:1]))
    size = min(rms(leaf) for leaf in results)
    typical = max(rms(leaf) for leaf in tensors)
    if size > 0 and typical > 0 and (word in _DIFFERENCES or event.direction == "backward"):
        factor = max(factor, min(typical / size, 1e4))
    elif size > 0 and word in ("sum", "mean"):
        terms = max(1, numel(tensors[0])) / max(1, numel(results[0]))
        expected = typical * math.sqrt(terms) / (terms if word == "mean" else 1.0)
        factor = max(factor, min(expected / size, 1e4))
    elif size > 0 and word in ("matmul", "linear", "einsum", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d"):
        factor = max(factor, min(_product(tensors) / size, 1e4))
    return factor


def _product(tensors: Sequence[dict[str, Any]]) -> float:
    """The size that a product of two tensors has when their elements are unrelated."""
    if len(tensors) < 2:
        return 0.0
    shape = tensors[0].get("shape") or [1]
    terms = shape[-1] if shape and isinstance(shape[-1], int) else 1
    return rms(tensors[0]) * rms(tensors[1]) * math.sqrt(terms)


def _largest(leaf: dict[str, Any]) -> float:
    found = numbers(leaf)
    if found is None:
        return 1.0
    sizes = [abs(v) for v in found[:2] if math.isfinite(v)]
    return max([1.0, *sizes])


def _centring(leaf: dict[str, Any]) -> float:
    """How much larger the elements are than their deviation from the mean."""
    found = numbers(leaf)
    size = rms(leaf)
    if found is None or not size:
        return 1.0
    variance = size * size - found[2] * found[2]
    return min(size / math.sqrt(variance), 1e4) if variance > 0 else 1e4
