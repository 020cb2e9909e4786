"""config.json and keyword arguments -> :class:`Settings`, or one error with all mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast, get_args

from msprobe import log, paths
from msprobe.config import jsonc
from msprobe.config.arguments import put_arguments, section_name
from msprobe.config.fields import (
    TASK_SECTIONS,
    CommonFields,
    Fields,
    FilterFields,
    LockstepFields,
    TensorFields,
    ValueFields,
    allowed,
    known_names,
)
from msprobe.config.free_benchmark import benchmark_mistakes, complete_benchmark
from msprobe.config.jsonc import Document, FieldPath
from msprobe.config.mistakes import MOST_SHOWN, ConfigSource, Mistake, dotted, raise_mistakes, shown
from msprobe.config.online import address_of
from msprobe.config.other_tasks import OTHER_TASK_SECTIONS, FreeBenchmarkFields, GradientProbeFields, LoadFields
from msprobe.config.ranges import expand
from msprobe.config.rules import adjustment_warnings, cross_mistakes, effective_level, unused_field_warnings
from msprobe.config.sections import Section, read_section, unknown_field_warnings
from msprobe.config.settings import (
    TASKS,
    GradientProbe,
    Lockstep,
    ProbeTask,
    Settings,
    Task,
    quoted,
)
from msprobe.errors import InvalidInputError, PathError
from msprobe.foreign.budget import SETTINGS, Budget
from msprobe.foreign.opening import read_bounded
from msprobe.messages import said

StrPath = str | os.PathLike[str]

_DEFAULT_NAME = "default_config.json"


def load_settings(
    config_path: StrPath | None = None,
    *,
    task: str | None = None,
    dump_path: StrPath | None = None,
    level: str | None = None,
    step: Any = None,
    rank: Any = None,
    **overrides: Any,
) -> Settings:
    """Read the file, put the arguments in place of its values, check everything.

    ``config_path``: a ``.json`` file; None takes the packaged default (statistics, L1, ``./dump_path``).
    The arguments win over the file; None means not given. ``overrides`` are any other fields of the file, of
    its top level or of the task's section. Creates nothing on disk.

    Raises PathError if the file cannot be read or, being the only mistake, if ``dump_path`` cannot be used;
    JsonSyntaxError (also a RuntimeError) if it is not JSON; ScopeError if the only mistakes are in ``scope``;
    NotAvailableError if all that is wrong is that this version does not have it (a task, for example);
    InvalidInputError with one line for each mistake otherwise. Names that nothing reads give a warning in the log.
    """
    name, document = read_file(config_path)
    for duplicate in document.duplicates[:MOST_SHOWN]:
        log.warning(said("field-twice", name, duplicate.last.line, dotted(duplicate.path), duplicate.first.line))
    if len(document.duplicates) > MOST_SHOWN:
        log.warning(said("more-fields-twice", name, len(document.duplicates) - MOST_SHOWN))
    named = {"task": task, "dump_path": dump_path, "level": level, "step": step, "rank": rank, **overrides}
    raw, source, mistakes = put_arguments(name, document, named)
    return _settings(raw, source, mistakes, None if config_path is None else Path(config_path))


def read_file(config_path: StrPath | None) -> tuple[str, Document]:
    """The name of a file of settings, and what is in it: an object. None takes the packaged default.

    Raises PathError, JsonSyntaxError or InvalidInputError.
    """
    if config_path is None:
        data = resources.files("msprobe.config").joinpath(_DEFAULT_NAME).read_bytes()
        return _DEFAULT_NAME, jsonc.parse(data, _DEFAULT_NAME)
    name = str(config_path)
    file = paths.check_readable_file(config_path, ".json")
    try:
        data = read_bounded(file, Budget(file, SETTINGS))
    except OSError as problem:
        raise PathError(said("config-unreadable", name, problem.strerror or problem)) from problem
    document = jsonc.parse(data, name)
    if not isinstance(document.value, dict):
        position = document.positions[()]
        raise InvalidInputError(said("config-is-no-object", name, position.line, shown(document.value)))
    return name, document


def _settings(raw: dict[str, Any], source: ConfigSource, mistakes: list[Mistake], config_path: Path | None) -> Settings:
    common = read_section(CommonFields, raw, (), source)
    mistakes.extend(common.mistakes)
    active = section_name(raw.get("task"))
    section = _active_section(active, raw, source)
    mistakes.extend(section.mistakes)
    mistakes.extend(_missing_bounds(active, raw, source))
    if isinstance(section.fields, FreeBenchmarkFields):
        mistakes.extend(benchmark_mistakes(cast(Section[FreeBenchmarkFields], section), raw, source))
    if active == "lockstep" and not (section.fields.reference or "reference" in section.broken):  # type: ignore[attr-defined]
        text = said("reference-missing")
        mistakes.append(source.mistake((active, "reference"), text))
    load = read_section(LoadFields, raw.get("load"), ("load",), source)
    mistakes.extend(load.mistakes)
    mistakes.extend(_dump_path_mistakes(common, raw, source))
    recorded = active in TASK_SECTIONS
    warnings = [*_unknown_fields(raw, active, source), *_unused_section_warnings(raw, active, source)]
    if recorded:
        mistakes.extend(cross_mistakes(common, cast(Section[FilterFields], section), source))
        if not common.broken & {"task", "level"}:
            warnings.extend(adjustment_warnings(common.fields, cast(FilterFields, section.fields), source))
    else:
        warnings.extend(unused_field_warnings(common.fields, active, source))
    for line in warnings:
        log.warning(line)
    mistakes.extend(_what_is_not_available(active, section.fields, load.fields, source))
    if mistakes:
        raise_mistakes(mistakes, source.name)
    if isinstance(section.fields, GradientProbeFields):
        return _complete_probe(common.fields, section.fields, config_path)
    if isinstance(section.fields, FreeBenchmarkFields):
        return complete_benchmark(common.fields, section.fields, source, config_path)
    return _complete(common.fields, cast(FilterFields, section.fields), config_path)


def _missing_bounds(active: str, raw: Mapping[str, Any], source: ConfigSource) -> list[Mistake]:
    """``null`` could mean no bounds as well as the usual ones."""
    section = raw.get(active)
    if active != "grad_probe" or not isinstance(section, Mapping) or section.get("bounds", 0) is not None:
        return []
    text = said("found-null", allowed(GradientProbeFields, "bounds"))
    return [source.mistake((active, "bounds"), text)]


def _active_section(active: str, raw: Mapping[str, Any], source: ConfigSource) -> Section[Fields]:
    model = _model(active)
    return read_section(model or Fields, raw.get(active), (active,), source)


def _model(section: str) -> type[Fields] | None:
    models: dict[str, type[Fields] | None] = {**TASK_SECTIONS, **OTHER_TASK_SECTIONS}
    return models[section]


def _dump_path_mistakes(common: Section[CommonFields], raw: Mapping[str, Any], source: ConfigSource) -> list[Mistake]:
    if "dump_path" in common.broken:
        return []
    if raw.get("dump_path") is None:
        return [source.mistake(("dump_path",), said("dump-path-missing"))]
    try:
        paths.check_output_folder(common.fields.dump_path)
    except PathError as problem:
        return [source.mistake(("dump_path",), problem.message.rstrip("."), "path")]
    return []


def _unknown_fields(raw: Mapping[str, Any], active: str, source: ConfigSource) -> list[str]:
    sections: dict[str, Iterable[str]] = {
        said("in-section", name): known_names(model)
        for name, model in sorted(TASK_SECTIONS.items(), key=lambda item: item[0] != active)
    }
    top = [*known_names(CommonFields), *TASK_SECTIONS, *OTHER_TASK_SECTIONS, "load"]
    lines = unknown_field_warnings(raw, (), top, sections, source)
    model = _model(active)
    if model is not None:
        elsewhere = {said("at-top-level"): known_names(CommonFields), **sections}
        lines += unknown_field_warnings(raw.get(active), (active,), known_names(model), elsewhere, source)
    return lines + unknown_field_warnings(raw.get("load"), ("load",), known_names(LoadFields), {}, source)


def _unused_section_warnings(raw: Mapping[str, Any], active: str, source: ConfigSource) -> list[str]:
    """Files often carry the sections of all tasks. What is wrong in those that are not used stops nothing."""
    lines: list[str] = []
    for name in (*TASK_SECTIONS, *OTHER_TASK_SECTIONS):
        model = _model(name)
        if name == active or name not in raw or model is None:
            continue
        lines += [
            said("mistake-in-unused-section", mistake, name, active)
            for mistake in read_section(model, raw[name], (name,), source).mistakes
        ]
    return lines


def _what_is_not_available(active: str, section: Fields, load: LoadFields, source: ConfigSource) -> list[Mistake]:
    missing: list[tuple[FieldPath, str]] = []
    if active in OTHER_TASK_SECTIONS and active not in get_args(ProbeTask):
        able = quoted((*TASKS, *get_args(ProbeTask)))
        missing.append((("task",), said("task-not-in-version", active, able)))
    if load.path:
        missing.append((("load",), said("inputs-not-replaceable")))
    if isinstance(section, ValueFields):
        missing += [((active, "slice"), said("rows-not-recordable"))] if section.slices else []
        if section.request_id:
            missing.append(((active, "request_id"), said("request-not-recordable")))
    if isinstance(section, TensorFields) and section.online_run_ut_recompute:
        text = said("no-recompute-before-sending")
        missing.append(((active, "online_run_ut_recompute"), text))
    if isinstance(section, TensorFields) and section.bench_path:
        text = said("no-comparing-while-recording")
        missing.append(((active, "bench_path"), text))
    return [source.mistake(path, text, "unavailable") for path, text in missing]


def _complete_probe(common: CommonFields, section: GradientProbeFields, config_path: Path | None) -> Settings:
    return Settings(
        task="grad_probe",
        dump_path=common.dump_path,
        ranks=expand(common.rank),
        steps=expand(common.step),
        existing=common.existing,
        gradient_probe=GradientProbe(
            section.grad_level,
            tuple(dict.fromkeys(section.param_list)),
            tuple(section.bounds),
            section.checksum,
            section.direction,
            section.compat_norm,
        ),
        config_path=config_path,
    )


def _complete(common: CommonFields, section: FilterFields, config_path: Path | None) -> Settings:
    modes = set(section.data_mode) or {"all"}
    both_directions = not modes & {"forward", "backward"}
    both_sides = not modes & {"input", "output"}
    own: dict[str, Any] = {}
    if isinstance(section, ValueFields):
        mode = section.summary_mode
        if isinstance(mode, list):
            own["summary_kinds"] = tuple(dict.fromkeys(mode))
            mode = "md5" if "md5" in mode else "statistics"
        own["summary_mode"] = mode
        own["device"] = section.device
        own["device_precision"] = section.precision or "high"
    if isinstance(section, TensorFields) and section.online_run_ut:
        own["online"] = address_of(section, "client")
    if isinstance(section, LockstepFields):
        own["lockstep"] = Lockstep(section.reference, section.verdict, tuple(filter(None, section.only.split(","))))
    level = effective_level(common)
    tensor_list = getattr(section, "tensor_list", ())
    for name in ("file_format", "overflow_nums", "check_mode"):
        if hasattr(section, name):
            own[name] = getattr(section, name)
    return Settings(
        # Checked before: all other tasks were refused.
        task="tensor" if common.task == "lockstep" else cast(Task, common.task),
        level=level,
        dump_path=common.dump_path,
        ranks=expand(common.rank),
        steps=expand(common.step),
        enable_dataloader=common.enable_dataloader,
        async_dump=common.async_dump,
        scope=tuple(section.scope),
        api_list=tuple(section.api_list),
        tensor_list=() if level == "debug" else tuple(tensor_list),
        forward="forward" in modes or both_directions,
        backward="backward" in modes or both_directions,
        input="input" in modes or both_sides,
        output="output" in modes or both_sides,
        precision=common.precision,
        dump_enable=common.dump_enable,
        extra_info=common.extra_info,
        risk_level=common.risk_level,
        custom_op_namespaces=tuple(common.custom_op_namespaces),
        api_scope=common.api_scope,
        api_list_file=common.api_list_file,
        custom_api_file=common.custom_api_file,
        optimizer=common.optimizer,
        strict_json=common.strict_json,
        jitter=common.jitter,
        compress=common.compress,
        record_root=common.record_root,
        existing=common.existing,
        compile=common.compile,
        graphs=common.graphs,
        buffers=common.buffers,
        config_path=config_path,
        **own,
    )
