"""Calls that one side alone makes, and a tensor that differs by them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.compare.entry_names import operation, writes_in_place
from msprobe.diagnose import noise
from msprobe.diagnose.differences import Difference, not_finite
from msprobe.diagnose.findings import Kind
from msprobe.diagnose.judge import Judged
from msprobe.diagnose.scene import Scene
from msprobe.diagnose.timeline import Event, is_tensor
from msprobe.diagnose.words import measure, named, ratio_in_words


def blame_calls(
    scene: Scene, judged: Judged, difference: Difference, alone: Sequence[Event], missing: Sequence[Event]
) -> None:
    """Calls of one side alone made a tensor that differs."""
    # Of a gradient that comes back through them, more than moving is to blame.
    moves = judged.event.direction != "backward" and all(
        operation(one.stem) in noise.MOVES for one in [*alone, *missing]
    )
    unit = max((noise.eps_of(leaf) for leaf in (difference.left, difference.right) if is_tensor(leaf)), default=0.0)
    clear = difference.delta > noise.SAFETY * 4 * unit or moves or math.isinf(difference.delta)
    entry = alone[0] if alone else missing[0]
    for quiet in (noise.MOVES | noise.IDLE, noise.IDLE):
        telling = [one for one in alone if operation(one.stem) not in quiet]
        if telling:
            entry = telling[0]
            break
    kind: Kind = "structure"
    born = next((one for one in alone if _bears_not_finite(one)), None)
    if born is not None and not any(_bears_not_finite(one) for one in missing):
        entry, kind = born, "overflow"
    elif alone and not missing and all(operation(one.stem) in noise.CASTS for one in alone):
        kind = "dtype"
    elif alone and not missing and writes_in_place(alone[-1].stem):
        entry, kind = alone[-1], "mutation"
    scaled = (
        "backward" in scene.seen
        and scene.is_gradient(difference)
        and bool(ratio_in_words(difference.left, difference.right))
    )
    if scaled:
        kind = "loss_scale"
    here, there = named(alone), named(missing)
    if alone and missing:
        text = f"the candidate calls {here} where the reference calls {there}"
    elif alone:
        text = f"the candidate alone calls {here}"
    else:
        text = f"the reference calls {there}, the candidate does not"
    scene.say(
        ("calls", entry),
        judged,
        kind,
        f"{text}; {difference.slot} of {judged.event.name} differs by it{scene.how(difference)}",
        where=f"{entry.name}",
        clear=clear,
        evidence={
            "candidate_alone": [one.name for one in alone],
            "reference_alone": [one.name for one in missing],
            **measure(difference),
        },
        entry=entry,
        place=(alone[0].index if alone else judged.event.index) - 0.5,
        # Clipping hides a factor, as long as it clips.
        matters=scaled,
    )


def _bears_not_finite(event: Event) -> bool:

    return any(not_finite(leaf) for _, leaf in event.outputs()) and not any(
        not_finite(leaf) for _, leaf in event.inputs()
    )
