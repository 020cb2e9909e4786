"""Two tensors that one side broadcasts against each other, so that every element of one meets all of the other: a loss
of shapes (batch, 1) and (batch), where the other side has one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from msprobe.compare.entry_names import operation
from msprobe.diagnose import operators
from msprobe.diagnose.evidence import Setting
from msprobe.diagnose.origin.scene import Scene
from msprobe.diagnose.steps.timeline import Slot, is_tensor
from msprobe.diagnose.tolerance.judge import Judged
from msprobe.messages import said

Shape = tuple[int, ...]


def look_at_broadcast(scene: Scene, judged: Judged) -> None:
    """Suspect a call that broadcasts on one side alone."""
    event = judged.event
    if scene.comparer.crossing or not event.is_call or event.direction != "forward":
        return
    if operation(event.stem) not in operators.BROADCASTS or event.stem != judged.partner.stem:
        return
    mine, theirs = _shapes(event.inputs()), _shapes(judged.partner.inputs())
    if mine == theirs or _is_outer(mine) == _is_outer(theirs):
        return
    scene.say(
        ("broadcast", event),
        judged,
        "argument",
        said("broadcasts", event.name, shapes_in_words(judged), "candidate" if _is_outer(mine) else "reference"),
        facts=(Setting([list(shape) for shape in mine], [list(shape) for shape in theirs]),),
        matters=True,
    )


def shapes_in_words(judged: Judged) -> str:
    """The shapes of the first two tensors that a call takes, on both sides."""
    mine, theirs = (_in_words(_shapes(side.inputs())) for side in (judged.event, judged.partner))
    return said("tensors-of-shapes", mine, theirs)


def _shapes(slots: Sequence[Slot]) -> list[Shape]:
    return [tuple(leaf["shape"]) for _, leaf in slots if is_tensor(leaf) and isinstance(leaf.get("shape"), list)]


def _is_outer(shapes: Sequence[Shape]) -> bool:
    """True if what two shapes are broadcast to is larger than both."""
    if len(shapes) < 2:
        return False
    ours, other = shapes[:2]
    sizes = list(zip_longest(reversed(ours), reversed(other), fillvalue=1))
    return any(a > b for a, b in sizes) and any(b > a for a, b in sizes)


def _in_words(shapes: Sequence[Shape]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes[:2])
