"""An alert: what was seen in which tensor at which step; its place in the files and in the order of a training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msprobe.messages.as_data import kept, packed

# When in a step a kind comes about: forward pass, backward pass, optimizer, what is not known.
FORWARD, BACKWARD, OPTIMIZER, UNKNOWN = range(4)
_STAGES = {
    "actv": FORWARD,
    "loss": FORWARD,
    "skipped_steps": OPTIMIZER,
    "attention_hook": FORWARD,
    "moe_router_logit_hook": FORWARD,
    "actv_grad": BACKWARD,
    "acc_grad": BACKWARD,
    "pre_grad": BACKWARD,
    "post_grad": BACKWARD,
    "grad_norm": BACKWARD,
    "param_origin": OPTIMIZER,
    "exp_avg": OPTIMIZER,
    "exp_avg_sq": OPTIMIZER,
    "mg_direction": OPTIMIZER,
    "update": OPTIMIZER,
    "param_updated": OPTIMIZER,
    "state": OPTIMIZER,
    "lr": OPTIMIZER,
    "linear_hook": OPTIMIZER,
    "moe_router_weight_hook": OPTIMIZER,
}
_TAG = re.compile(r"(?P<stage>\d+):(?P<name>.*?)(?::(?P<micro>\d+))?/rank(?P<rank>\d+)/(?P<kind>[^/]*)", re.DOTALL)
_AFTER_ALL_MICRO_STEPS = 1 << 60


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule has fired. ``tag``: ``{chunk}:{name}[:{micro step}]/rank{r}/{kind}``. ``call_id``: the place of the tensor
    in its step. ``pipeline_stage``, ``group_mates``: of the rank in its pipeline group. ``value``: what was seen.
    """

    rank: int
    step: int
    micro_step: int
    pipeline_stage: int
    stage: int
    call_id: int
    tag: str
    op: str
    rule: str
    value: float | None
    message: str
    group_mates: tuple[int, ...]
    #: For people: the tensor by the name of its csv file. ``message`` is that of 8.1.1.
    text: str = ""
    #: What the value may be, in words; empty if the rule has no such thing.
    limit: str = ""
    #: The quantity and the tensor, as files call them.
    what: str = ""

    @property
    def key(self) -> str:
        """Its name in ``anomaly.json``: that of 8.1.1, which all statistics of a tensor share, and the statistic."""
        return f"{self.tag}_step_{self.step}_call_{self.call_id}_{self.op}"

    def record(self) -> dict[str, Any]:
        """As it stands in ``anomaly.json``: the fields of 8.1.1 and no other, which its reader would not take."""
        return {
            "rank": self.rank,
            "step": self.step,
            "micro_step": self.micro_step,
            "pp_stage": self.pipeline_stage,
            "vpp_stage": self.stage,
            "call_id": self.call_id,
            "tag_name": self.tag,
            "message": self.message,
            "group_mates": list(self.group_mates),
        }

    def details(self) -> dict[str, Any]:
        """What ``anomaly.json`` has in words only, as it stands in the file beside it."""
        return {
            "rule": self.rule,
            "op": self.op,
            "text": str(self.text),
            "said": packed(self.text),
            "limit": str(self.limit),
            "what": self.what,
            # JSON knows neither NaN nor infinity.
            "value": str(self.value) if self.value is not None and not _is_finite(self.value) else self.value,
        }


def text_of_record(record: Mapping[str, Any]) -> str:
    """The text of an alert that a file has, which can be said in any language where it was written by this version."""
    return kept(record.get("said"), "") or str(record.get("text") or record.get("message", ""))


def parse_tag(tag: str) -> tuple[str, int | None, str]:
    """Name, micro step and kind of a tag; the tag itself as the name if it is none."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return tag, None, ""
    return match["name"], None if match["micro"] is None else int(match["micro"]), match["kind"]


def place_in_training(record: Mapping[str, Any]) -> tuple[int, int, int, int, int, int]:
    """For sorting records of ``anomaly.json`` by when they came about: step, micro step, stage of the step, chunk and
    pipeline stage (from the first in the forward pass, from the last after it), call. Records of 8.1.1 say micro step
    0 always; their tags know it.
    """
    match = _TAG.fullmatch(str(record.get("tag_name", "")))
    kind = match["kind"] if match else ""
    stage = _STAGES.get(kind, UNKNOWN)
    has_micro_step = match is not None and match["micro"] is not None
    micro = int(match["micro"]) if match is not None and has_micro_step else _AFTER_ALL_MICRO_STEPS
    direction = 1 if stage == FORWARD else -1
    return (
        _number(record, "step"),
        micro,
        stage,
        direction * _number(record, "vpp_stage"),
        direction * _number(record, "pp_stage"),
        _number(record, "call_id"),
    )


def _number(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name, 0)
    return int(value) if isinstance(value, (int, float)) and _is_finite(value) else 0


def _is_finite(value: float) -> bool:
    return value - value == 0
