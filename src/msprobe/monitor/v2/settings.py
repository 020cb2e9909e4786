"""The configuration of ``monitor_v2`` of 26.2.0, and what it is in the words of our monitor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe import log
from msprobe.config.jsonc import parse
from msprobe.errors import PathError
from msprobe.foreign.nearest import near_words
from msprobe.monitor.config import ENDLESS, Communication, MonitorConfig, MonitorTypeError, MonitorValueError

#: What 26.2.0 can compute of a tensor; all of them by default.
OPS = ("min", "max", "mean", "norm", "nans")
MONITORS = ("module", "weight_grad", "optimizer", "param", "cc")
_FRAMEWORKS = {
    "pytorch": "pytorch",
    "pt": "pytorch",
    "torch": "pytorch",
    "mindspore": "mindspore",
    "ms": "mindspore",
}
_COUNTS = {"start_step": 0, "stop_step": 1, "step_interval": 1, "step_count_per_record": 1, "collect_times": 1}
_FIELDS = ("framework", "output_dir", "format", "rank", "monitors", "patch_optimizer_step", "async_write", *_COUNTS)
_OF_MONITOR = ("enabled", "ops", "eps", "targets")


@dataclass(frozen=True)
class SettingsV2:
    """As the file says. ``monitors``: operators of each monitor that is enabled. ``targets``: parts of the names of
    modules; none: all modules. ``stop_step``: the first step that is no longer measured.
    """

    framework: str = "pytorch"
    output_dir: str = "./"
    rank: tuple[int, ...] = ()
    start_step: int = 0
    stop_step: int | None = None
    step_interval: int = 1
    step_count_per_record: int = 1
    collect_times: int = ENDLESS
    monitors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    targets: tuple[str, ...] = ()

    @property
    def ops(self) -> tuple[str, ...]:
        """What any of the monitors asks for."""
        return tuple(op for op in OPS if any(op in ops for ops in self.monitors.values()))

    @property
    def times(self) -> int:
        """How many steps are measured at most."""
        if self.stop_step is None:
            return self.collect_times
        return min(self.collect_times, -((self.start_step - self.stop_step) // self.step_interval))

    def translated(self, modules: Iterable[str]) -> MonitorConfig:
        """The same as a configuration of our monitor. ``modules``: the names of all modules of the model."""
        chosen: tuple[str, ...] = ()
        if self.targets:
            names = [name for name in modules if name and any(part in name for part in self.targets)]
            # The empty target stands for all parameters, which `targets` of monitor_v2 says nothing of.
            chosen = ("", *dict.fromkeys(names))
        return MonitorConfig(
            targets=chosen,
            xy_distribution="module" in self.monitors,
            wg_distribution="weight_grad" in self.monitors,
            mv_distribution="optimizer" in self.monitors,
            param_distribution="param" in self.monitors,
            cc_distribution=Communication(enable="cc" in self.monitors),
            module_ranks=self.rank,
            start_step=self.start_step,
            step_interval=self.step_interval,
            collect_times=self.times,
            format="api",
            ops=self.ops,
            squash_name=False,
        )


class _Reader:
    """Takes fields and keeps the mistakes."""

    def __init__(self) -> None:
        self.types: list[str] = []
        self.values: list[str] = []
        #: Fields that have a value and change nothing, and why.
        self.idle: list[str] = []
        self.found: dict[str, Any] = {}

    def unknown(self, given: Iterable[str], known: tuple[str, ...], where: str) -> list[str]:
        told = []
        for name in given:
            if name not in known:
                close = near_words(name, known, 1)
                told.append(f"{where}{name} is not known{f'; did you mean {close[0]}?' if close else ''}")
        return told

    def read(self, text: Mapping[str, Any]) -> None:
        framework = text.get("framework", "pytorch")
        if isinstance(framework, str) and framework.lower() in _FRAMEWORKS:
            self.found["framework"] = _FRAMEWORKS[framework.lower()]
        else:
            self.values.append(f"framework must be one of {', '.join(_FRAMEWORKS)}, found {framework!r}")
        if text.get("format", "csv") != "csv":
            self.values.append(f'format must be "csv", found {text["format"]!r}; TrainerMon has other formats')
        folder = text.get("output_dir", "./")
        if isinstance(folder, str) and folder:
            self.found["output_dir"] = folder
        else:
            self.types.append(f"output_dir must be the path of a folder, found {folder!r}")
        ranks = text.get("rank", [])
        ranks = ranks if isinstance(ranks, list) else [ranks]
        if all(_is_count(one, 0) for one in ranks):
            self.found["rank"] = tuple(ranks)
        elif ranks != [None]:
            self.types.append(f"rank must be a whole number from 0 or a list of them, found {text['rank']!r}")
        for name, least in _COUNTS.items():
            value = text.get(name)
            if value is None:
                continue
            if _is_count(value, least):
                self.found[name] = value
            else:
                self.types.append(f"{name} must be a whole number from {least}, found {value!r}")
        for name in ("patch_optimizer_step", "async_write"):
            if not isinstance(text.get(name, True), bool):
                self.types.append(f"{name} must be true or false, found {text[name]!r}")
        if text.get("patch_optimizer_step", True) is False:
            self.idle.append("patch_optimizer_step false changes nothing: a step is always one of the optimizer")
        if "async_write" in text:
            self.idle.append("async_write changes nothing: files are always written while the training goes on")
        first, end = self.found.get("start_step", 0), self.found.get("stop_step")
        if end is not None and end <= first:
            self.values.append(f"stop_step, the first step left out, must be above start_step {first}, found {end}")
        self._read_monitors(text.get("monitors", {}))

    def _read_monitors(self, given: Any) -> None:
        if not isinstance(given, dict):
            self.types.append(f"monitors must be an object with some of {', '.join(MONITORS)}, found {given!r}")
            return
        self.values += self.unknown(given, MONITORS, "monitors.")
        enabled: dict[str, tuple[str, ...]] = {}
        for name in MONITORS:
            one = given.get(name, {})
            where = f"monitors.{name}"
            if not isinstance(one, dict) or not isinstance(one.get("enabled", False), bool):
                self.types.append(f'{where} must be an object such as {{"enabled": true}}, found {one!r}')
                continue
            self.values += self.unknown(one, _OF_MONITOR, f"{where}.")
            ops = one.get("ops") or list(OPS)
            if not isinstance(ops, list) or not all(op in OPS for op in ops):
                self.values.append(f"{where}.ops must be a list of {', '.join(OPS)}, found {ops!r}")
            elif one.get("enabled", False):
                enabled[name] = tuple(dict.fromkeys(ops))
            targets = one.get("targets") or []
            if not isinstance(targets, list) or not all(isinstance(part, str) for part in targets):
                self.types.append(f"{where}.targets must be a list of parts of names of modules, found {targets!r}")
            elif name == "module":
                self.found["targets"] = tuple(targets)
            elif targets:
                self.idle.append(f"{where}.targets changes nothing: only monitors.module has targets")
            if "eps" in one:
                self.idle.append(f"{where}.eps changes nothing: none of {', '.join(OPS)} needs it")
        self.found["monitors"] = enabled


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def load_v2(path: str | os.PathLike[str], framework: str | None = None) -> SettingsV2:
    """Read a configuration of ``monitor_v2``. ``framework``: holds in place of what the file says.

    Raises PathError if it cannot be read; MonitorTypeError, MonitorValueError with all that is wrong in it.
    """
    where = os.fspath(path)
    try:
        with open(where, encoding="utf-8") as file:
            content = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PathError(f'Monitor configuration "{where}" cannot be read: {reason}.') from None
    text = parse(content, where).value
    if not isinstance(text, dict):
        raise MonitorTypeError(f'Monitor configuration "{where}" must be a JSON object, found {type(text).__name__}.')
    reader = _Reader()
    reader.read(text if framework is None else {**text, "framework": framework})
    wrong = [*reader.types, *reader.values]
    if wrong:
        kind = MonitorTypeError if reader.types else MonitorValueError
        raise kind(f'Monitor configuration "{where}": {"; ".join(wrong)}.')
    for told in reader.unknown(text, _FIELDS, ""):
        log.warning(f'Monitor configuration "{where}": {told}; it is not looked at.')
    for idle in reader.idle:
        log.warning(f'Monitor configuration "{where}": {idle}.')
    if not reader.found["monitors"]:
        log.warning(
            f'Monitor configuration "{where}" enables none of {", ".join(MONITORS)}, so nothing is measured; write'
            ' for example "monitors": {"weight_grad": {"enabled": true}}.'
        )
    return SettingsV2(**reader.found)
