"""What one framework's users write in one call and the other's in two, made the same before calls are paired.

A layer may have its activation in it (``nn.Dense(activation="relu")``) or behind it: the activation becomes a call of
its own. A matrix may be transposed by an argument of the product (``BatchMatMul(transpose_b=True)``) or by a call
before it: the call becomes the argument. Both are known by the inputs and results.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import fingerprint, is_floating, numbers, numel
from msprobe.diagnose.steps.timeline import Event, Slot, Timeline, is_tensor

_FLAGS = ("transpose_a", "transpose_b")
_SAME_SUM = 1e-5


# ---- activations in layers ----


def separate_activations(candidate: Timeline, reference: Timeline, layers: Collection[str]) -> None:
    """Take out of layers (by their keys) what one side alone does in them behind their own work."""
    sides = [
        {
            (event.key, event.parts.number): event
            for event in timeline
            if event.is_module and event.direction == "forward"
        }
        for timeline in (candidate, reference)
    ]
    for key, event in sides[0].items():
        other = sides[1].get(key)
        if key[0] not in layers or other is None or not (_is_product(event) and _is_product(other)):
            continue
        tails = _tail(event), _tail(other)
        for timeline, layer, tail, twin in zip((candidate, reference), (event, other), tails, tails[::-1], strict=True):
            if tail is not None and twin is None:
                _take_out(timeline, layer, tail)


def _is_product(layer: Event) -> bool:
    word = layer.parts.owner.lower().replace("_", "")
    return word in operators.MULTIPLIES | operators.CONVOLUTIONS or f"{word}ution" in operators.CONVOLUTIONS


def _tail(layer: Event) -> Event | None:
    """The call in a layer that makes its result of one tensor of the same size: what is applied to its own result."""
    result = _only(layer.outputs())
    mark = fingerprint(result) if result is not None else None
    if mark is None or result is None:
        return None
    event: Event | None = None
    for inner in below(layer):
        taken, given = _only(inner.inputs()), _only(inner.outputs())
        if taken is None or given is None or inner.direction != "forward" or fingerprint(given) != mark:
            continue
        # A dense layer works on rows, and its result has the shape of its argument again.
        if fingerprint(taken) != mark and numel(taken) == numel(result) and not inner.parameters():
            # A call says more than the module around it.
            event = inner if event is None or inner.is_call else event
    return event


def _only(slots: Iterable[Slot]) -> dict[str, Any] | None:
    leaves = [leaf for _, leaf in slots if is_floating(leaf)]
    return leaves[0] if len(leaves) == 1 else None


def _take_out(timeline: Timeline, layer: Event, tail: Event) -> None:
    """Make ``tail`` a call behind ``layer``, which gives what ``tail`` takes."""
    (slot, result), *others = layer.outputs()
    shape = result.get("shape")
    layer.arrange(outputs=[(slot, _shaped(_only(tail.inputs()), shape)), *others])
    tail.arrange(
        inputs=[(name, _shaped(leaf, shape)) for name, leaf in tail.inputs()],
        outputs=[(name, _shaped(leaf, shape)) for name, leaf in tail.outputs()],
    )
    back, tail_backward = timeline.backward_of(layer), timeline.backward_of(tail)
    timeline.take_out(tail, layer)
    if back is not None and tail_backward is not None and tail_backward.outputs():
        names = [name for name, _ in back.inputs()] or ["input.0"]
        back.arrange(inputs=[(names[0], _shaped(tail_backward.outputs()[0][1], shape))])
        tail_backward.arrange(
            inputs=[(name, _shaped(leaf, shape)) for name, leaf in tail_backward.inputs()],
            outputs=[(name, _shaped(leaf, shape)) for name, leaf in tail_backward.outputs()],
        )
        timeline.take_out(tail_backward, back, behind=False)


def _shaped(leaf: Any, shape: Any) -> Any:
    """A floating tensor in another shape of as many elements."""
    return {**leaf, "shape": shape} if is_floating(leaf) and leaf.get("shape") != shape else leaf


def below(event: Event) -> Iterator[Event]:
    """All that ran in the pass of a module."""
    for child in event.children:
        yield child
        yield from below(child)


# ---- transposed matrices ----


def fold_transposes(timeline: Timeline) -> None:
    """Let products take matrices as they were before a call exchanged their last two axes; an argument says so."""
    made: dict[Hashable, Event] = {}
    folded: dict[Event, None] = {}
    for event in timeline:
        if not event.is_call or event.direction != "forward":
            continue
        if operation(event.stem) in operators.MATRIX_PRODUCTS:
            folded.update(dict.fromkeys(_fold(timeline, event, made)))
        elif _exchanges_last_two(event):
            mark = _mark(event.outputs()[0][1])
            if mark is not None:
                made[mark] = event
    still_taken = {
        _mark(leaf)
        for event in timeline
        if folded and event.is_call and event.direction == "forward"
        for _, leaf in event.inputs()
        if is_tensor(leaf)
    }
    timeline.leave_out({event for event in folded if _mark(event.outputs()[0][1]) not in still_taken})


def _mark(leaf: dict[str, Any]) -> Hashable | None:
    """The values of a tensor and how they lie in it: of a square matrix, shapes do not say which way round it is."""
    mark = fingerprint(leaf)
    return None if mark is None else (mark, str(leaf.get("shape")), str(leaf.get("stride")))


def _fold(timeline: Timeline, product: Event, made: dict[Hashable, Event]) -> list[Event]:
    tensors = [slot for slot in product.inputs() if is_tensor(slot[1])]
    flags = _transposed(product, timeline)
    makers: list[Event] = []
    for place, (slot, leaf) in enumerate(tensors[:2]):
        mark = _mark(leaf)
        maker = made.get(mark) if mark is not None else None
        if maker is None:
            continue
        makers.append(maker)
        tensors[place] = slot, next(given for _, given in maker.inputs() if is_tensor(given))
        if flags is not None:
            flags[place] = not flags[place]
        _exchange_gradient(timeline, product, leaf)
    named = [] if flags is None else zip(_FLAGS, flags, strict=True)
    product.arrange(inputs=[*tensors, *((f"input.{name}", {"type": "bool", "value": flag}) for name, flag in named)])
    return makers


def _transposed(product: Event, timeline: Timeline) -> list[bool] | None:
    """Which of the two a product transposes itself; None where the recorder did not say."""
    attributes = product.record.get("attributes")
    if isinstance(attributes, dict):
        given = [attributes.get(name) for name in _FLAGS]
        return [isinstance(argument, dict) and argument.get("value") is True for argument in given]
    if product.parts.owner == "Primitive":
        return None
    # The weight of a linear function stands as (out, in).
    return [False, operation(product.parts.stem) == "linear"]


def _exchange_gradient(timeline: Timeline, product: Event, leaf: dict[str, Any]) -> None:
    """The gradient of a transposed matrix, as that of the matrix itself."""
    back = timeline.backward_of(product)
    if back is None:
        return
    slots = back.outputs()
    for place, (slot, leaf_given) in enumerate(slots):
        if is_tensor(leaf_given) and leaf_given.get("shape") == leaf.get("shape"):
            shape = list(leaf_given["shape"])
            slots[place] = slot, {**leaf_given, "shape": [*shape[:-2], shape[-1], shape[-2]]}
            back.arrange(outputs=list(slots))
            return


def _exchanges_last_two(event: Event) -> bool:
    """True for a call that gives its one tensor with the last two axes exchanged."""
    taken = [leaf for _, leaf in event.inputs() if is_tensor(leaf)]
    given = [leaf for _, leaf in event.outputs() if is_tensor(leaf)]
    if len(taken) != 1 or len(given) != 1 or not _same_elements(taken[0], given[0]):
        return False
    shape, result = taken[0].get("shape"), given[0].get("shape")
    if not isinstance(shape, list) or not isinstance(result, list) or len(shape) < 2:
        return False
    if result != [*shape[:-2], shape[-1], shape[-2]]:
        return False
    return operation(event.stem) in operators.TRANSPOSES and (
        shape[-1] != shape[-2] or _names_last_two(event, len(shape))
    )


def _same_elements(taken: dict[str, Any], given: dict[str, Any]) -> bool:
    """True if two tensors may hold the same elements: sums are added up in the order in which these lie."""
    ours, other = numbers(taken), numbers(given)
    if ours is None or other is None:
        return False
    size = max(map(abs, ours))
    return ours[:2] == other[:2] and all(abs(x - y) <= _SAME_SUM * size for x, y in zip(ours, other, strict=True))


def _names_last_two(event: Event, axes: int) -> bool:
    """True if the arguments of a call say that it exchanges the last two axes, where shapes do not say."""
    given = event.record.get("input_args")
    values = [leaf.get("value") for leaf in _leaves(given) if isinstance(leaf, dict)]
    places = [value % axes for value in values if type(value) is int]
    if len(places) == 2:
        return set(places) == {axes - 1, axes - 2}
    return not places or places == [*range(axes - 2), axes - 1, axes - 2]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
