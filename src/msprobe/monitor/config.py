"""The configuration of a monitor: a JSON object, checked whole, with all mistakes reported at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from msprobe import log
from msprobe.config.declared import (
    Declared,
    Switch,
    Texts,
    demand,
    is_list,
    is_object,
    is_switch,
    is_texts,
    is_whole,
    one_of,
    read_declared,
    whole,
    wrong,
)  # fmt: skip
from msprobe.config.jsonc import Document, parse
from msprobe.config.mistakes import ConfigSource, Mistake, did_you_mean, raise_in_one_line, shown
from msprobe.errors import InvalidInputError, PathError, reason_of
from msprobe.foreign.patterns import PatternError, compile_pattern
from msprobe.messages import joined, said
from msprobe.monitor.alerts.settings import AlertSettings, read_alert_settings
from msprobe.monitor.operators import OPERATORS
from msprobe.monitor.record_steps import KEPT_STEPS, MOST_KEPT_STEPS

FORMATS = ("csv", "tensorboard", "api", "wandb", "sqlite")
L2_HOOKS = ("attention_hook", "linear_hook", "moe_router_weight_hook", "moe_router_logit_hook")
#: As many steps as anybody trains.
ENDLESS = 100_000_000
# What older configurations say of the tuples of a target; nobody has ever looked at it.
_IN_TARGETS = frozenset(("input", "output", "input_grad", "output_grad"))


class MonitorTypeError(InvalidInputError, TypeError):
    """A field of the monitor's configuration has a value of another type than it must have."""


#: The most steps before an alert that are written as sketches.
MOST_RING = 10_000


class MonitorValueError(InvalidInputError, ValueError):
    """A field of the monitor's configuration has a value that is not allowed."""


def _instead(default: Any, test: Any, allowed: Callable[[], str]) -> Any:
    """A value that earlier tools put right: the default is used in its place, with a warning."""

    def check(value: Any, info: ValidationInfo[list[str]]) -> Any:
        if test(value):
            return value
        info.context.append(said("setting-used-instead", info.field_name, allowed(), shown(value), shown(default)))
        return default

    return BeforeValidator(check)


def _count(least: int, default: int) -> Any:
    return _instead(default, lambda value: is_whole(value) and value >= least, lambda: said("whole-number-from", least))


def _targets(value: Any, info: ValidationInfo[list[str]]) -> tuple[str, ...]:
    if not isinstance(value, dict):
        raise wrong(said("must-be-object-of-names", shown(value)))
    for key, inner in value.items():
        if not isinstance(inner, dict):
            raise wrong(said("member-must-be-object", key, shown(inner)))
        info.context.extend(
            said("target-field-ignored", key, word, did_you_mean(word, MonitorConfig.__dataclass_fields__))
            for word in inner.keys() - _IN_TARGETS
        )
    return tuple(value)


def _operators(value: Any, info: ValidationInfo[list[str]]) -> tuple[str, ...]:
    return _known_operators(value, info.context)


def _known_operators(value: Any, warnings: list[str]) -> tuple[str, ...]:
    """The operators, unknown ones left out with a warning; ``norm`` if none is left."""
    if not isinstance(value, list):
        raise wrong(said("must-be-list-of", ", ".join(OPERATORS), shown(value)))
    for operator in value:
        if operator not in OPERATORS and operator not in ("shape", "dtype"):
            known = ", ".join(OPERATORS)
            warnings.append(said("operator-left-out", shown(operator), did_you_mean(operator, OPERATORS), known))
    return tuple(dict.fromkeys(operator for operator in value if operator in OPERATORS)) or ("norm",)


def _patterns(lines: tuple[str, ...]) -> tuple[str, ...]:
    for line in lines:
        try:
            compile_pattern(line, "the pattern")
        except PatternError as problem:
            raise wrong(said("pattern-cannot-be-used", problem.message.rstrip("."))) from None
    return lines


def _timestamps(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(value) not in (0, 2):
        raise wrong(said("must-be-two-timestamps", shown(list(value))), "range")
    return value


@dataclass(frozen=True)
class Communication:
    """Section ``cc_distribution``: which collectives are measured. ``lines``: regular expressions, one of which has to
    be found in the call stack; empty: all. ``before``: also the inputs. ``log_only``: name the stacks, and stop.
    """

    __pydantic_config__ = Declared.model_config

    enable: Switch = False
    lines: Annotated[Texts, AfterValidator(_patterns), Field(alias="cc_codeline")] = ()
    before: Annotated[Switch, Field(alias="cc_pre_hook")] = False
    log_only: Annotated[Switch, Field(alias="cc_log_only")] = False


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


def _alert(value: Any, info: ValidationInfo[list[str]]) -> Alerts:
    if not isinstance(value, dict):
        raise wrong(said("must-be-object-with-rules", shown(value)))
    known = ("rules", "dump", "record", "ring")
    info.context.extend(
        said("alert-field-ignored", key, ", ".join(known), did_you_mean(key, known))
        for key in value.keys() - set(known)
    )
    mistakes: list[str] = []
    settings = AlertSettings()
    try:
        settings = read_alert_settings({key: inner for key, inner in value.items() if key in ("rules", "dump")})
    except InvalidInputError as error:
        mistakes.append(error.message.rstrip("."))
    record, ring = value.get("record", False), value.get("ring", 0)
    if not isinstance(record, (bool, str, dict)) or (isinstance(record, str) and not os.path.isfile(record)):
        mistakes.append(said("alert-record-wrong", shown(record)))
    if isinstance(record, dict):
        for key, least, most in (("keep", 0, MOST_KEPT_STEPS), ("times", 1, 10_000)):
            number = record.get(key, 1)
            if not is_whole(number) or not least <= number <= most:
                mistakes.append(said("alert-record-number-wrong", key, least, most, shown(number)))
    if not is_whole(ring) or not 0 <= ring <= MOST_RING:
        mistakes.append(said("alert-ring-wrong", MOST_RING, shown(ring)))
    if mistakes:
        raise wrong(joined("; ", mistakes))
    return Alerts(settings, record, ring)


@dataclass(frozen=True)
class MonitorConfig:
    """What to measure, in which steps and ranks, and where to put it. Field by field as in the file."""

    __pydantic_config__ = Declared.model_config

    targets: Annotated[tuple[str, ...], PlainValidator(_targets)] = ()
    xy_distribution: Switch = False
    all_xy: Switch = False
    forward_only: Switch = False
    backward_only: Switch = False
    wg_distribution: Switch = False
    monitor_mbs_grad: Annotated[bool, _instead(False, is_switch, lambda: said("true-or-false"))] = False
    micro_delta: Switch = False
    mv_distribution: Switch = False
    param_distribution: Switch = False
    ur_distribution: Switch = False
    #: What no optimizer owns: buffers, and parameters that are not trained (averages, frozen parts).
    state_distribution: Switch = False
    mg_direction: Switch = False
    cc_distribution: Annotated[Communication, demand((is_object, "an object"))] = field(default_factory=Communication)
    stack_info: Switch = False
    #: True: write the structure and stop; "continue": write it and go on.
    print_struct: Annotated[
        bool | str, demand((lambda value: is_switch(value) or value == "continue", 'true, false or "continue"'))
    ] = False
    module_ranks: Annotated[
        tuple[int, ...], demand((lambda value: is_list(value) and all(map(is_whole, value)), "a list of whole numbers"))
    ] = ()
    start_step: Annotated[int, _count(0, 0)] = 0
    step_interval: Annotated[int, _count(1, 1)] = 1
    collect_times: Annotated[int, _count(0, ENDLESS)] = ENDLESS
    dynamic_on: Switch = False
    format: Annotated[
        str,
        _instead(
            "csv",
            lambda value: isinstance(value, str) and value in FORMATS,
            lambda: said("one-of-words", ", ".join(FORMATS)),
        ),
    ] = "csv"
    ops: Annotated[tuple[str, ...], PlainValidator(_operators)] = ("norm",)
    eps: Annotated[
        float,
        demand((lambda value: isinstance(value, float) and value >= 0, "a number with a decimal point, such as 1e-8")),
    ] = 1e-8
    #: None: at least six significant digits; a number: so many decimals.
    ndigits: Annotated[
        int | None,
        BeforeValidator(lambda value: 0 if value is None else value),
        demand(
            (lambda value: value is None or (is_whole(value) and 0 <= value <= 20), "a whole number from 1 to 20"),
            kind="range",
        ),
    ] = None
    step_count_per_record: Annotated[
        int, whole(1, 1_000_000, "range"), demand((is_whole, "a whole number from 1 to 1000000"))
    ] = 1
    append_output: Annotated[
        tuple[str, ...],
        AfterValidator(_timestamps),
        demand((is_texts, "a list of two timestamps, such as Jan01_08-00-00")),
    ] = ()
    squash_name: Switch = True
    #: "local": of sharded tensors this rank's part; "global": the whole, by one reduction a step.
    scope: Annotated[str, one_of("local", "global")] = "local"
    alert: Annotated[Alerts | None, PlainValidator(_alert)] = None
    #: A kilobyte of each step in sketch.bin, from which `msprobe monitor diff` names the first bad step most sharply.
    sketch: Switch = False
    recording_l2_features: Switch = False
    l2_targets: Annotated[dict[Annotated[str, one_of(*L2_HOOKS)], Texts], demand((is_object, "an object"))] = field(
        default_factory=dict
    )
    sa_order: Annotated[str, one_of("s,b,h,d", "b,s,h,d")] = "s,b,h,d"
    #: As it stands in the file.
    text: Annotated[Mapping[str, Any], demand((lambda _: False, lambda _: said("no-field-of-monitor")))] = field(
        default_factory=dict, compare=False
    )

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


def load(path: str | os.PathLike[str]) -> MonitorConfig:
    """Read the configuration file of a monitor.

    Raises PathError if it cannot be read, InvalidInputError if it is no JSON object, :class:`MonitorTypeError` or
    :class:`MonitorValueError` if a field is wrong; all mistakes are in one message. What earlier tools put right with
    a warning is put right with a warning here.
    """
    return _read(read_file(path), os.fspath(path))


def read_file(path: str | os.PathLike[str]) -> Document:
    """The parsed text of a configuration. Raises PathError and InvalidInputError."""
    where = os.fspath(path)
    try:
        with open(where, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise PathError(said("monitor-config-unreadable", where, reason)) from None
    document = parse(content, where)
    if not isinstance(document.value, dict):
        raise MonitorTypeError(said("monitor-config-is-no-object", where, type(document.value).__name__))
    return document


def from_object(text: dict[str, Any], where: str) -> MonitorConfig:
    """The configuration that a JSON object holds; see :func:`load`. ``where``: for messages."""
    return _read(Document(text, {}, ()), where)


def _read(document: Document, where: str) -> MonitorConfig:
    warnings: list[str] = []
    read = read_declared(
        MonitorConfig, ConfigSource(where, document, {}), "it", unknown="outer ignored", context=warnings
    )
    config: MonitorConfig | None = read.value
    if config is not None and config.forward_only and config.backward_only:
        warnings.append(said("both-passes-excluded"))
    for warning in dict.fromkeys(warnings):
        log.warning(said("monitor-setting", where, warning))
    raise_mistakes_of(read.mistakes)
    assert config is not None
    return replace(config, text=document.value)


def raise_mistakes_of(mistakes: Iterable[Mistake]) -> None:
    """Raise MonitorTypeError or MonitorValueError, as the first mistake is, with all of them in one line."""
    ordered = sorted(mistakes, key=lambda mistake: mistake.order)
    if ordered:
        raise_in_one_line(ordered, MonitorValueError if ordered[0].kind == "range" else MonitorTypeError)


def checked_operators(value: Any) -> tuple[str, ...]:
    """The operators that a program sets while it runs, checked as those of a file. Raises :class:`MonitorTypeError`."""
    warnings: list[str] = []
    try:
        operators = _known_operators(value, warnings)
    except PydanticCustomError as problem:
        raise MonitorTypeError(f"Monitor: ops {problem.message()}.") from None
    for warning in warnings:
        log.warning(f"Monitor: {warning}.")
    return operators
