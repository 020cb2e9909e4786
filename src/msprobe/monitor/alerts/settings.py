"""The field ``alert`` of the monitor's configuration: which rules, with which parameters; all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_args

from msprobe import log
from msprobe.errors import InvalidInputError
from msprobe.foreign.nearest import near_words
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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_word_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


# Name of a parameter -> what it must be, in words and as a test.
_PARAMETERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "threshold": ("a number of at least 0", _is_number),
    "floor": ("a number of at least 0", _is_number),
    "scale_share": ("a number of at least 0", _is_number),
    "z": ("a number of at least 0", _is_number),
    "warm_up": ("an integer of at least 1", _is_count),
    "steps": ("an integer of at least 1", _is_count),
    "window": ("an integer of at least 1", _is_count),
    "method": ("'mean' or 'robust'", lambda value: value in ("mean", "robust")),
    "ops": ("a list of names of operators", _is_word_list),
    "quantities": (
        f"a list of {', '.join(get_args(Quantity))}",
        lambda value: _is_word_list(value) and all(word in get_args(Quantity) for word in value),
    ),
}


def read_alert_settings(config: object) -> AlertSettings:
    """Read the field ``alert``: ``{"rules": [{"rule_name": ..., "args": {...}}], "dump": bool}``.

    Raises AlertConfigError, with all that is wrong.
    """
    if config is None:
        return AlertSettings()
    if not isinstance(config, Mapping):
        raise AlertConfigError(said("alert-wrong", config))
    wrong: list[str] = []
    _tell_unknown(config, ("rules", "dump"), "alert")
    dump = config.get("dump", False)
    if not isinstance(dump, bool):
        wrong.append(f"alert.dump must be true or false, found {dump!r}")
    given = config.get("rules", [])
    if "rules" not in config:
        log.warning(said("alert-without-rules"))
    elif not isinstance(given, list):
        wrong.append(f"alert.rules must be a list, found {given!r}")
        given = []
    rules = [_rule(entry, f"alert.rules[{at}]", wrong) for at, entry in enumerate(given)]
    if wrong:
        raise AlertConfigError("; ".join(wrong) + ".")
    return AlertSettings(tuple(rule for rule in rules if rule is not None), dump)


def _rule(entry: object, where: str, wrong: list[str]) -> Rule | None:
    if not isinstance(entry, Mapping):
        wrong.append(f"{where} must be an object with rule_name and args, found {entry!r}")
        return None
    name, args = entry.get("rule_name"), entry.get("args")
    kind = RULES.get(name) if isinstance(name, str) else None
    if kind is None:
        wrong.append(f"{where}.rule_name: {name!r} is not supported, rules are {', '.join(RULES)}{_near(name, RULES)}")
        return None
    _tell_unknown(entry, ("rule_name", "args"), where)
    if args is None:
        args = {}
    if not isinstance(args, Mapping):
        wrong.append(f"{where}.args must be an object, found {args!r}")
        return None
    if kind is Turbulence and not args:
        log.warning(said("alert-rule-needs-threshold", where, name))
        return None
    before = len(wrong)
    known = {part.name: part for part in fields(kind) if not part.name.startswith("_")}
    for key, value in args.items():
        if key not in known:
            having = f"which has {', '.join(known)}{_near(key, known)}" if known else "which has none"
            wrong.append(f"{where}.args.{key} is no parameter of {name}, {having}")
        elif not _PARAMETERS[key][1](value):
            wrong.append(f"{where}.args.{key} must be {_PARAMETERS[key][0]}, found {value!r}")
    wrong += [
        f"{where}.args.{key} is missing: {_PARAMETERS[key][0]}"
        for key, part in known.items()
        if part.default is MISSING and key not in args
    ]
    if len(wrong) > before:
        return None
    rule: Rule = kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in args.items()})
    return rule


def _tell_unknown(given: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    """Warn of keys that nobody looks at."""
    for key in given:
        if key not in known:
            log.warning(said("alert-key-unknown", where, key, ", ".join(known), _near(key, known)))


def _near(word: object, known: Iterable[str]) -> str:
    near = near_words(str(word), known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
