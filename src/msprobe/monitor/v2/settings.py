"""The configuration of ``monitor_v2`` of 26.2.0, and what it is in the words of our monitor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from msprobe import log
from msprobe.config.declared import (
    Declared,
    Switch,
    Texts,
    asks,
    demand,
    is_object,
    is_text,
    is_texts,
    one_of,
    read_declared,
    whole,
)
from msprobe.config.mistakes import ConfigSource, MistakeKind
from msprobe.messages import said
from msprobe.monitor.config import ENDLESS, Communication, MonitorConfig, raise_mistakes_of, read_file

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
_COUNTS = ("start_step", "stop_step", "step_interval", "step_count_per_record", "collect_times")


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


_RANGE: MistakeKind = "range"
_Ops = Annotated[
    tuple[str, ...],
    demand(
        (lambda value: is_texts(value) and all(op in OPS for op in value), asks("must-be-list-of", ", ".join(OPS))),
        kind=_RANGE,
    ),
    BeforeValidator(lambda value: value or list(OPS)),
]


class _Monitor(Declared):
    enabled: Switch = False
    ops: _Ops = OPS
    eps: Any = None
    targets: Annotated[Texts, BeforeValidator(lambda value: value or [])] = ()


_MonitorOf = Annotated[_Monitor, demand((is_object, 'an object such as {"enabled": true}'))]


class _Monitors(Declared):
    module: _MonitorOf = _Monitor()
    weight_grad: _MonitorOf = _Monitor()
    optimizer: _MonitorOf = _Monitor()
    param: _MonitorOf = _Monitor()
    cc: _MonitorOf = _Monitor()


_Count = Annotated[int | None, whole(1, or_none=True)]
_Ranks = Annotated[
    tuple[Annotated[int, whole(0)], ...],
    BeforeValidator(lambda value: [] if value in (None, [None]) else value if isinstance(value, list) else [value]),
]


class _FileV2(Declared):
    """Field by field as in the file."""

    framework: Annotated[
        str,
        AfterValidator(_FRAMEWORKS.__getitem__),
        one_of(*_FRAMEWORKS, kind=_RANGE),
        BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
    ] = "pytorch"
    output_dir: Annotated[str, demand((is_text, "the path of a folder"))] = "./"
    format: Annotated[str, demand((lambda text: text == "csv", asks("must-be-csv")), kind=_RANGE)] = "csv"
    rank: _Ranks = ()
    monitors: Annotated[_Monitors, demand((is_object, asks("must-be-object-with-some", ", ".join(MONITORS))))] = (
        _Monitors()
    )
    patch_optimizer_step: Switch = True
    async_write: Switch = True
    start_step: Annotated[int | None, whole(0, or_none=True)] = None
    stop_step: _Count = None
    step_interval: _Count = None
    step_count_per_record: _Count = None
    collect_times: _Count = None


def load_v2(path: str | os.PathLike[str], framework: str | None = None) -> SettingsV2:
    """Read a configuration of ``monitor_v2``. ``framework``: holds in place of what the file says.

    Raises PathError if it cannot be read; MonitorTypeError, MonitorValueError with all that is wrong in it.
    """
    document = read_file(path)
    given = document.value if framework is None else {**document.value, "framework": framework}
    source = ConfigSource(
        os.fspath(path), replace(document, value=given), {} if framework is None else {("framework",): "fr"}
    )
    read = read_declared(_FileV2, source, "it", unknown="outer ignored")
    file_settings: _FileV2 | None = read.value
    mistakes = list(read.mistakes)
    if (
        file_settings is not None
        and file_settings.stop_step is not None
        and file_settings.stop_step <= (file_settings.start_step or 0)
    ):
        text = said("stop-step-wrong", file_settings.start_step or 0, file_settings.stop_step)
        mistakes.append(source.mistake(("stop_step",), text, _RANGE))
    raise_mistakes_of(mistakes)
    assert file_settings is not None
    enabled = {name: monitor.ops for name, monitor in file_settings.monitors if monitor.enabled}
    for idle in _idle(file_settings, given):
        log.warning(said("monitor-setting", source.name, idle))
    if not enabled:
        log.warning(said("no-monitor-enabled", source.name, ", ".join(MONITORS)))
    counts = {name: getattr(file_settings, name) for name in _COUNTS if getattr(file_settings, name) is not None}
    return SettingsV2(
        file_settings.framework,
        file_settings.output_dir,
        file_settings.rank,
        monitors=enabled,
        targets=file_settings.monitors.module.targets,
        **counts,
    )


def _idle(file_settings: _FileV2, given: Mapping[str, Any]) -> Iterator[str]:
    """Fields that have a value and change nothing, and why."""
    if not file_settings.patch_optimizer_step:
        yield said("optimizer-patch-idle")
    if "async_write" in given:
        yield said("async-write-idle")
    for name, monitor in file_settings.monitors:
        if monitor.targets and name != "module":
            yield said("targets-idle", name)
        if "eps" in monitor.model_fields_set:
            yield said("eps-idle", name, ", ".join(OPS))
