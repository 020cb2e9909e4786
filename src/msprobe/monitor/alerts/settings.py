"""The field ``alert`` of the monitor's configuration: which rules, with which parameters; all mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import Field, create_model

from msprobe import log
from msprobe.config.declared import (
    Declared,
    Switch,
    Texts,
    asks,
    demand,
    is_list,
    is_object,
    is_texts,
    one_of,
    read_declared,
    whole,
)
from msprobe.config.jsonc import Document, FieldPath
from msprobe.config.mistakes import ConfigSource, Mistake, dotted, raise_in_one_line
from msprobe.errors import InvalidInputError
from msprobe.foreign.plain_numbers import is_number
from msprobe.messages import said
from msprobe.monitor.alerts.rules import RULES, Rule, Turbulence
from msprobe.monitor.measurements import Quantity


class AlertConfigError(InvalidInputError, TypeError):
    """The field ``alert`` is not what it must be. Scripts for mindstudio-probe expect a TypeError."""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """``rules``: the first that fires for a number wins. ``dump``: write ``anomaly.json``, not only the log."""

    rules: tuple[Rule, ...] = ()
    dump: bool = False


def _is_positive(value: Any) -> bool:
    return is_number(value) and value >= 0


_QUANTITIES = get_args(Quantity)
_Number = Annotated[float, demand((_is_positive, "a number of at least 0"))]
_Count = Annotated[int, whole(1)]
# What a parameter of a rule must be.
_PARAMETERS: dict[str, Any] = {
    **dict.fromkeys(("threshold", "floor", "scale_share", "z"), _Number),
    **dict.fromkeys(("warm_up", "steps", "window"), _Count),
    "method": Annotated[str, one_of("mean", "robust")],
    "ops": Texts,
    "quantities": Annotated[
        tuple[Annotated[str, one_of(*_QUANTITIES)], ...],
        demand((is_texts, asks("must-be-list-of", ", ".join(_QUANTITIES)))),
    ],
}


class _Entry(Declared):
    rule_name: Annotated[str, one_of(*RULES)] = Field(description=f"rules are {', '.join(RULES)}")
    args: Annotated[
        dict[str, Any] | None,
        demand((lambda value: value is None or is_object(value), "an object")),
    ] = None


class _Alert(Declared):
    rules: Annotated[list[Any], demand((is_list, "a list of rules"))] = Field(default_factory=list)
    dump: Switch = False


class _InAlert(ConfigSource):
    """Places as they are called in the file that has the field ``alert``."""

    def where(self, path: FieldPath) -> str:
        return dotted((self.name, *path))


@cache
def _arguments_of(kind: Any) -> type[Declared]:
    """The parameters of a rule as a declaration."""
    declared: dict[str, Any] = {
        part.name: (_PARAMETERS[part.name], ... if part.default is MISSING else part.default)
        for part in fields(kind)
        if not part.name.startswith("_")
    }
    return create_model(kind.__name__, __base__=Declared, **declared)


def read_alert_settings(config: object) -> AlertSettings:
    """Read the field ``alert``: ``{"rules": [{"rule_name": ..., "args": {...}}], "dump": bool}``.

    Raises AlertConfigError, with all that is wrong.
    """
    if config is None:
        return AlertSettings()
    if not isinstance(config, Mapping):
        raise AlertConfigError(said("alert-wrong", config))
    source = _InAlert("alert", Document(config, {}, ()), {})
    read = read_declared(_Alert, source, "it", unknown="ignored")
    mistakes = list(read.mistakes)
    if "rules" not in config:
        log.warning(said("alert-without-rules"))
    rules = [
        rule
        for at in range(len(read.value.rules) if read.value else 0)
        if (rule := _rule(source, at, mistakes)) is not None
    ]
    if mistakes:
        raise_in_one_line(mistakes, AlertConfigError)
    return AlertSettings(tuple(rules), read.value.dump)


def _rule(source: ConfigSource, at: int, mistakes: list[Mistake]) -> Rule | None:
    """The rule at a place of the list; None where it is left out or wrong."""
    path = ("rules", at)
    if not isinstance(source.document.value["rules"][at], Mapping):
        rule = source.document.value["rules"][at]
        mistakes.append(source.mistake(path, said("alert-rule-is-no-object", rule)))
        return None
    read = read_declared(_Entry, source, "it", path, unknown="ignored")
    mistakes += read.mistakes
    if read.value is None:
        return None
    kind: Any = RULES[read.value.rule_name]
    if not read.value.args:
        if kind is Turbulence:
            log.warning(said("alert-rule-needs-threshold", f"alert.rules[{at}]", kind.name))
            return None
        usual: Rule = kind()
        return usual
    arguments = read_declared(_arguments_of(kind), source, "it", (*path, "args"))
    mistakes += arguments.mistakes
    if arguments.value is None:
        return None
    made: Rule = kind(**dict(arguments.value))
    return made
