"""The configuration of a monitor: a JSON object, checked whole, with all mistakes told at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from msprobe import log
from msprobe.config.jsonc import parse
from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.nearest import near_words
from msprobe.foreign.patterns import PatternError, compile_pattern
from msprobe.monitor.alerts.settings import AlertSettings, read_alert_settings
from msprobe.monitor.operators import OPERATORS
from msprobe.monitor.record_steps import KEPT_STEPS, MOST_KEPT_STEPS

FORMATS = ("csv", "tensorboard", "api", "wandb", "sqlite")
L2_HOOKS = ("attention_hook", "linear_hook", "moe_router_weight_hook", "moe_router_logit_hook")
#: As many steps as anybody trains.
ENDLESS = 100_000_000


class MonitorTypeError(InvalidInputError, TypeError):
    """A field of the monitor's configuration has a value of another type than it must have."""


class MonitorValueError(InvalidInputError, ValueError):
    """A field of the monitor's configuration has a value that is not allowed."""


@dataclass(frozen=True)
class Communication:
    """Section ``cc_distribution``: which collectives are measured. ``lines``: regular expressions, one of which has to
    be found in the call stack; empty: all. ``before``: also what goes in. ``log_only``: tell the stacks, and stop.
    """

    enable: bool = False
    lines: tuple[str, ...] = ()
    before: bool = False
    log_only: bool = False


@dataclass(frozen=True)
class Alerts:
    """Section ``alert``: the rules, and what is recorded of the step that fires and the one behind (False: nothing)."""

    settings: AlertSettings
    record: Mapping[str, Any] | str | bool = False
    #: So many steps before an alert are written as sketches.
    ring: int = 0

    @property
    def records_step(self) -> bool:
        """True if the step that fires is recorded itself."""
        given = self.record
        return bool(given) and (not isinstance(given, Mapping) or given.get("keep", KEPT_STEPS) > 0)


@dataclass(frozen=True)
class MonitorConfig:
    """What to measure, in which steps and ranks, and where to put it. Field by field as in the file."""

    targets: tuple[str, ...] = ()
    xy_distribution: bool = False
    all_xy: bool = False
    forward_only: bool = False
    backward_only: bool = False
    wg_distribution: bool = False
    monitor_mbs_grad: bool = False
    micro_delta: bool = False
    mv_distribution: bool = False
    param_distribution: bool = False
    ur_distribution: bool = False
    #: What no optimizer owns: buffers, and parameters that are not trained (averages, frozen parts).
    state_distribution: bool = False
    mg_direction: bool = False
    cc_distribution: Communication = field(default_factory=Communication)
    stack_info: bool = False
    #: True: write the structure and stop; "continue": write it and go on.
    print_struct: bool | str = False
    module_ranks: tuple[int, ...] = ()
    start_step: int = 0
    step_interval: int = 1
    collect_times: int = ENDLESS
    dynamic_on: bool = False
    format: str = "csv"
    ops: tuple[str, ...] = ("norm",)
    eps: float = 1e-8
    #: None: at least six significant digits; a number: so many decimals.
    ndigits: int | None = None
    step_count_per_record: int = 1
    append_output: tuple[str, ...] = ()
    squash_name: bool = True
    #: "local": of sharded tensors this rank's part; "global": the whole, by one reduction a step.
    scope: str = "local"
    alert: Alerts | None = None
    #: A kilobyte of each step in sketch.bin, from which `msprobe monitor diff` names the first bad step most sharply.
    sketch: bool = False
    recording_l2_features: bool = False
    l2_targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sa_order: str = "s,b,h,d"
    #: As it stands in the file.
    text: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def forward(self) -> bool:
        """Whether activations of forward passes are measured."""
        return self.xy_distribution and not self.backward_only

    @property
    def backward(self) -> bool:
        """Whether gradients of activations are measured."""
        return self.xy_distribution and not self.forward_only

    @property
    def all_modules(self) -> bool:
        """Whether the targets say nothing of modules."""
        return self.all_xy or (self.xy_distribution and not self.targets)


class _Reading:
    """One configuration that is being checked: takes the fields, keeps the mistakes."""

    def __init__(self, text: Mapping[str, Any], where: str) -> None:
        self.text = text
        self.where = where
        self.mistakes: list[tuple[type[InvalidInputError], str]] = []
        self.warnings: list[str] = []
        self.found: dict[str, Any] = {}

    def wrong(self, name: str, value: Any, allowed: str, kind: type[InvalidInputError] = MonitorTypeError) -> None:
        shown = json.dumps(value, ensure_ascii=False, default=str)
        self.mistakes.append((kind, f"{name} must be {allowed}, found {shown[:200]}"))

    def unusual(self, name: str, value: Any, allowed: str, default: Any) -> None:
        shown = json.dumps(value, ensure_ascii=False, default=str)[:200]
        self.warnings.append(f"{name} must be {allowed}, found {shown}; {default!r} is used instead")

    def take(self, name: str, check: Callable[[_Reading, str, Any], Any]) -> None:
        if name in self.text:
            value = check(self, name, self.text[name])
            if value is not _WRONG:
                self.found[name] = value


_WRONG = object()
# What older configurations say of the tuples of a target; nobody has ever looked at it.
_IN_TARGETS = frozenset(("input", "output", "input_grad", "output_grad"))


def _near(word: object, known: Iterable[str]) -> str:
    """The nearest word that there is, as the end of a sentence."""
    close = near_words(str(word), known, 1)
    return f"; did you mean {close[0]}?" if close else ""


_Check = Callable[[_Reading, str, Any], Any]


def _bool(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    reading.wrong(name, value, "true or false")
    return _WRONG


def _lenient_bool(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    reading.unusual(name, value, "true or false", False)
    return False


def _lenient_count(least: int, default: int) -> _Check:
    def check(reading: _Reading, name: str, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        reading.unusual(name, value, f"a whole number from {least}", default)
        return default

    return check


def _texts(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    reading.wrong(name, value, "a list of texts")
    return _WRONG


def _targets(reading: _Reading, name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        reading.wrong(name, value, "an object whose keys are names of modules or parameters")
        return _WRONG
    for key, inner in value.items():
        if not isinstance(inner, dict):
            reading.wrong(f"{name}[{key!r}]", inner, "an object")
            continue
        for word in inner.keys() - _IN_TARGETS:
            reading.warnings.append(
                f"{name}[{key!r}].{word} is not looked at: a target is a name and {{}}{_near(word, _CHECKS)}"
            )
    return tuple(value)


def _communication(reading: _Reading, name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        reading.wrong(name, value, "an object")
        return _WRONG
    words = {"enable": "enable", "cc_codeline": "lines", "cc_pre_hook": "before", "cc_log_only": "log_only"}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if key not in words:
            reading.mistakes.append((MonitorTypeError, f"{name}.{key} is not known; known are {', '.join(words)}"))
            continue
        checked = (_texts if key == "cc_codeline" else _bool)(reading, f"{name}.{key}", inner)
        if checked is not _WRONG:
            found[words[key]] = checked
    for line in found.get("lines", ()):
        try:
            compile_pattern(line, f"{name}.cc_codeline")
        except PatternError as problem:
            reading.mistakes.append((MonitorTypeError, problem.message.rstrip(".")))
    return Communication(**found)


def _print_struct(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, bool) or value == "continue":
        return value
    reading.wrong(name, value, 'true, false or "continue"')
    return _WRONG


def _ranks(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        return tuple(value)
    reading.wrong(name, value, "a list of whole numbers")
    return _WRONG


def _format(reading: _Reading, name: str, value: Any) -> Any:
    if value in FORMATS:
        return value
    reading.unusual(name, value, f"one of {', '.join(FORMATS)}", "csv")
    return "csv"


def _ops(reading: _Reading, name: str, value: Any) -> Any:
    """The operators, unknown ones left out with a warning; ``norm`` if none is left."""
    if not isinstance(value, list):
        reading.wrong(name, value, f"a list of {', '.join(OPERATORS)}")
        return _WRONG
    for one in value:
        if one not in OPERATORS and one not in ("shape", "dtype"):
            close = near_words(str(one), OPERATORS, 1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            known = ", ".join(OPERATORS)
            reading.warnings.append(f"{name}: {one!r} is no operator{hint} and is left out; there are {known}")
    return tuple(dict.fromkeys(one for one in value if one in OPERATORS)) or ("norm",)


def _eps(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, float) and value >= 0:
        return value
    reading.wrong(name, value, "a number with a decimal point, such as 1e-8")
    return _WRONG


def _digits(reading: _Reading, name: str, value: Any) -> Any:
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 20:
        return value
    reading.wrong(name, value, "a whole number from 1 to 20", MonitorValueError)
    return _WRONG


def _steps_per_file(reading: _Reading, name: str, value: Any) -> Any:
    allowed = "a whole number from 1 to 1000000"
    if not isinstance(value, int) or isinstance(value, bool):
        reading.wrong(name, value, allowed)
        return _WRONG
    if not 1 <= value <= 1_000_000:
        reading.wrong(name, value, allowed, MonitorValueError)
        return _WRONG
    return value


def _append(reading: _Reading, name: str, value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        if len(value) in (0, 2):
            return tuple(value)
        reading.wrong(name, value, "empty, or the first and the last timestamp", MonitorValueError)
    else:
        reading.wrong(name, value, "a list of two timestamps, such as Jan01_08-00-00")
    return _WRONG


def _choice(*allowed: str) -> _Check:
    def check(reading: _Reading, name: str, value: Any) -> Any:
        if value in allowed:
            return value
        reading.wrong(name, value, " or ".join(json.dumps(one) for one in allowed))
        return _WRONG

    return check


def _alert(reading: _Reading, name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        reading.wrong(name, value, "an object with rules")
        return _WRONG
    known = ("rules", "dump", "record", "ring")
    for key in value.keys() - set(known):
        reading.warnings.append(
            f"{name}.{key} is not known and is not looked at; known are {', '.join(known)}{_near(key, known)}"
        )
    rules = {key: inner for key, inner in value.items() if key in ("rules", "dump")}
    try:
        settings = read_alert_settings(rules)
    except InvalidInputError as error:
        reading.mistakes.append((MonitorTypeError, error.message.rstrip(".")))
        return _WRONG
    record = value.get("record", False)
    if not isinstance(record, (bool, str, dict)):
        reading.wrong(f"{name}.record", record, "true, an object with fields of config.json, or the path of one")
    if isinstance(record, dict):
        for key, least, most in (("keep", 0, MOST_KEPT_STEPS), ("times", 1, 10_000)):
            number = record.get(key, 1)
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
                reading.wrong(f"{name}.record.{key}", number, f"a whole number from {least} to {most}")
    if isinstance(record, str) and not os.path.isfile(record):
        reading.wrong(f"{name}.record", record, "true, fields of config.json, or the path of such a file that exists")
    ring = value.get("ring", 0)
    if not isinstance(ring, int) or isinstance(ring, bool) or not 0 <= ring <= 10_000:
        reading.wrong(f"{name}.ring", ring, "a whole number from 0 to 10000")
    return Alerts(settings, record, ring)


def _l2_targets(reading: _Reading, name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        reading.wrong(name, value, "an object")
        return _WRONG
    found: dict[str, tuple[str, ...]] = {}
    for key, inner in value.items():
        if key not in L2_HOOKS:
            reading.mistakes.append((MonitorTypeError, f"{name}.{key} is not known; known are {', '.join(L2_HOOKS)}"))
            continue
        checked = _texts(reading, f"{name}.{key}", inner)
        if checked is not _WRONG:
            found[key] = checked
    return found


_CHECKS: dict[str, _Check] = {
    "targets": _targets,
    "xy_distribution": _bool,
    "all_xy": _bool,
    "forward_only": _bool,
    "backward_only": _bool,
    "wg_distribution": _bool,
    "monitor_mbs_grad": _lenient_bool,
    "micro_delta": _bool,
    "mv_distribution": _bool,
    "param_distribution": _bool,
    "ur_distribution": _bool,
    "state_distribution": _bool,
    "mg_direction": _bool,
    "cc_distribution": _communication,
    "stack_info": _bool,
    "print_struct": _print_struct,
    "module_ranks": _ranks,
    "start_step": _lenient_count(0, 0),
    "step_interval": _lenient_count(1, 1),
    "collect_times": _lenient_count(0, ENDLESS),
    "dynamic_on": _bool,
    "format": _format,
    "ops": _ops,
    "eps": _eps,
    "ndigits": _digits,
    "step_count_per_record": _steps_per_file,
    "append_output": _append,
    "squash_name": _bool,
    "scope": _choice("local", "global"),
    "alert": _alert,
    "sketch": _bool,
    "recording_l2_features": _bool,
    "l2_targets": _l2_targets,
    "sa_order": _choice("s,b,h,d", "b,s,h,d"),
}
assert _CHECKS.keys() == {one.name for one in fields(MonitorConfig)} - {"text"}


def load(path: str | os.PathLike[str]) -> MonitorConfig:
    """Read the configuration file of a monitor.

    Raises PathError if it cannot be read, InvalidInputError if it is no JSON object, :class:`MonitorTypeError` or
    :class:`MonitorValueError` if a field is wrong; all mistakes are in one message. What earlier tools put right with
    a warning is put right with a warning here.
    """
    where = os.fspath(path)
    try:
        with open(where, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PathError(f'Monitor configuration "{where}" cannot be read: {reason}.') from None
    return from_object(parse(content, where).value, where)


def from_object(text: Any, where: str) -> MonitorConfig:
    """The configuration that a JSON object holds; see :func:`load`. ``where``: for messages."""
    if not isinstance(text, dict):
        raise MonitorTypeError(f'Monitor configuration "{where}" must be a JSON object, found {type(text).__name__}.')
    reading = _Reading(text, where)
    for name, check in _CHECKS.items():
        reading.take(name, check)
    for name in text.keys() - _CHECKS.keys():
        reading.warnings.append(f"{name} is not a field of a monitor and is not looked at{_near(name, _CHECKS)}")
    if reading.mistakes:
        _tell_warnings(reading)
        kind = reading.mistakes[0][0]
        raise kind(f'Monitor configuration "{where}": {"; ".join(text for _, text in reading.mistakes)}.')
    config = MonitorConfig(**reading.found, text=text)
    if config.forward_only and config.backward_only:
        reading.warnings.append("forward_only and backward_only are both true, so no activations are measured")
    _tell_warnings(reading)
    return config


def _tell_warnings(reading: _Reading) -> None:
    for warning in reading.warnings:
        log.warning(f'Monitor configuration "{reading.where}": {warning}.')


def checked_operators(value: Any) -> tuple[str, ...]:
    """The operators that a program sets while it runs, checked as those of a file. Raises :class:`MonitorTypeError`."""
    reading = _Reading({"ops": value}, "ops")
    reading.take("ops", _ops)
    if reading.mistakes:
        raise MonitorTypeError(f"Monitor: {reading.mistakes[0][1]}.")
    for warning in reading.warnings:
        log.warning(f"Monitor: {warning}.")
    found: tuple[str, ...] = reading.found["ops"]
    return found
