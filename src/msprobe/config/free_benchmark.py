"""Section ``free_benchmark``: mistakes that several fields make together, and the settings that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.config.fields import CommonFields
from msprobe.config.mistakes import ConfigSource, Mistake, shown
from msprobe.config.other_tasks import FreeBenchmarkFields
from msprobe.config.ranges import expand
from msprobe.config.sections import Section
from msprobe.config.settings import FreeBenchmark, Settings
from msprobe.messages import said

_TASK = "free_benchmark"
_FIX_MODES = ("improve_precision", "to_cpu")


def benchmark_mistakes(
    section: Section[FreeBenchmarkFields], raw: Mapping[str, Any], source: ConfigSource
) -> list[Mistake]:
    """All of them. A field that is broken by itself takes part in none."""
    fields, broken = section.fields, section.broken
    mistakes = []
    if not broken & {"scope", "list"} and fields.scope and fields.api_list:
        text = said("scope-beside-list", shown(fields.scope))
        mistakes.append(source.mistake((_TASK, "scope"), text, "scope"))
    mistakes += [*_empty_mode(raw, source), *_device_mistakes(fields, broken, source)]
    if fields.handler_type == "fix" and "handler_type" not in broken:
        mistakes += _fix_mistakes(fields, broken, source)
    if fields.fix_graph and fields.handler_type != "fix" and not broken & {"fix_graph", "handler_type"}:
        mistakes.append(source.mistake((_TASK, "fix_graph"), said("only-with-handler-fix")))
    return mistakes


def _empty_mode(raw: Mapping[str, Any], source: ConfigSource) -> list[Mistake]:
    given = raw.get(_TASK)
    if not isinstance(given, Mapping) or given.get("pert_mode", "") is not None:
        return []
    allowed = FreeBenchmarkFields.model_fields["pert_mode"].description
    return [source.mistake((_TASK, "pert_mode"), said("found-null", allowed))]


def _device_mistakes(fields: FreeBenchmarkFields, broken: frozenset[str], source: ConfigSource) -> list[Mistake]:
    if broken & {"fuzz_device", "pert_mode"}:
        return []
    on_cpu = fields.fuzz_device == "cpu"
    if on_cpu == ("to_cpu" in fields.pert_mode) and (not on_cpu or fields.pert_mode == ["to_cpu"]):
        return []
    text = said("fuzz-device-wrong", shown(fields.fuzz_device), shown(fields.pert_mode))
    return [source.mistake((_TASK, "fuzz_device"), text)]


def _fix_mistakes(fields: FreeBenchmarkFields, broken: frozenset[str], source: ConfigSource) -> list[Mistake]:
    mistakes = []
    if fields.fuzz_stage != "forward" and "fuzz_stage" not in broken:
        mistakes.append(source.mistake((_TASK, "fuzz_stage"), said("fix-needs-forward")))
    if "pert_mode" not in broken and (len(fields.pert_mode) > 1 or fields.pert_mode[0] not in _FIX_MODES):
        text = said("fix-modes", shown(fields.pert_mode))
        mistakes.append(source.mistake((_TASK, "pert_mode"), text))
    if fields.if_preheat and "if_preheat" not in broken:
        mistakes.append(source.mistake((_TASK, "if_preheat"), said("fix-without-preheat")))
    return mistakes


def complete_benchmark(
    common: CommonFields, section: FreeBenchmarkFields, source: ConfigSource, config_path: Path | None
) -> Settings:
    """The settings; a warning names what has no effect. Call it where nothing is wrong."""
    if common.level != "L1":
        log.warning(said("benchmark-takes-l1", source.where(("level",)), _TASK, common.level))
    wrong = [name for name in section.scope if not name.endswith(f".{section.fuzz_stage}")]
    if wrong:
        log.warning(
            said("benchmark-scope-without-match", source.where((_TASK, "scope")), shown(wrong), section.fuzz_stage)
        )
    return Settings(
        task="free_benchmark",
        dump_path=common.dump_path,
        ranks=expand(common.rank),
        steps=expand(common.step),
        enable_dataloader=common.enable_dataloader,
        dump_enable=common.dump_enable,
        extra_info=common.extra_info,
        api_scope=common.api_scope,
        api_list_file=common.api_list_file,
        existing=common.existing,
        compile=common.compile,
        optimizer=False,
        free_benchmark=FreeBenchmark(
            modes=tuple(section.pert_mode),
            scope=tuple(section.scope),
            api_list=tuple(section.api_list),
            handler=section.handler_type,
            stage=section.fuzz_stage,
            if_preheat=section.if_preheat,
            preheat_step=section.preheat_step,
            max_sample=section.max_sample,
            noise=section.noise,
            noise_scale=section.noise_scale,
            sample_ratio=float(section.sample_ratio),
            max_calls_per_api=section.max_calls_per_api,
            fix_graph=section.fix_graph,
            offload=section.offload,
            report=section.report,
        ),
        config_path=config_path,
    )
