"""The one sentence that ``analyse`` begins with: rank, step, loss, first bad tensor, value, limit, next command."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msprobe.messages import said
from msprobe.monitor.alerts.alert import Alert, parse_tag
from msprobe.monitor.alerts.analysis import first_alerts
from msprobe.monitor.alerts.reading import AlertsRead
from msprobe.monitor.alerts.sentence import sentence
from msprobe.monitor.record_steps import DUMP
from msprobe.monitor.tags import quantity_of_kind


def headline(alerts: AlertsRead, steps: Collection[int] = ()) -> str:
    """Of the earliest step that has alerts, on the rank whose alert came first. There must be one."""
    records = list(first_alerts(alerts.records, len(alerts.records), steps).values())
    first = records[0]
    same = [
        record
        for record in records
        if record.get("step") == first.get("step") and record.get("rank") == first.get("rank")
    ]
    return sentence([_alert_of(record) for record in same], _next_command(alerts))


def _next_command(alerts: AlertsRead) -> str:
    """What to call with what the monitor has recorded, or how to record it."""
    for folder in alerts.folders:
        if Path(folder.path, DUMP).is_dir():
            return f"msprobe check {shlex.quote(str(Path(folder.path, DUMP)))}"
    return said("alert-record-this-step")


def _alert_of(record: Mapping[str, Any]) -> Alert:
    name, micro, kind = parse_tag(str(record.get("tag_name", "")))
    quantity = quantity_of_kind(kind)
    what = str(record.get("what") or (quantity if quantity == name else f"{quantity} {name}"))
    value = record.get("value")
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = None
    return Alert(
        rank=_whole(record.get("rank")),
        step=_whole(record.get("step")),
        micro_step=micro or 0,
        pipeline_stage=_whole(record.get("pp_stage")),
        stage=_whole(record.get("vpp_stage")),
        call_id=_whole(record.get("call_id")),
        tag=str(record.get("tag_name", "")),
        op=str(record.get("op", "number")),
        rule=str(record.get("rule", "")),
        value=number,
        message=str(record.get("message", "")),
        group_mates=(),
        limit=str(record.get("limit", "")),
        what=what,
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
