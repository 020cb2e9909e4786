"""What a dump lets the checks see: those without what they look at say so, instead of finding nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from msprobe.diagnose.steps.timeline import Timeline, is_tensor
from msprobe.messages import Wording, said

if TYPE_CHECKING:
    from msprobe.diagnose.check.registry import Check

Need = Literal["statistics", "calls", "modules", "backward", "optimizer", "values", "ranks"]
NEEDS: tuple[Need, ...] = get_args(Need)
_WITHOUT: dict[Need, str] = {
    "statistics": "no statistics",
    "calls": "no single calls",
    "modules": "no modules",
    "backward": "no backward pass",
    "optimizer": "no step of an optimizer",
    "values": "no whole tensors",
    "ranks": "one rank only",
}
#: What records of a kind let checks see.
_OF_KIND: dict[str, Need] = {"api": "calls", "module": "modules", "optimizer": "optimizer"}
_LEVEL_OF: dict[Need, str] = {"calls": "L0", "modules": "L1"}


@dataclass
class Sight:
    """``seen``: what was there in some step; ``levels``: the levels that the headers name."""

    seen: set[Need] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)

    def add(self, timeline: Timeline) -> None:
        """Look at a step of a rank."""
        self.levels.add(str(timeline.part.header.get("level")))
        if timeline.part.header.get("dump_data_dir"):
            self.seen.add("values")
        for event in timeline:
            if (need := _OF_KIND.get(event.parts.kind)) is not None:
                self.seen.add(need)
            if event.direction == "backward":
                self.seen.add("backward")
            if "statistics" not in self.seen and any(is_tensor(leaf) and "Max" in leaf for _, leaf in event.outputs()):
                self.seen.add("statistics")

    def merge(self, other: Sight) -> None:
        """Take in what was seen elsewhere."""
        self.seen |= other.seen
        self.levels |= other.levels

    def blind(self, checks: Sequence[Check]) -> dict[str, str]:
        """The checks that had nothing to look at, and what they lacked first."""
        reasons: dict[str, str] = {}
        for check in checks:
            lacking = [need for need in check.needs if need not in self.seen]
            if lacking:
                need = lacking[0]
                level = _LEVEL_OF.get(need)
                level_text = said("level", level) if level is not None and level in self.levels else ""
                reasons[check.name] = Wording("{}{}", _WITHOUT[need], level_text)
        return reasons
