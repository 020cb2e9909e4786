"""Both sides make the same call with another argument."""

from __future__ import annotations

from msprobe.diagnose.differences import described
from msprobe.diagnose.judge import Judged
from msprobe.diagnose.scene import Scene


def blame_argument(scene: Scene, judged: Judged) -> None:
    event = judged.event
    parts = [
        f"{one.slot} is {described(one.left)}, in the reference {described(one.right)}" for one in judged.arguments
    ]
    scene.say(
        ("argument", event),
        judged,
        "argument",
        f"{event.name}: {'; '.join(parts)}",
        where=f"{event.name}, {judged.arguments[0].slot}",
        clear=True,
        evidence={
            "arguments": [
                {"slot": one.slot, "candidate": described(one.left), "reference": described(one.right)}
                for one in judged.arguments
            ],
            "difference": judged.left,
            "explained": judged.allowed,
        },
    )
