"""Keys and values are written to their cache, or read from it, one position away from where the reference does."""

from __future__ import annotations

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.differences.records import Difference, is_floating
from msprobe.diagnose.evidence import Because, OtherArguments, ResultFact
from msprobe.diagnose.origin.argument import matters
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.argument_names import argument_name, argument_word
from msprobe.diagnose.steps.timeline import Event
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said


def blame_cache_position(scene: Scene, judged: Judged) -> bool:
    """Say that the cache is off by one position, if that is what the arguments of a call show; whether it is.

    Keys and values have a cache each: two calls of one module do the same with two tensors of one shape, in the same
    way off by one.
    """
    event = judged.event
    if event.stem != judged.partner.stem or not judged.arguments or shifted_by(judged.arguments) is None:
        return False
    if not (_is_one_of_two(scene, judged) or _makes_indices(scene, event)):
        return False
    first = judged.arguments[0]
    scene.say(
        ("argument", event),
        judged,
        "argument",
        said("cache-off-by-one", event.name, argument_name(event, first.slot), *first.in_words),
        where=f"{event.name}, {argument_name(event, first.slot)}",
        matters=matters(scene, judged),
        facts=(
            Because("cache_position"),
            OtherArguments(
                tuple(judged.arguments), tuple(argument_word(event, argument.slot) for argument in judged.arguments)
            ),
            ResultFact(judged.output_difference, judged.allowed),
        ),
    )
    return True


def shifted_by(arguments: list[Difference]) -> int | None:
    """1 or -1, if all arguments that differ are positions that are so much larger than in the reference; else None."""
    shifts = {shift for argument in arguments for shift in _shifts(argument.left, argument.right)}
    return shifts.pop() if shifts in ({1}, {-1}) else None


def _shifts(ours: object, theirs: object) -> set[int | None]:
    """By how much each number of a position, or of a slice, is larger; ends of slices that are equal do not count."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.get("type") == theirs.get("type"):
        ours, theirs = ours.get("value"), theirs.get("value")
    if type(ours) is int and type(theirs) is int:
        return {ours - theirs}
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) == 3:
        return {
            mine - other if type(mine) is int and type(other) is int else None
            for mine, other in zip(ours, theirs, strict=True)
            if mine != other
        }
    return {None}


def _is_one_of_two(scene: Scene, judged: Judged) -> bool:
    """True if a second call of the same module does the same, off by as much, with a different tensor of the shape."""
    event, cache = judged.event, _cache(judged.event)
    if operation(event.stem) not in operators.AT_POSITIONS or cache is None or event.parent is None:
        return False
    shift = shifted_by(judged.arguments)
    for other in event.parent.children:
        twin = scene.judged.get(other)
        if other is event or twin is None or other.stem != event.stem or not twin.arguments:
            continue
        second = _cache(other)
        if second is not None and second.get("shape") == cache.get("shape") and shifted_by(twin.arguments) == shift:
            return True
    return False


def _makes_indices(scene: Scene, event: Event) -> bool:
    """True if two writes of one module to tensors of one shape take the indices that a call makes."""
    if operation(event.stem) not in operators.COUNTS or event.parent is None:
        return False
    writes = [
        cache
        for other in event.parent.children
        if other.index > event.index
        and operation(other.stem) in operators.AT_INDICES
        and any(scene.candidate.makers.of(leaf, other) is event for _, leaf in other.inputs())
        and (cache := _cache(other)) is not None
    ]
    return len(writes) > 1 and len({str(cache.get("shape")) for cache in writes}) == 1


def _cache(event: Event) -> dict[str, object] | None:
    """The tensor of numbers that a call writes to, or reads from: one of three dimensions at least."""
    slots = dict(event.inputs())
    leaf = slots.get("input.0", slots.get("input.input"))
    if not isinstance(leaf, dict) or not is_floating(leaf):
        return None
    shape = leaf.get("shape")
    return leaf if isinstance(shape, list) and len(shape) > 2 else None
