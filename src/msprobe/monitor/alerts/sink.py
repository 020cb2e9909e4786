"""Alerts as a sink: rules look at each step when it is written; what they find goes to the log, ``anomaly.json`` and
callbacks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.foreign.json_text import read_json
from msprobe.messages import joined, said
from msprobe.monitor.alerts.alert import Alert
from msprobe.monitor.alerts.attempts import Attempt, judged_attempt, unfinished
from msprobe.monitor.alerts.cells import QuantityBlock, Step, ValueHistory
from msprobe.monitor.alerts.journal import AlertJournal
from msprobe.monitor.alerts.rules import RuleAlert
from msprobe.monitor.alerts.sentence import analyse_command, second_run, sentence, shown
from msprobe.monitor.alerts.settings import AlertSettings
from msprobe.monitor.csv_text import SCALARS
from msprobe.monitor.measurements import MonitorRun, StepMetrics
from msprobe.monitor.series import label_of
from msprobe.monitor.tags import tag_of
from msprobe.paths import make_folder, write_atomically

FOLDER = "anomaly_detected"
FILE = "anomaly.json"
DETAILS_FILE = "anomaly_details.json"

#: Notified of all alerts of a step at once, in the thread that writes, a moment after the step.
OnAlert = Callable[[Sequence[Alert]], None]

# A tensor that stays wrong is reported this often within this many steps.
_MOST_REPEATS = 5
_REPEATS_WITHIN = 100
_MOST_RECORDS = 20_000
# Up to so many alerts anomaly.json is written at once, and behind them when sinks are flushed; the journal has all.
_MOST_AT_ONCE = 500

# The order in which quantities come about in a micro step, and after all of them.
_IN_MICRO_STEP = {"actv": 0, SCALARS: 1, "actv_grad": 2, "grad_unreduced": 3}
_AFTERWARDS = ("grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "other", "update", "param_updated", "state")


class AlertSink:
    """Judges each step by the rules of the configuration.

    ``pipeline_stage``, ``group_mates``: of this rank in its pipeline group; the rank itself by default. ``on_alert``:
    callbacks; one that raises is reported once and not called again. ``is_recorded``: a step that raises alerts is
    recorded, so nobody has to be advised how.
    """

    is_first = True

    def __init__(
        self,
        settings: AlertSettings,
        *,
        pipeline_stage: int | None = None,
        group_mates: Sequence[int] | None = None,
        on_alert: Sequence[OnAlert] = (),
        is_recorded: bool = False,
    ) -> None:
        self._settings = settings
        self._pipeline_stage = pipeline_stage
        self._group_mates = group_mates
        self._on_alert = list(on_alert)
        self._history = ValueHistory()
        self._records: dict[str, dict[str, object]] = {}
        self._details: dict[str, dict[str, object]] = {}
        self._repeats: dict[tuple[str, str, str], _Repeats] = {}
        self._unwritten = False
        self._begun = False
        self._has_said_how = is_recorded
        self._journal: AlertJournal | None = None
        self._judged_steps = 0
        self._last_step: int | None = None
        # What attempts at the step that runs have raised.
        self._raised_in_attempts: set[tuple[str, str, int | None, str]] = set()
        self.alerts = 0
        self.held_back = 0

    def open(self, run: MonitorRun) -> None:
        """Remember whose steps they are, and begin their journal. Raises PathError."""
        self._run = run
        if run.folder and self._settings.rules:
            self._journal = AlertJournal(run.folder, run.rank, [rule.name for rule in self._settings.rules])

    def write(self, metrics: StepMetrics) -> None:
        """Judge the step; its alerts are on the disk when this returns. Raises PathError."""
        step = self._history.step(metrics)
        alerts = self._reported(self._judged(step))
        self._history.feed(step)
        self._judged_steps += 1
        self._last_step = metrics.step
        self._raise(alerts)
        self._raised_in_attempts.clear()

    def attempt(self, attempt: Attempt, metrics: StepMetrics | None) -> None:
        """Judge what became no step, by the rules that need no other steps. Raises PathError."""
        made = metrics or StepMetrics(attempt.step, (), {})
        step = self._history.step(made)
        raised = list(judged_attempt(self._settings.rules, step, attempt))
        known = [(rule, alert) for rule, alert in raised if _key(step, alert) not in self._raised_in_attempts]
        self._raised_in_attempts.update(_key(step, alert) for _, alert in known)
        self._raise(self._alerts_of(step, known), unfinished(attempt.why))

    def flush(self) -> None:
        """Write ``anomaly.json``, if there is something new for it. Raises PathError."""
        if not self._unwritten:
            return
        folder = make_folder(os.path.join(self._run.base, FOLDER, f"rank{self._run.rank}"))
        # The files of 8.1.1 have one place for each rank: of several monitors at once the first has it.
        mark = f".monitor{self._run.monitor}.json" if self._run.monitor else ""
        files = (
            (str(folder / FILE).removesuffix(".json" if mark else "") + mark, self._records),
            (str(folder / DETAILS_FILE).removesuffix(".json" if mark else "") + mark, self._details),
        )
        for path, content in files:
            if not self._begun:
                self._keep_earlier(path, content)
            write_atomically(path, json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "replace"))
        self._begun = True
        self._unwritten = False

    def close(self) -> None:
        """Write what is left, and say how much was held back."""
        self.flush()
        if self._journal is not None:
            self._journal.end(self._judged_steps, self._last_step, self.held_back)
            self._journal = None
        if self._begun:
            log.info(said("alerts-are-at", os.path.join(self._run.base, FOLDER, f"rank{self._run.rank}")))
        if self.held_back:
            log.info(said("alerts-held-back", self.held_back))

    def _raise(self, alerts: Sequence[Alert], unfinished: str = "") -> None:
        """Write alerts of one step, and report them."""
        if not alerts:
            return
        if self._journal is not None:
            self._journal.add({"key": alert.key, **alert.record(), **alert.details()} for alert in alerts)
        if self._settings.dump:
            for alert in alerts:
                if len(self._records) < _MOST_RECORDS:
                    self._records[alert.key] = alert.record()
                    self._details[alert.key] = alert.details()
                    self._unwritten = True
            if len(self._records) <= _MOST_AT_ONCE:
                self.flush()
        log.warning(sentence(alerts, analyse_command(self._run.base), unfinished))
        self._say_how_to_record(alerts[0].step)
        for callback in list(self._on_alert):
            try:
                callback(alerts)
            except Exception as problem:
                self._on_alert.remove(callback)
                log.error(said("alert-callback-failed", type(problem).__name__, problem))

    def _say_how_to_record(self, step: int) -> None:
        """Once: what was wrong in a step is reported when it is over; a second run records it."""
        if not self._has_said_how:
            self._has_said_how = True
            log.warning(second_run(step))

    # ---------------------------------------------------------------- one step

    def _judged(self, step: Step) -> list[Alert]:
        """The alerts of the step; of several rules for a number, the first."""
        alerts: dict[tuple[str, int, str], tuple[str, RuleAlert]] = {}
        for rule in self._settings.rules:
            for alert in rule.judge(step):
                alerts.setdefault((alert.quantity, alert.at, alert.op), (rule.name, alert))
        # What an attempt at this step has raised already is not raised again.
        known = self._raised_in_attempts
        return self._alerts_of(
            step, [alert for alert in alerts.values() if not known or _key(step, alert[1]) not in known]
        )

    def _alerts_of(self, step: Step, raised: Sequence[tuple[str, RuleAlert]]) -> list[Alert]:
        """In the order of execution."""
        if not raised:
            return []
        calls = _call_ids(step)
        alerts = [self._alert(step, rule, alert, calls) for rule, alert in raised]
        return sorted(alerts, key=lambda alert: alert.call_id)

    def _reported(self, alerts: list[Alert]) -> list[Alert]:
        """Those that are not held back; a tensor that stays wrong is reported a few times only."""
        reported = []
        for alert in alerts:
            repeats = self._repeats.setdefault((alert.rule, alert.tag, alert.op), _Repeats(alert.step))
            if repeats.may_speak(alert.step):
                reported.append(alert)
            else:
                self.held_back += 1
        self.alerts += len(reported)
        return reported

    def _alert(self, step: Step, rule: str, alert: RuleAlert, calls: dict[tuple[str, int], int]) -> Alert:
        block = step.blocks.get(alert.quantity)
        rank = self._run.rank
        if block is None:  # of the step as a whole
            stage, name, micro = 0, alert.quantity, None
        else:
            row = block.rows[alert.at]
            stage, name, micro = row.stage, row.name, row.micro_step
        quantity = name if alert.quantity == SCALARS else alert.quantity
        tag = tag_of(stage, name, micro, rank, quantity)
        mean = _mean(block, alert)
        why = alert.reason or f"history mean {mean}"
        return Alert(
            rank=rank,
            step=step.number,
            micro_step=micro or 0,
            pipeline_stage=rank if self._pipeline_stage is None else self._pipeline_stage,
            stage=stage,
            call_id=calls.get((alert.quantity, alert.at), len(calls)),
            tag=tag,
            op=alert.op,
            rule=rule,
            value=alert.value,
            message=f"Rule {rule} reports anomaly signal in ('{tag}', '{alert.op}') at step {step.number}, "
            f"current value {alert.value}, {why}.",
            group_mates=tuple(self._group_mates or (rank,)),
            text=_text_of(step.number, rank, rule, label_of(stage, name, micro), quantity, alert, mean),
            limit=alert.limit,
            what=_what(label_of(stage, name, micro), quantity),
        )

    def _keep_earlier(self, path: str, content: dict[str, dict[str, object]]) -> None:
        """Alerts of an earlier run in the same place: taken over by a run that goes on with it, else moved aside."""
        if not os.path.exists(path):
            return
        if self._run.append_to:
            try:
                earlier = read_json(path)
            except MsprobeError:
                earlier = None
            if isinstance(earlier, dict):
                newest = dict(content)
                content.clear()
                content.update({**earlier, **newest})
                return
        number = 1
        while os.path.exists(f"{path[:-5]}_{number}.json"):
            number += 1
        os.replace(path, f"{path[:-5]}_{number}.json")


@dataclass(slots=True)
class _Repeats:
    """How often one number of one tensor has raised an alert of late."""

    since: int
    count: int = 0

    def may_speak(self, step: int) -> bool:
        if step - self.since >= _REPEATS_WITHIN:
            self.since, self.count = step, 0
        self.count += 1
        return self.count <= _MOST_REPEATS


def _key(step: Step, alert: RuleAlert) -> tuple[str, str, int | None, str]:
    """Which number was found: quantity, name, micro step, operator."""
    block = step.blocks.get(alert.quantity)
    row = None if block is None else block.rows[alert.at]
    return alert.quantity, "" if row is None else row.name, None if row is None else row.micro_step, alert.op


def _mean(block: QuantityBlock | None, alert: RuleAlert) -> float | str:
    column = None if block is None else block.column(alert.op)
    if block is None or column is None or block.seen[alert.at, column] == 0:
        return "not known"
    return float(block.means[alert.at, column])


def _text_of(step: int, rank: int, rule: str, label: str, quantity: str, alert: RuleAlert, mean: float | str) -> str:
    """An alert for people, in the words of the csv files."""
    where = said("alert-op-of", alert.op, _what(label, quantity)) if quantity != label else quantity
    usual = alert.reason or (said("alert-usual", mean) if isinstance(mean, float) else "")
    limit = said("alert-limit-is", alert.limit) if alert.limit and alert.limit not in usual else ""
    why = joined("; ", [text for text in (limit, usual) if text])
    shown_why = said("in-parentheses", why) if why else ""
    return said("alert-text", step, rank, where, shown(alert.value), shown_why, rule)


def _what(label: str, quantity: str) -> str:
    return quantity if quantity == label else f"{quantity} {label}"


def _call_ids(step: Step) -> dict[tuple[str, int], int]:
    """The place of each row in its step, in the order in which they came about."""
    last = max((row.micro_step or 0 for block in step.blocks.values() for row in block.rows), default=0)
    order: list[tuple[int, int, str, int]] = []
    for quantity, block in step.blocks.items():
        for at, row in enumerate(block.rows):
            if quantity in _IN_MICRO_STEP:
                micro = last if row.micro_step is None else row.micro_step
                order.append((micro, _IN_MICRO_STEP[quantity], quantity, at))
            else:
                place = _AFTERWARDS.index(quantity) if quantity in _AFTERWARDS else len(_AFTERWARDS)
                order.append((last + 1, place, quantity, at))
    return {(quantity, at): number for number, (_, _, quantity, at) in enumerate(sorted(order))}
